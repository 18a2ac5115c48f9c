//! Figure of simulated against measured times, with a point for each plan.

use plotters::prelude::*;

use super::Validate;
use super::row::{TrainingMode, ValidateRow};
use crate::canvas::{Figure, Marks, comparison_chart, series_names};
use crate::outcome::Outcome;
use crate::style::{BLUE, ORANGE, SKY, Style, VERMILION, hex};

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
        let times: Vec<f64> = found.rows.iter().flat_map(ends).map(ms).collect();
        let names = ["measured (ms an iteration)", "simulated (ms an iteration)"];
        let mut chart = comparison_chart(body, &times, names)?;
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
