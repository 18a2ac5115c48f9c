//! Figure of the speed of burst plans over that of data parallelism, with a panel for each number
//! of GPUs and a line for each network.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::case::{ALL, SAMPLES};
use super::text::find;
use super::{Splits, SplitsRow};
use crate::canvas::{Area, Figure, Marks, axes, dot_entry, text};
use crate::style::{BLUE, GREEN, GRID, INK, ORANGE, PURPLE, SKY, Style, VERMILION, hex};

/// Maximum number of panels side by side.
pub(super) const MAX_PANELS: usize = 8;
/// Colours of the splits alone, in their order.
const SPLITS: [RGBColor; 5] = [SKY, ORANGE, GREEN, PURPLE, INK];

// Lengths in pixels.
const PANEL_WIDTH: u32 = 220;
const LABEL_WIDTH: u32 = 130;
const TITLE_HEIGHT: u32 = 30;
const AXIS_HEIGHT: u32 = 46;
const LEGEND_HEIGHT: u32 = 52;
const LEGEND_ENTRY: u32 = 118;
/// Heights of a network's line for each of the dots, which are below each other: of many networks,
/// and of at most `FEW`.
const DOT_HEIGHTS: [u32; 2] = [7, 14];
const FEW: usize = 3;
const LEFT: u32 = 16;

/// Draws a panel for each number of GPUs, with a dot for the fastest plan of each set of ways.
///
/// # Errors
/// If drawing fails.
pub(super) fn draw(found: &Splits, style: Style) -> anyhow::Result<Figure> {
    let mut models: Vec<&str> = found.rows.iter().map(|row| row.model.as_str()).collect();
    models.dedup();
    let mut gpus: Vec<usize> = found.rows.iter().map(|row| row.gpus).collect();
    gpus.sort_unstable();
    gpus.dedup();
    let dot_height = DOT_HEIGHTS[usize::from(models.len() <= FEW)];
    let line_height = dot_height * (found.ways.len() as u32 + 1);
    let height = TITLE_HEIGHT + line_height * models.len() as u32 + AXIS_HEIGHT;
    let entries = (found.ways.len() as u32 * LEGEND_ENTRY).max(6 * LEGEND_ENTRY);
    let width = (2 * LEFT + LABEL_WIDTH + PANEL_WIDTH * gpus.len() as u32).max(2 * LEFT + entries);
    let size = (width, LEGEND_HEIGHT + height);
    let fastest = || found.rows.iter().filter(|row| row.mode == "bp" && row.amplification_limit.is_none());
    let max = fastest().map(|row| row.times_as_fast_as_dp).fold(1.1, f64::max);
    let range = 1.0 - 0.06 * (max - 1.0)..max + 0.06 * (max - 1.0);
    let heading = format!("Times as fast as data parallelism, global batch {} (simulated)", found.batch);
    let figure = Figure::draw(heading, found.provenance(), size, style, |root| {
        let (legend, body) = root.split_vertically(LEGEND_HEIGHT);
        for (index, name) in found.ways.iter().enumerate() {
            let area = legend.clone().shrink((LEFT + LEGEND_ENTRY * index as u32, 6), (LEGEND_ENTRY, 18));
            dot_entry(&area, color(&found.ways, name), &label(name))?;
        }
        let note = "the fastest burst plan of each; more GPUs than samples are idle under DP";
        legend.draw(&Text::new(note, (22, 28), text(12)))?;
        for (index, &gpus) in gpus.iter().enumerate() {
            let label_width = if index == 0 { LABEL_WIDTH } else { 0 };
            let left = LEFT + index as u32 * PANEL_WIDTH + LABEL_WIDTH - label_width;
            let area = body.clone().shrink((left, 0), (PANEL_WIDTH + label_width, height));
            panel(&area, found, (gpus, &models), (range.clone(), label_width))?;
        }
        Ok(())
    })?;
    let of_ways = |name: &String| Marks {
        tag: "<circle",
        contains: hex(color(&found.ways, name)),
        legend: 1,
        values: gpus.iter().flat_map(|&gpus| points(found, name, gpus)).map(|(_, row)| value(row)).collect(),
    };
    let marks = found.ways.iter().map(of_ways).collect();
    // Splits beyond the colours share the last one, which makes marks ambiguous.
    let is_unique = found.ways.len() <= SPLITS.len() + 2;
    Ok(figure.with_marks(if is_unique { marks } else { Vec::new() }))
}

