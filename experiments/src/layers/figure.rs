//! Figure of the speed-up by number of GPUs, with a line for each layer.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{LayerRow, Layers};
use crate::canvas::{Figure, Marks, axes, series_names, text};
use crate::style::{BLUE, GREEN, INK, ORANGE, PURPLE, SKY, Style, VERMILION};

const COLORS: [RGBColor; 6] = [BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY];
const SIZE: (u32, u32) = (900, 540);
/// Width for the names at the ends of lines, in pixels.
const NAMES: u32 = 170;
/// Height of a name in pixels.
const NAME_HEIGHT: f64 = 14.0;

/// Draws the lines on two logarithmic axes. A line's colour is that of the layer's kind; the layers
/// that take longest are named.
///
/// # Errors
/// If drawing fails.
pub(super) fn draw(layers: &Layers, style: Style) -> anyhow::Result<Figure> {
    let point =
        |row: &LayerRow| format!("{} on {} GPUs: {:.2} times as fast", row.layer, row.gpus, row.speedup);
    let values = layers.rows.iter().map(point).collect();
    let figure = Figure::draw(layers.heading(), vec![layers.origin()], SIZE, style, |body| {
        let max_gpus = layers.rows.iter().map(|row| row.gpus).max().unwrap_or(1).max(2) as f64;
        let min = layers.rows.iter().map(|row| row.speedup).fold(1.0, f64::min);
        let (bottom, top) = (min * 0.9, max_gpus * 1.08);
        let mut chart = ChartBuilder::on(body)
            .margin(14)
            .margin_right(NAMES)
            .set_label_area_size(LabelAreaPosition::Left, 60)
            .set_label_area_size(LabelAreaPosition::Bottom, 46)
            .build_cartesian_2d((1.0..max_gpus).log_scale().base(2.0), (bottom..top).log_scale().base(2.0))?;
        axes(&mut chart.configure_mesh())
            .x_desc("GPUs")
            .y_desc("times as fast as on one GPU")
            .x_label_formatter(&|count| format!("{count:.0}"))
            .y_label_formatter(&|times| {
                if *times < 1.0 { format!("{times:.1}") } else { format!("{times:.0}") }
            })
            .draw()?;
        let ideal = vec![(1.0, 1.0), (max_gpus, max_gpus)];
        chart.draw_series(DashedLineSeries::new(ideal, 6, 5, INK.stroke_width(1)))?;
        let kinds = kinds(layers);
        let color = |kind: &str| {
            kinds
                .iter()
                .position(|&known| known == kind)
                .and_then(|place| COLORS.get(place))
                .copied()
                .unwrap_or(INK)
        };
        for rows in layers.by_layer() {
            let points: Vec<(f64, f64)> = rows.iter().map(|row| (row.gpus as f64, row.speedup)).collect();
            let color = color(rows[0].kind);
            chart.draw_series([PathElement::new(points.clone(), color.stroke_width(1))])?;
            chart.draw_series(points.into_iter().map(|point| Circle::new(point, 2, color.filled())))?;
        }
        for &kind in &kinds {
            let color = color(kind);
            chart
                .draw_series([PathElement::new(Vec::<(f64, f64)>::new(), color)])?
                .label(kind)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
        }
        series_names(&mut chart.configure_series_labels(), SeriesLabelPosition::UpperLeft).draw()?;
        let plot_height = chart.plotting_area().dim_in_pixel().1;
        for row in named(layers, plot_height, (top / bottom).ln()) {
            let at = (row.gpus as f64, row.speedup);
            let color = color(row.kind);
            let style = text(11).color(&color).pos(Pos::new(HPos::Left, VPos::Center));
            let name = format!("{} {:.1}", row.layer, row.speedup);
            chart.draw_series([EmptyElement::at(at) + Text::new(name, (6, 0), style)])?;
        }
        Ok(())
    })?;
    Ok(figure.with_marks(vec![Marks { tag: "<circle", contains: String::new(), legend: 0, values }]))
}

/// Returns the kinds of layers by decreasing time on one GPU.
fn kinds(layers: &Layers) -> Vec<&'static str> {
    let mut kinds: Vec<(&'static str, f64)> = Vec::new();
    for row in layers.by_layer().filter_map(<[LayerRow]>::first) {
        match kinds.iter_mut().find(|(kind, _)| *kind == row.kind) {
            Some((_, us)) => *us += row.step_us(),
            None => kinds.push((row.kind, row.step_us())),
        }
    }
    kinds.sort_by(|a, b| b.1.total_cmp(&a.1));
    kinds.into_iter().map(|(kind, _)| kind).collect()
}

/// Returns the ends of the lines whose names do not overlap, preferring layers that take longer on
/// one GPU.
fn named(layers: &Layers, plot_height: u32, range: f64) -> Vec<&LayerRow> {
    let mut ends: Vec<(&LayerRow, &LayerRow)> =
        layers.by_layer().filter_map(|rows| Some((rows.first()?, rows.last()?))).collect();
    ends.sort_by(|a, b| b.0.step_us().total_cmp(&a.0.step_us()));
    let height = |row: &LayerRow| -row.speedup.ln() / range * f64::from(plot_height);
    let mut taken: Vec<f64> = Vec::new();
    let mut named = Vec::new();
    for (_, end) in ends {
        let at = height(end);
        if taken.iter().all(|other| (at - other).abs() >= NAME_HEIGHT) {
            taken.push(at);
            named.push(end);
        }
    }
    named
}
