//! Figures of plans: layers from left to right, GPUs from top to bottom.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{NetworkPlan, PlannedLayer, Plans};
use crate::canvas::{Area, Figure, Marks, text};
use crate::style::{BLUE, GREEN, INK, ORANGE, PURPLE, SKY, Style, VERMILION, hex};

const WIDTH: u32 = 900;
/// Height of all GPUs together and minimum height of a GPU, in pixels.
const HEIGHT: u32 = 240;
const MIN_GPU_HEIGHT: u32 = 4;
const LEGEND: u32 = 30;
/// Height of the layer names below the picture, in pixels.
const NAMES: u32 = 110;
/// Maximum number of layers whose names are shown.
const MAX_NAMED: usize = 48;
/// Colours by GPU count. Layers on the most GPUs have the first.
const COLORS: [RGBColor; 6] = [BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY];

/// Minimum width of a stretch of layers whose split is named, in pixels.
const SPLIT_WIDTH: i32 = 13;

/// Draws the plan of one network, with a rectangle for each layer on consecutive GPUs, coloured by
/// the layer's GPU count. Lines between the GPUs mark split layers; the split is named on the first
/// of their consecutive GPUs.
///
/// # Errors
/// If drawing fails.
pub(super) fn draw(found: &Plans, plan: &NetworkPlan, style: Style) -> anyhow::Result<Figure> {
    let NetworkPlan { model, batch, rows, .. } = plan;
    let heading = format!(
        "{}, batch {batch}: the GPUs of each layer (limit {})",
        plan.heading(),
        found.amplification_limit
    );
    let counts = counts(rows);
    let is_named = rows.len() <= MAX_NAMED;
    let names = if is_named { NAMES } else { 8 };
    let height = HEIGHT.max(MIN_GPU_HEIGHT * found.gpus as u32);
    let figure =
        Figure::draw(heading, found.provenance.clone(), (WIDTH, LEGEND + height + names), style, |root| {
            let (legend, body) = root.split_vertically(LEGEND);
            for (index, &count) in counts.iter().enumerate() {
                let area = legend.clone().shrink((22 + 110 * index as u32, 6), (110, 20));
                area.draw(&Rectangle::new([(0, 1), (13, 14)], color(&counts, count).filled()))?;
                area.draw(&Text::new(format!("on {count}"), (19, 1), text(13)))?;
            }
            if plan.split_layers() > 0 {
                let note = "cut by lines: split layers; else the GPUs divide the samples only";
                let area = legend.clone().shrink((30 + 110 * counts.len() as u32, 6), (WIDTH, 20));
                area.draw(&Text::new(note, (0, 1), text(13)))?;
            }
            let mut chart = ChartBuilder::on(&body)
                .margin_left(8)
                .margin_right(16)
                .margin_bottom(names)
                .set_label_area_size(LabelAreaPosition::Left, 52)
                .build_cartesian_2d(0..rows.len(), found.gpus as f64..0.0)?;
            chart
                .configure_mesh()
                .disable_mesh()
                .disable_x_axis()
                .y_desc("GPU")
                .y_label_formatter(&|rank| format!("{rank:.0}"))
                .y_labels(found.gpus.min(9))
                .axis_style(INK)
                .label_style(text(11))
                .axis_desc_style(text(13))
                .draw()?;
            let plot = chart.plotting_area().strip_coord_spec();
            let (width, height) = plot.dim_in_pixel();
            let x = |place: usize| (place as f64 * f64::from(width) / rows.len() as f64).round() as i32;
            let y = |rank: usize| (rank as f64 * f64::from(height) / found.gpus as f64).round() as i32;
            let gap = i32::from(is_named);
            let left = plot.get_base_pixel().0 - body.get_base_pixel().0;
            for (place, row) in rows.iter().enumerate() {
                for (first, last) in row.runs() {
                    let corners = [(x(place), y(first)), (x(place + 1) - gap, y(last + 1) - gap)];
                    plot.draw(&Rectangle::new(corners, color(&counts, row.layer_gpus).filled()))?;
                }
                if is_named {
                    // Names run downwards from the middle of the layer.
                    let position = Pos::new(HPos::Left, VPos::Center);
                    let below = text(11).transform(FontTransform::Rotate90).pos(position);
                    let at = (left + (x(place) + x(place + 1)) / 2, y(found.gpus) + 6);
                    body.draw(&Text::new(row.layer.clone(), at, below))?;
                }
            }
            draw_splits(&plot, plan, (x, y), gap)?;
            Ok(())
        })?;
    let marks = counts.iter().map(|&count| Marks {
        tag: "<rect",
        contains: hex(color(&counts, count)),
        legend: 1,
        values: rows.iter().filter(|row| row.layer_gpus == count).flat_map(values).collect(),
    });
    // Counts beyond the colours share the last one, which makes marks ambiguous.
    let marks = if counts.len() <= COLORS.len() { marks.collect() } else { Vec::new() };
    let suffix = format!("{model}{}", if plan.all_splits { "-all-splits" } else { "" });
    Ok(figure.with_marks(marks).with_suffix(&suffix))
}

