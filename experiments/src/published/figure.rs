//! Figure of predicted by published throughput, with a point for each question.

use plotters::prelude::*;

use super::question::QuestionSet;
use super::summary::GOOD;
use super::training::{QuestionRow, Training, Verdict};
use crate::canvas::{Figure, Marks, axes, series_names};
use crate::style::{BLUE, GREY, INK, ORANGE, SKY, Style, hex};

const SIZE: (u32, u32) = (640, 600);

/// Points of the figure, drawn in this order: label, colour, and the questions.
type Series = (&'static str, RGBColor, fn(&QuestionRow) -> bool);

const SERIES: [Series; 4] = [
    ("slow or dominated", GREY, |row| row.verdict != Verdict::Compared),
    ("fitted", ORANGE, |row| row.verdict == Verdict::Compared && row.fitted),
    ("held out, several GPUs", SKY, |row| row.verdict == Verdict::Compared && !row.fitted && row.gpus > 1),
    ("held out, one GPU", BLUE, |row| row.verdict == Verdict::Compared && !row.fitted && row.gpus == 1),
];

/// Returns the questions of a series that are predicted, with their published and predicted
/// throughputs.
fn points(training: &Training, (_, _, is_in): Series) -> Vec<(&QuestionRow, (f64, f64))> {
    let rows = training.questions.iter().filter(|row| row.question.set == QuestionSet::OneHost);
    rows.filter(|row| is_in(row))
        .filter_map(|row| Some((row, (row.published_samples_per_s, row.predicted_samples_per_s?))))
        .collect()
}

/// Draws predicted by published throughput on two logarithmic axes. They are equal on the dashed
/// line, and differ by 20% on the thin ones. Only questions of one host are drawn.
///
/// # Errors
/// If drawing fails.
pub(super) fn draw(training: &Training, provenance: Vec<String>, style: Style) -> anyhow::Result<Figure> {
    let title = "Predicted against published training throughput".to_owned();
    let figure = Figure::draw(title, provenance, SIZE, style, |body| {
        let values: Vec<f64> = SERIES
            .iter()
            .flat_map(|&series| points(training, series))
            .flat_map(|(_, (x, y))| [x, y])
            .collect();
        let (min, max) = (
            values.iter().fold(f64::INFINITY, |a, &b| a.min(b)),
            values.iter().fold(0.0, |a: f64, &b| a.max(b)),
        );
        let (min, max) = if max > 0.0 { (min * 0.8, max * 1.25) } else { (1.0, 10.0) };
        let mut chart = ChartBuilder::on(body)
            .margin(16)
            .set_label_area_size(LabelAreaPosition::Left, 62)
            .set_label_area_size(LabelAreaPosition::Bottom, 46)
            .build_cartesian_2d((min..max).log_scale(), (min..max).log_scale())?;
        axes(&mut chart.configure_mesh())
            .x_desc("published (samples/s)")
            .y_desc("predicted (samples/s)")
            .x_label_formatter(&|rate| format!("{rate:.0}"))
            .y_label_formatter(&|rate| format!("{rate:.0}"))
            .draw()?;
        chart.draw_series(DashedLineSeries::new([(min, min), (max, max)], 4, 4, INK.stroke_width(1)))?;
        for ratio in [1.0 - GOOD, 1.0 + GOOD] {
            let (from, to) = (min.max(min / ratio), max.min(max / ratio));
            chart.draw_series(LineSeries::new(
                [(from, from * ratio), (to, to * ratio)],
                GREY.stroke_width(1),
            ))?;
        }
        for series in SERIES {
            let (label, color, _) = series;
            let dots = points(training, series);
            chart
                .draw_series(dots.iter().map(|(_, at)| Circle::new(*at, 3, color.filled())))?
                .label(format!("{label} ({})", dots.len()))
                .legend(move |at| Circle::new((at.0 + 10, at.1), 4, color.filled()));
        }
        series_names(&mut chart.configure_series_labels(), SeriesLabelPosition::LowerRight).draw()?;
        Ok(())
    })?;
    let marks = SERIES.map(|series| Marks {
        tag: "<circle",
        contains: hex(series.1),
        // The legend is drawn after all points.
        legend: 0,
        values: points(training, series).into_iter().map(|(row, at)| value(row, at)).collect(),
    });
    Ok(figure.with_marks(marks.into()))
}

fn value(row: &QuestionRow, (published, predicted): (f64, f64)) -> String {
    format!("{}: predicted {predicted:.0}, published {published:.0} samples/s ({})", row.question, row.suite)
}
