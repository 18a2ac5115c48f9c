//! Figure of the total throughput over that of the best partition, by the size of background jobs.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Sharing, WindowRow};
use crate::canvas::{Area, Figure, Marks, axes, dot_entry, text, titled_chart};
use crate::style::{BLUE, GREEN, INK, ORANGE, Style, VERMILION, hex};

// Lengths in pixels.
const PANEL: (u32, u32) = (420, 320);
const LEGEND: u32 = 48;
const LEGEND_ENTRY: u32 = 140;
/// Colours of the networks, in their order.
const COLORS: [RGBColor; 4] = [BLUE, VERMILION, GREEN, ORANGE];

/// Draws a panel for each number of GPUs, with a line for each network.
///
/// # Errors
/// If drawing fails.
pub(super) fn draw(found: &Sharing, style: Style) -> anyhow::Result<Figure> {
    let mut gpus: Vec<usize> = found.rows.iter().map(|row| row.gpus).collect();
    gpus.sort_unstable();
    gpus.dedup();
    let mut titles: Vec<&str> = found.rows.iter().map(|row| row.title.as_str()).collect();
    titles.dedup();
    let lines: Vec<(&str, RGBColor)> = titles.into_iter().zip(COLORS.into_iter().cycle()).collect();
    let width = (PANEL.0 * gpus.len() as u32).max(LEGEND_ENTRY * lines.len() as u32 + 44);
    let values = || found.rows.iter().filter_map(|row| row.total_over_partition);
    let range = values().fold(1.0, f64::min) * 0.95..values().fold(1.0, f64::max) * 1.05;
    let heading = "Foreground and background over the best partition, by size of background jobs (simulated)";
    let figure =
        Figure::draw(heading.into(), found.provenance(), (width, LEGEND + PANEL.1), style, |root| {
            let (legend, body) = root.split_vertically(LEGEND);
            for (index, (title, color)) in lines.iter().enumerate() {
                let area = legend.clone().shrink((22 + LEGEND_ENTRY * index as u32, 4), (LEGEND_ENTRY, 20));
                dot_entry(&area, *color, title)?;
            }
            let note = "at the same foreground speed, or the fastest partition's if none is as fast";
            legend.draw(&Text::new(note, (22, 28), text(12)))?;
            for (index, &gpus) in gpus.iter().enumerate() {
                let area = body.clone().shrink((index as u32 * PANEL.0, 0), PANEL);
                panel(&area, found, (gpus, &lines), range.clone())?;
            }
            Ok(())
        })?;
    let of_line = |(title, color): &(&str, RGBColor)| Marks {
        tag: "<circle",
        contains: hex(*color),
        legend: 1,
        values: gpus.iter().flat_map(|&gpus| points(found, title, gpus)).map(value).collect(),
    };
    // Networks beyond the colours share them, which makes marks ambiguous.
    let is_unique = lines.len() <= COLORS.len();
    Ok(figure.with_marks(if is_unique { lines.iter().map(of_line).collect() } else { Vec::new() }))
}

/// Returns the rows of a network on a number of GPUs that have a partition to compare with.
fn points<'a>(found: &'a Sharing, title: &str, gpus: usize) -> Vec<&'a WindowRow> {
    let is_drawn =
        |row: &&WindowRow| row.title == title && row.gpus == gpus && row.total_over_partition.is_some();
    found.rows.iter().filter(is_drawn).collect()
}

/// Returns the description of a dot.
fn value(row: &WindowRow) -> String {
    let WindowRow { title, gpus, jobs, gpus_per_job, .. } = row;
    let over = row.total_over_partition.map_or_else(String::new, |over| format!("{over:.2}"));
    format!("{title} on {gpus} GPUs, {jobs} jobs of {gpus_per_job}: {over}")
}

fn panel(
    area: &Area<'_>,
    found: &Sharing,
    (gpus, lines): (usize, &[(&str, RGBColor)]),
    range: std::ops::Range<f64>,
) -> anyhow::Result<()> {
    let max_size = found.rows.iter().map(|row| row.gpus_per_job).max().unwrap_or(1).max(2) as f64;
    let mut chart =
        titled_chart(area).build_cartesian_2d((1.0..max_size).log_scale().base(2.0), range.clone())?;
    axes(&mut chart.configure_mesh())
        .x_desc("GPUs of a background job")
        .y_desc("ratio")
        .x_label_formatter(&|count| format!("{count:.0}"))
        .y_label_formatter(&|ratio| format!("{ratio:.2}"))
        .draw()?;
    chart.draw_series(DashedLineSeries::new([(1.0, 1.0), (max_size, 1.0)], 4, 4, INK.stroke_width(1)))?;
    let above = text(13).pos(Pos::new(HPos::Left, VPos::Bottom));
    let title = Text::new(format!("{gpus} GPUs"), (0, -8), above);
    chart.draw_series([EmptyElement::at((1.0, range.end)) + title])?;
    for (title, color) in lines {
        let at = |row: &WindowRow| Some((row.gpus_per_job as f64, row.total_over_partition?));
        let points: Vec<(f64, f64)> = points(found, title, gpus).into_iter().filter_map(at).collect();
        chart.draw_series([PathElement::new(points.clone(), color.stroke_width(1))])?;
        chart.draw_series(points.into_iter().map(|point| Circle::new(point, 4, color.filled())))?;
    }
    Ok(())
}
