//! Each number's range under each variation.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::variation::FIGURES;
use super::{Row, Sensitivity};
use crate::style::{BLUE, GRID, INK, ORANGE, wrapped};

pub(super) const DOWN: RGBColor = BLUE;
pub(super) const UP: RGBColor = ORANGE;
const PANEL: (u32, u32) = (300, 210);
/// Width for the names of figures, left of each line of panels.
const NAMES: u32 = 170;
const HEADER: u32 = 104;
const PRINT: usize = 175;
const MARGIN: u32 = 16;
const LEGEND_TOP: i32 = 82;

/// An SVG image: a panel for each number, a bar from what it is to what it becomes for each variation, a line at 1.
pub(super) fn svg(found: &Sensitivity) -> anyhow::Result<String> {
    let groups: Vec<&[Row]> = found.groups().collect();
    let lines: Vec<&[&[Row]]> = groups.chunk_by(|a, b| a[0].model == b[0].model).collect();
    let columns = lines.iter().map(|line| line.len()).max().unwrap_or(0) as u32;
    let size = (NAMES + columns * PANEL.0 + MARGIN, HEADER + lines.len() as u32 * PANEL.1 + MARGIN);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let text = |size: i32| TextStyle::from(("sans-serif", size)).color(&INK);
        root.draw(&Text::new(
            "What conclusions owe to figures that may be off by half (simulated)",
            (22, 14),
            text(20),
        ))?;
        for (line, top) in wrapped(&found.provenance, PRINT).into_iter().zip((42..).step_by(16)) {
            root.draw(&Text::new(line, (22, top), text(11)))?;
        }
        let legend = [(DOWN, "x 0.5", 0), (UP, "x 1.5, or launched kernel by kernel", 70)];
        for (color, label, x) in legend {
            let (x, y) = (22 + x, LEGEND_TOP);
            root.draw(&Rectangle::new([(x, y), (x + 12, y + 12)], color.filled()))?;
            root.draw(&Text::new(label, (x + 18, y), text(12)))?;
        }
        for (line_index, line) in lines.iter().enumerate() {
            for (index, group) in line.iter().enumerate() {
                // The first panel of a line names the figures for all of them.
                let names = if index == 0 { NAMES } else { 0 };
                let left = NAMES + index as u32 * PANEL.0 - names;
                let top = HEADER + line_index as u32 * PANEL.1;
                let area = root.clone().shrink((left, top), (PANEL.0 + names, PANEL.1));
                panel(&area, group, names)?;
            }
        }
        root.present()?;
    }
    Ok(svg)
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    group: &[Row],
    names: u32,
) -> anyhow::Result<()> {
    let text = |size: i32| TextStyle::from(("sans-serif", size)).color(&INK);
    let values = || group.iter().map(|row| row.value).chain([1.0]);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let room = 0.16 * (most - least).max(0.05);
    let mut chart = ChartBuilder::on(area)
        .margin_top(26)
        .margin_right(14)
        .set_label_area_size(LabelAreaPosition::Left, names)
        .set_label_area_size(LabelAreaPosition::Bottom, 26)
        .build_cartesian_2d(least - room..most + room, FIGURES.len() as f64..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_labels(5)
        .x_max_light_lines(0)
        .x_label_formatter(&|value| format!("{value:.2}"))
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(text(11))
        .draw()?;
    let base = group[0].value;
    let bottom = FIGURES.len() as f64;
    chart.draw_series(DashedLineSeries::new([(1.0, 0.0), (1.0, bottom)], 4, 4, INK.stroke_width(1)))?;
    chart.draw_series([PathElement::new([(base, 0.0), (base, bottom)], INK.stroke_width(1))])?;
    let title = format!("{}: {} {base:.2}", group[0].title, group[0].headline);
    let above = text(12).pos(Pos::new(HPos::Left, VPos::Bottom));
    chart.draw_series([EmptyElement::at((least - room, 0.0)) + Text::new(title, (0, -7), above)])?;
    for (place, figure) in FIGURES.iter().enumerate() {
        let middle = place as f64 + 0.5;
        let of_figure = group.iter().filter(|row| row.figure == Some(figure.label()));
        for (row, &factor) in of_figure.zip(figure.factors()) {
            let is_down = factor > 0.0 && factor < 1.0;
            let (color, top) = if is_down { (DOWN, middle - 0.3) } else { (UP, middle) };
            chart.draw_series([Rectangle::new([(base, top), (row.value, top + 0.28)], color.filled())])?;
        }
        if names > 0 {
            let before = text(12).pos(Pos::new(HPos::Right, VPos::Center));
            let label = EmptyElement::at((least - room, middle)) + Text::new(figure.label(), (-8, 0), before);
            chart.draw_series([label])?;
        }
    }
    Ok(())
}