/// Returns the color of a set of ways.
fn color(ways: &[String], name: &str) -> RGBColor {
    match name {
        SAMPLES => BLUE,
        ALL => VERMILION,
        // The first of the ways is `samples`.
        name => {
            let index = ways.iter().position(|other| other == name).unwrap_or(1).saturating_sub(1);
            SPLITS[index.min(SPLITS.len() - 1)]
        }
    }
}

/// Returns the label of a set of ways.
fn label(name: &str) -> String {
    match name {
        SAMPLES => "BP by samples".into(),
        ALL => "BP, all splits".into(),
        name => format!("with {name}"),
    }
}

/// Returns the description of a dot.
fn value(row: &SplitsRow) -> String {
    let SplitsRow { model, gpus, iteration_us, times_as_fast_as_dp, split_layers, .. } = row;
    let layers = if split_layers.is_empty() { String::new() } else { format!("; layers: {split_layers}") };
    let ms = iteration_us / 1e3;
    format!(
        "{model} on {gpus} GPUs, {}: {times_as_fast_as_dp:.2} times ({ms:.2} ms{layers})",
        label(&row.splits)
    )
}

/// Returns the fastest plans of a set of ways on a number of GPUs, each with the index of its
/// network.
fn points<'a>(found: &'a Splits, name: &str, gpus: usize) -> Vec<(usize, &'a SplitsRow)> {
    let mut models: Vec<&str> = found.rows.iter().map(|row| row.model.as_str()).collect();
    models.dedup();
    let of_case = |rows: &'a [SplitsRow]| {
        let row = find(rows, name, false).filter(|row| row.gpus == gpus)?;
        Some((models.iter().position(|model| *model == row.model)?, row))
    };
    found.by_case().filter_map(of_case).collect()
}

fn panel(
    area: &Area<'_>,
    found: &Splits,
    (gpus, models): (usize, &[&str]),
    (range, label_width): (std::ops::Range<f64>, u32),
) -> anyhow::Result<()> {
    let lines = models.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .margin_top(TITLE_HEIGHT)
        .margin_right(18)
        .set_label_area_size(LabelAreaPosition::Left, label_width)
        .set_label_area_size(LabelAreaPosition::Bottom, AXIS_HEIGHT)
        .build_cartesian_2d(range.clone(), lines..0.0)?;
    axes(&mut chart.configure_mesh())
        .disable_y_mesh()
        .disable_y_axis()
        .x_labels(5)
        .x_max_light_lines(0)
        .x_desc("times as fast as DP")
        .x_label_formatter(&|ratio| format!("{ratio:.1}"))
        .draw()?;
    for line in 0..=models.len() {
        let ends = vec![(range.start, line as f64), (range.end, line as f64)];
        chart.draw_series([PathElement::new(ends, GRID.stroke_width(1))])?;
    }
    chart.draw_series(DashedLineSeries::new([(1.0, 0.0), (1.0, lines)], 4, 4, INK.stroke_width(1)))?;
    let above = text(14).pos(Pos::new(HPos::Left, VPos::Bottom));
    let title = Text::new(format!("{gpus} GPUs"), (0, -8), above);
    chart.draw_series([EmptyElement::at((range.start, 0.0)) + title])?;
    if label_width > 0 {
        for (line, model) in models.iter().enumerate() {
            let before = text(13).pos(Pos::new(HPos::Right, VPos::Center));
            let name = Text::new((*model).to_owned(), (-8, 0), before);
            chart.draw_series([EmptyElement::at((range.start, line as f64 + 0.5)) + name])?;
        }
    }
    for (index, name) in found.ways.iter().enumerate() {
        let color = color(&found.ways, name);
        let below = (index as f64 + 1.0) / (found.ways.len() as f64 + 1.0);
        let dots = points(found, name, gpus);
        let dots = dots.iter().map(|(line, row)| (row.times_as_fast_as_dp, *line as f64 + below));
        chart.draw_series(dots.map(|at| Circle::new(at, 3, color.filled())))?;
    }
    Ok(())
}