/// Draws lines between the GPUs of split layers, and names their splits. `x` and `y` convert the
/// index of a layer and a rank to pixels, and `gap` is the distance of layers.
fn draw_splits(
    plot: &Area<'_>,
    plan: &NetworkPlan,
    (x, y): (impl Fn(usize) -> i32, impl Fn(usize) -> i32),
    gap: i32,
) -> anyhow::Result<()> {
    let style = TextStyle { color: WHITE.to_backend_color(), ..text(11) }
        .transform(FontTransform::Rotate90)
        .pos(Pos::new(HPos::Left, VPos::Center));
    for (first, layers) in stretches(plan) {
        let Some(split) = &layers[0].split else { continue };
        let (left, right) = (x(first), x(first + layers.len()) - gap);
        // The name is in the first layer if that is wide enough.
        let first_right = x(first + 1) - gap;
        let name_right = if first_right - left >= SPLIT_WIDTH { first_right } else { right };
        for (first, last) in layers[0].runs() {
            for rank in first + 1..=last {
                plot.draw(&PathElement::new([(left, y(rank)), (right, y(rank))], WHITE.mix(0.6)))?;
            }
            if right - left >= SPLIT_WIDTH {
                let at = ((left + name_right) / 2, y(first) + 6);
                plot.draw(&Text::new(split.clone(), at, style.clone()))?;
            }
        }
    }
    Ok(())
}

/// Returns the stretches of consecutive layers with the same GPUs and the same split, each with the
/// index of its first layer.
fn stretches(plan: &NetworkPlan) -> impl Iterator<Item = (usize, &[PlannedLayer])> {
    plan.stretches().scan(0, |first, layers| {
        let at = *first;
        *first += layers.len();
        Some((at, layers))
    })
}

/// Returns the descriptions of a layer's rectangles.
fn values(row: &PlannedLayer) -> impl Iterator<Item = String> {
    let PlannedLayer { layer, kind, ranks, samples, .. } = row;
    let split = row.split.as_ref().map(|split| format!(", {split}")).unwrap_or_default();
    let value = format!("{layer} ({kind}) on GPUs {ranks}{split}: at most {samples} samples each");
    row.runs().map(move |_| value.clone())
}

/// Returns the GPU counts of the layers, in decreasing order.
fn counts(rows: &[PlannedLayer]) -> Vec<usize> {
    let mut counts: Vec<usize> = rows.iter().map(|row| row.layer_gpus).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts.dedup();
    counts
}

fn color(counts: &[usize], count: usize) -> RGBColor {
    let place = counts.iter().position(|&other| other == count).unwrap_or(0);
    COLORS[place.min(COLORS.len() - 1)]
}
