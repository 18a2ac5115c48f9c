//! Figure of simulated against measured times, with a point for each plan.

use plotters::prelude::*;

use super::Validate;
use super::row::{TrainingMode, ValidateRow};
use crate::canvas::{Figure, Marks, axes, series_names};
use crate::outcome::Outcome;
use crate::style::{BLUE, INK, ORANGE, SKY, Style, VERMILION, hex};

const SIZE: (u32, u32) = (640, 560);

fn color(mode: TrainingMode) -> RGBColor {
    match mode {
        TrainingMode::DataParallel => SKY,
        TrainingMode::DataParallelCollocated => BLUE,
        TrainingMode::Burst => ORANGE,
        TrainingMode::BurstCollocated => VERMILION,
    }
}

/// Draws simulated by measured time on two logarithmic axes, with a point for each plan. They are
/// equal on the dashed line.
///
/// # Errors
/// If drawing fails.
pub(super) fn draw(found: &Validate, style: Style) -> anyhow::Result<Figure> {
    let title = "Simulated against measured iteration times, on processors".to_owned();
    let note = "bars: the shortest and the longest run; dashed: simulated as measured";
    let provenance = [found.provenance(), vec![note.to_owned()]].concat();
    let figure = Figure::draw(title, provenance, SIZE, style, |body| {
        let ms = |us: f64| us / 1e3;
        let ends = |row: &ValidateRow| [row.measured_min_us, row.measured_max_us, row.predicted_iteration_us];
        let times = || found.rows.iter().flat_map(ends).map(ms).filter(|ms| *ms > 0.0);
        let (min, max) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
        let (min, max) = if max > 0.0 { (min * 0.8, max * 1.25) } else { (1.0, 10.0) };
        let mut chart = ChartBuilder::on(body)
            .margin(16)
            .set_label_area_size(LabelAreaPosition::Left, 62)
            .set_label_area_size(LabelAreaPosition::Bottom, 46)
            .build_cartesian_2d((min..max).log_scale(), (min..max).log_scale())?;
        axes(&mut chart.configure_mesh())
            .x_desc("measured (ms an iteration)")
            .y_desc("simulated (ms an iteration)")
            .x_label_formatter(&|ms| format!("{ms:.0}"))
            .y_label_formatter(&|ms| format!("{ms:.0}"))
            .draw()?;
        let same = [(min, min), (max, max)];
        chart.draw_series(DashedLineSeries::new(same, 4, 4, INK.stroke_width(1)))?;
        for mode in TrainingMode::ALL {
            let color = color(mode);
            let rows: Vec<&ValidateRow> = found.rows.iter().filter(|row| row.mode == mode).collect();
            for row in &rows {
                let at = ms(row.predicted_iteration_us);
                let bar = vec![(ms(row.measured_min_us), at), (ms(row.measured_max_us), at)];
                chart.draw_series([PathElement::new(bar, color.stroke_width(1))])?;
            }
            let dot = |row: &&ValidateRow| {
                Circle::new(
                    (ms(row.measured_iteration_us), ms(row.predicted_iteration_us)),
                    4,
                    color.filled(),
                )
            };
            chart
                .draw_series(rows.iter().map(dot))?
                .label(mode.label())
                .legend(move |at| Circle::new((at.0 + 10, at.1), 4, color.filled()));
        }
        series_names(&mut chart.configure_series_labels(), SeriesLabelPosition::LowerRight).draw()?;
        Ok(())
    })?;
    let marks = TrainingMode::ALL.map(|mode| Marks {
        tag: "<circle",
        contains: hex(color(mode)),
        // The legend is drawn after all points, so that none of the first marks belongs to it.
        legend: 0,
        values: found.rows.iter().filter(|row| row.mode == mode).map(value).collect(),
    });
    Ok(figure.with_marks(marks.into()))
}

fn value(row: &ValidateRow) -> String {
    let ValidateRow { model, mode, predicted_iteration_us, measured_iteration_us, .. } = row;
    format!(
        "{model}, {}: simulated {:.1} ms, measured {:.1} ms",
        mode.label(),
        predicted_iteration_us / 1e3,
        measured_iteration_us / 1e3
    )
}
