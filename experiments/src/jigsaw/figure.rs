//! Figures of efficiency and completion times by load, and cumulative curves. A *trace* is a source
//! of jobs; the *load* is the GPU time that the jobs need alone with data parallelism, divided by
//! the GPU time of the cluster until the last arrival; a *seed* selects a draw of jobs.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::row::PolicyRow;
use super::{Jigsaw, TITLE};
use crate::canvas::{Area, Figure, axes, dot_entry, text};
use crate::style::{BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY, Style, VERMILION};

/// Policies in the figures, with their colours.
const DRAWN: [(&str, RGBColor); 7] = [
    ("fifo", GREY),
    ("las", ORANGE),
    ("max-min", PURPLE),
    ("iteration-level", SKY),
    ("jigsaw, K = 4", VERMILION),
    ("burst", BLUE),
    ("partition", GREEN),
];

const PANEL: (u32, u32) = (340, 260);
const LEGEND: u32 = 30;
const LEFT: u32 = 16;

/// A value that a panel shows by load: its label, and a function that returns it.
type Shown = (&'static str, fn(&PolicyRow) -> f64);

const SHOWN: [Shown; 2] =
    [("efficiency", |row| row.efficiency), ("mean completion time, h", |row| row.mean_jct_s / 3600.0)];

/// Draws a column for each trace, with efficiency above and mean completion times below, by load. A
/// line for each policy connects the medians over the seeds; bars range from the minimum to the
/// maximum.
///
/// # Errors
/// If drawing fails.
pub(super) fn by_load(found: &Jigsaw, style: Style) -> anyhow::Result<Figure> {
    let traces = found.traces();
    let size = (2 * LEFT + traces.len().max(2) as u32 * PANEL.0, LEGEND + 2 * PANEL.1);
    Figure::draw(TITLE.into(), found.provenance.clone(), size, style, |root| {
        let (names, body) = root.split_vertically(LEGEND);
        legend(&names)?;
        for (column, trace) in traces.iter().enumerate() {
            for (line, shown) in SHOWN.into_iter().enumerate() {
                let place = (LEFT + column as u32 * PANEL.0, line as u32 * PANEL.1);
                panel(&body.clone().shrink(place, PANEL), found, trace, shown)?;
            }
        }
        Ok(())
    })
}

fn legend(area: &Area<'_>) -> anyhow::Result<()> {
    for (index, (policy, color)) in DRAWN.into_iter().enumerate() {
        dot_entry(&area.clone().shrink((18 + 95 * index as u32, 6), (95, 18)), color, policy)?;
    }
    Ok(())
}

/// Sets a panel's margins.
fn frame<'a, 'b>(area: &'a Area<'b>) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut chart = ChartBuilder::on(area);
    chart
        .margin_top(26)
        .margin_right(16)
        .margin_bottom(6)
        .set_label_area_size(LabelAreaPosition::Left, 52)
        .set_label_area_size(LabelAreaPosition::Bottom, 42);
    chart
}

/// Returns a panel's title, above its left corner.
fn name(trace: &str) -> Text<'static, (i32, i32), String> {
    let above = text(14).pos(Pos::new(HPos::Left, VPos::Bottom));
    Text::new(trace.to_owned(), (0, -6), above.color(&INK))
}

fn panel(area: &Area<'_>, found: &Jigsaw, trace: &str, (label, figure): Shown) -> anyhow::Result<()> {
    let bands = |policy: &str| {
        let band = |load: f64| Some((load, found.band(trace, policy, load, figure)?));
        found.loads().into_iter().filter_map(band).collect::<Vec<_>>()
    };
    let lines: Vec<_> = DRAWN.into_iter().map(|(policy, color)| (color, bands(policy))).collect();
    let top = lines.iter().flat_map(|(_, bands)| bands).map(|(_, band)| band.max).fold(0.0, f64::max) * 1.08;
    let loads = found.loads();
    let max = loads.last().copied().unwrap_or(1.0) * 1.04;
    let mut chart = frame(area).build_cartesian_2d(0.0..max, 0.0..top.max(1e-9))?;
    axes(&mut chart.configure_mesh()).x_desc("load").y_desc(label).draw()?;
    chart.draw_series([EmptyElement::at((0.0, top)) + name(trace)])?;
    for (color, bands) in lines {
        let points: Vec<(f64, f64)> = bands.iter().map(|&(load, band)| (load, band.median)).collect();
        chart.draw_series([PathElement::new(points.clone(), color.stroke_width(2))])?;
        for (load, band) in bands {
            chart.draw_series([PathElement::new(
                vec![(load, band.min), (load, band.max)],
                color.stroke_width(1),
            )])?;
        }
        chart.draw_series(points.into_iter().map(|point| Circle::new(point, 3, color.filled())))?;
    }
    Ok(())
}

/// Draws the fraction of jobs that have completed within a time after their arrival, by policy,
/// with a panel for each trace.
///
/// # Errors
/// If drawing fails.
pub(super) fn cumulative(found: &Jigsaw, style: Style) -> anyhow::Result<Figure> {
    let traces = found.traces();
    let size = (2 * LEFT + traces.len().max(2) as u32 * PANEL.0, LEGEND + PANEL.1);
    let load = super::runs::max_load(&found.loads());
    let title = format!("Completion times at load {load} (simulated)");
    Figure::draw(title, found.provenance.clone(), size, style, |root| {
        let (names, body) = root.split_vertically(LEGEND);
        legend(&names)?;
        for (column, trace) in traces.iter().enumerate() {
            curves(&body.clone().shrink((LEFT + column as u32 * PANEL.0, 0), PANEL), found, trace)?;
        }
        Ok(())
    })
}

fn curves(area: &Area<'_>, found: &Jigsaw, trace: &str) -> anyhow::Result<()> {
    let of_trace = || found.completions.iter().filter(|(other, ..)| other == trace);
    let max = of_trace().filter_map(|(.., times)| times.last()).copied().fold(10.0, f64::max);
    let mut chart = frame(area).build_cartesian_2d((1.0..max).log_scale(), 0.0..1.0)?;
    axes(&mut chart.configure_mesh())
        .x_desc("completion time, s")
        .y_desc("part of the jobs")
        .x_label_formatter(&|seconds| format!("{seconds:.0}"))
        .draw()?;
    chart.draw_series([EmptyElement::at((1.0, 1.0)) + name(trace)])?;
    for (policy, color) in DRAWN {
        for (.., times) in of_trace().filter(|(_, other, _)| other == policy) {
            let count = times.len() as f64;
            let point = |(index, &time): (usize, &f64)| (time.max(1.0), (index + 1) as f64 / count);
            chart.draw_series([PathElement::new(
                times.iter().enumerate().map(point).collect::<Vec<_>>(),
                color.stroke_width(2),
            )])?;
        }
    }
    Ok(())
}
