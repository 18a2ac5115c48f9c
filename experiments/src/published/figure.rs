//! Figure of predicted by published throughput, with a point for each question.

use std::ops::Range;

use plotters::prelude::*;

use super::question::QuestionSet;
use super::summary::GOOD;
use super::training::{QuestionRow, Training, Verdict};
use crate::canvas::{Figure, Marks, comparison_chart, series_names};
use crate::style::{BLUE, GREY, ORANGE, SKY, Style, hex};

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
        let names = ["published (samples/s)", "predicted (samples/s)"];
        let mut chart = comparison_chart(body, &values, names)?;
        let Range { start: min, end: max } = chart.x_range();
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
