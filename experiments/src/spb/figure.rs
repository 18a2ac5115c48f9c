//! Figures of test accuracy by iterations and by compute. *Compute* is modelled time of forward,
//! backward and update steps, in epochs of full backpropagation.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Spb;
use super::learning::LearningRow;
use crate::canvas::{Area, Figure, Marks, axes, dot_entry, text};
use crate::outcome::Outcome;
use crate::statistics::median;
use crate::style::{BLUE, GREEN, GREY, INK, ORANGE, PURPLE, Style, VERMILION, hex};

const PANEL: (u32, u32) = (440, 340);
const LEGEND_LINE: u32 = 20;
/// Colours in the order of the methods.
const COLORS: [RGBColor; 6] = [INK, BLUE, GREEN, ORANGE, PURPLE, GREY];

/// A line of the figure: the epochs of a method over all seeds.
struct MethodLine<'r> {
    color: RGBColor,
    method: &'r str,
    points: Vec<AccuracyPoint>,
}

/// An epoch: its place on both axes, and the minimum, median and maximum accuracy of the seeds.
struct AccuracyPoint {
    iterations: f64,
    compute: f64,
    accuracy: [f64; 3],
}

impl AccuracyPoint {
    fn of(rows: &[&LearningRow], epoch: u64) -> Self {
        let of_epoch: Vec<&&LearningRow> = rows.iter().filter(|row| row.epoch == epoch).collect();
        let values = || of_epoch.iter().map(|row| row.test_accuracy);
        let accuracy = [values().fold(1.0, f64::min), median(values()), values().fold(0.0, f64::max)];
        let first = of_epoch.first();
        Self {
            iterations: first.map_or(0.0, |row| row.iterations as f64),
            compute: first.map_or(0.0, |row| row.compute),
            accuracy,
        }
    }
}

/// Draws the accuracies of one network: a panel by iterations and one by compute, with a line for
/// each method's median over the seeds, in a band from minimum to maximum.
///
/// # Errors
/// If drawing fails.
pub(super) fn draw(found: &Spb, rows: &[&LearningRow], style: Style) -> anyhow::Result<Figure> {
    let epochs = rows.iter().map(|row| row.epoch).max().unwrap_or(1);
    let lines: Vec<MethodLine<'_>> = rows
        .chunk_by(|a, b| a.method == b.method)
        .zip(COLORS.into_iter().chain(std::iter::repeat(VERMILION)))
        .map(|(rows, color)| MethodLine {
            color,
            method: &rows[0].method,
            points: (1..=epochs).map(|epoch| AccuracyPoint::of(rows, epoch)).collect(),
        })
        .collect();
    let title = format!("Partial backpropagation of {}: test accuracy", rows[0].title);
    let legend_height = LEGEND_LINE * lines.len().div_ceil(3) as u32 + 8;
    let size = (2 * PANEL.0, legend_height + PANEL.1);
    let figure = Figure::draw(title, found.provenance(), size, style, |root| {
        let (legend, body) = root.split_vertically(legend_height);
        for (index, line) in lines.iter().enumerate() {
            let at = (22 + 270 * (index as u32 % 3), 4 + LEGEND_LINE * (index as u32 / 3));
            dot_entry(&legend.clone().shrink(at, (270, LEGEND_LINE)), line.color, line.method)?;
        }
        let area = |index: u32| body.clone().shrink((index * PANEL.0, 0), PANEL);
        panel(&area(0), &lines, "iterations", |point| point.iterations)?;
        panel(&area(1), &lines, "compute, epochs of whole backpropagation", |point| point.compute)
    })?;
    let marks = lines.iter().map(|line| {
        let value = |point: &AccuracyPoint| {
            let [min, middle, max] = point.accuracy.map(|accuracy| 100.0 * accuracy);
            format!(
                "{}, {} iterations, compute of {:.2} epochs: {middle:.1}% ({min:.1} to {max:.1}%)",
                line.method, point.iterations, point.compute
            )
        };
        let values: Vec<String> = line.points.iter().map(value).collect();
        Marks {
            tag: "<circle",
            contains: hex(line.color),
            legend: 1,
            values: [values.clone(), values].concat(),
        }
    });
    Ok(figure.with_marks(marks.collect()).with_suffix(&rows[0].model))
}

fn panel(
    area: &Area<'_>,
    lines: &[MethodLine<'_>],
    name: &str,
    across: fn(&AccuracyPoint) -> f64,
) -> anyhow::Result<()> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let right = points().map(across).fold(0.0, f64::max) * 1.02;
    // The range covers most epochs. The first ones are far below it.
    let middles = points().map(|point| point.accuracy[1]).collect::<Vec<f64>>();
    let low = crate::statistics::percentile(middles.iter().copied(), 0.08).unwrap_or(0.0);
    let (bottom, top) = ((low - 0.02).max(0.0), 1.0);
    let mut chart = ChartBuilder::on(area)
        .margin_top(14)
        .margin_left(8)
        .margin_right(22)
        .margin_bottom(6)
        .set_label_area_size(LabelAreaPosition::Left, 52)
        .set_label_area_size(LabelAreaPosition::Bottom, 44)
        .build_cartesian_2d(0.0..right, bottom..top)?;
    axes(&mut chart.configure_mesh())
        .x_desc(name)
        .y_desc("test accuracy, median and all seeds")
        .x_label_formatter(&|at| if right < 100.0 { format!("{at:.1}") } else { format!("{at:.0}") })
        .y_label_formatter(&|accuracy| format!("{:.0}%", 100.0 * accuracy))
        .draw()?;
    for line in lines {
        let seen = |accuracy: f64| accuracy.clamp(bottom, top);
        let edge = |at: usize| line.points.iter().map(move |point| (across(point), seen(point.accuracy[at])));
        let band: Vec<(f64, f64)> = edge(0).chain(edge(2).collect::<Vec<_>>().into_iter().rev()).collect();
        chart.draw_series([Polygon::new(band, line.color.mix(0.09).filled())])?;
    }
    for line in lines {
        let middle: Vec<(f64, f64)> =
            line.points.iter().map(|point| (across(point), point.accuracy[1].clamp(bottom, top))).collect();
        chart.draw_series([PathElement::new(middle.clone(), line.color.stroke_width(1))])?;
        chart.draw_series(middle.into_iter().map(|at| Circle::new(at, 3, line.color.filled())))?;
    }
    let note = text(12).pos(Pos::new(HPos::Right, VPos::Bottom));
    let target = super::TARGET;
    if target > bottom {
        chart.draw_series(DashedLineSeries::new(
            [(0.0, target), (right, target)],
            4,
            4,
            INK.stroke_width(1),
        ))?;
        let label = format!("{:.0}%", 100.0 * target);
        chart.draw_series([EmptyElement::at((right, target)) + Text::new(label, (0, -2), note)])?;
    }
    Ok(())
}
