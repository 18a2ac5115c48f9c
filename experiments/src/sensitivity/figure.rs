//! Figure of the value of each headline ratio under each variation. A *headline ratio* is a
//! throughput ratio on which a conclusion rests; a *variation* is one parameter of the models
//! changed by one factor.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::variation::PARAMETERS;
use super::{Sensitivity, SensitivityRow, TITLE};
use crate::canvas::{Area, Figure, Marks, text};
use crate::style::{BLUE, GRID, INK, ORANGE, Style, hex};

const DOWN: RGBColor = BLUE;
const UP: RGBColor = ORANGE;
const PANEL: (u32, u32) = (300, 210);
/// Width for the names of parameters, left of each line of panels.
const NAMES: u32 = 170;
const LEGEND: u32 = 28;
const MARGIN: u32 = 16;

/// Draws a panel for each headline ratio of each network, with a bar from its base value to its
/// value under each variation, and a line at 1.
///
/// # Errors
/// If drawing fails.
pub(super) fn draw(found: &Sensitivity, style: Style) -> anyhow::Result<Figure> {
    let groups: Vec<&[SensitivityRow]> = found.groups().collect();
    let lines: Vec<&[&[SensitivityRow]]> = groups.chunk_by(|a, b| a[0].model == b[0].model).collect();
    let columns = lines.iter().map(|line| line.len()).max().unwrap_or(0) as u32;
    let size = (NAMES + columns * PANEL.0 + MARGIN, LEGEND + lines.len() as u32 * PANEL.1 + MARGIN);
    let provenance = vec![found.testbed.clone()];
    let figure = Figure::draw(TITLE.into(), provenance, size, style, |root| {
        let legend = [(DOWN, "x 0.5", 0), (UP, "x 1.5, or launched kernel by kernel", 70)];
        for (color, label, x) in legend {
            let (x, y) = (22 + x, 8);
            root.draw(&Rectangle::new([(x, y), (x + 12, y + 12)], color.filled()))?;
            root.draw(&Text::new(label, (x + 18, y), text(12)))?;
        }
        for (line_index, line) in lines.iter().enumerate() {
            for (index, group) in line.iter().enumerate() {
                // The first panel of a line has the parameters' names for all of them.
                let names = if index == 0 { NAMES } else { 0 };
                let left = NAMES + index as u32 * PANEL.0 - names;
                let top = LEGEND + line_index as u32 * PANEL.1;
                panel(&root.clone().shrink((left, top), (PANEL.0 + names, PANEL.1)), group, names)?;
            }
        }
        Ok(())
    })?;
    Ok(figure.with_marks(vec![marks(found, DOWN, true), marks(found, UP, false)]))
}

/// Returns the descriptions of the bars of a colour.
fn marks(found: &Sensitivity, color: RGBColor, is_down: bool) -> Marks {
    let drawn = found.rows.iter().filter_map(|row| Some((row, row.change.as_deref()?)));
    let drawn = drawn.filter(|(_, change)| (*change == "x 0.5") == is_down);
    let value = |(row, change): (&SensitivityRow, &str)| {
        let parameter = row.parameter.as_deref().unwrap_or_default();
        let SensitivityRow { title, headline, value, base, .. } = row;
        format!("{title}: {headline}: {base:.2} to {value:.2} with {parameter} {change}")
    };
    Marks { tag: "<rect", contains: hex(color), legend: 1, values: drawn.map(value).collect() }
}

fn panel(area: &Area<'_>, group: &[SensitivityRow], names: u32) -> anyhow::Result<()> {
    let values = || group.iter().map(|row| row.value).chain([1.0]);
    let (min, max) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let room = 0.16 * (max - min).max(0.05);
    let mut chart = ChartBuilder::on(area)
        .margin_top(26)
        .margin_right(14)
        .set_label_area_size(LabelAreaPosition::Left, names)
        .set_label_area_size(LabelAreaPosition::Bottom, 26)
        .build_cartesian_2d(min - room..max + room, PARAMETERS.len() as f64..0.0)?;
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
    let bottom = PARAMETERS.len() as f64;
    chart.draw_series(DashedLineSeries::new([(1.0, 0.0), (1.0, bottom)], 4, 4, INK.stroke_width(1)))?;
    chart.draw_series([PathElement::new([(base, 0.0), (base, bottom)], INK.stroke_width(1))])?;
    let title = format!("{}: {} {base:.2}", group[0].title, group[0].headline);
    let above = text(12).pos(Pos::new(HPos::Left, VPos::Bottom));
    chart.draw_series([EmptyElement::at((min - room, 0.0)) + Text::new(title, (0, -7), above)])?;
    for (place, parameter) in PARAMETERS.iter().enumerate() {
        let middle = place as f64 + 0.5;
        let of_parameter = group.iter().filter(|row| row.parameter.as_deref() == Some(parameter.label()));
        for (row, &factor) in of_parameter.zip(parameter.factors()) {
            let is_down = factor > 0.0 && factor < 1.0;
            let (color, top) = if is_down { (DOWN, middle - 0.3) } else { (UP, middle) };
            chart.draw_series([Rectangle::new([(base, top), (row.value, top + 0.28)], color.filled())])?;
        }
        if names > 0 {
            let before = text(12).pos(Pos::new(HPos::Right, VPos::Center));
            let label =
                EmptyElement::at((min - room, middle)) + Text::new(parameter.label(), (-8, 0), before);
            chart.draw_series([label])?;
        }
    }
    Ok(())
}
