use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::report::Report;
use crate::row::Row;
use crate::style::{BLUE, GRID, INK, ORANGE, wrapped};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(crate) const FOREGROUND: RGBColor = BLUE;
pub(crate) const BACKGROUND: RGBColor = ORANGE;
const FONT: &str = "sans-serif";

// Lengths in pixels.
const PANEL_WIDTH: u32 = 350;
const LABEL_WIDTH: u32 = 115;
/// Of a letter of a label, on average and then some.
const LABEL_LETTER: u32 = 7;
/// Of the header without its lines of small print; where the first of these is; from one to the next.
const HEADER_HEIGHT: u32 = 80;
const PRINT_TOP: i32 = 46;
const PRINT_HEIGHT: i32 = 18;
/// Of a letter of small print, on average and then some.
const PRINT_WIDTH: u32 = 6;
const BAR_HEIGHT: u32 = 34;
const TITLE_HEIGHT: u32 = 32;
const AXIS_HEIGHT: u32 = 44;
const BOTTOM: u32 = 10;
const MARGIN: u32 = LEFT as u32;
const LEFT: i32 = 22;

/// The rows as an SVG image: a panel a model, or a setting where those are compared, a bar a row, foreground and background
/// end to end. Models, which have the same bars, stand side by side, and settings one below the other.
pub(crate) fn svg(report: &Report) -> anyhow::Result<String> {
    let of_panels: Vec<&[Row]> =
        report.rows.chunk_by(|a, b| (&a.model, a.setting) == (&b.model, b.setting)).collect();
    let is_stacked = report.rows.iter().any(|row| row.setting.is_some());
    let columns = if is_stacked { 1 } else { of_panels.len() as u32 };
    let longest = report.rows.iter().map(|row| row.label().len()).max().unwrap_or(0) as u32;
    let label_width = LABEL_WIDTH.max(longest * LABEL_LETTER);
    // What stands behind a bar of a policy needs as much as the bar.
    let panel_width = if report.rows.iter().any(|row| row.policy.is_some()) { 2 } else { 1 } * PANEL_WIDTH;
    let width = label_width + columns * panel_width + 2 * MARGIN;
    let print_width = ((width - 2 * MARGIN) / PRINT_WIDTH) as usize;
    let print: Vec<String> = report.provenance.iter().flat_map(|line| wrapped(line, print_width)).collect();
    let header_height = HEADER_HEIGHT + print.len() as u32 * PRINT_HEIGHT.unsigned_abs();
    let heights =
        of_panels.iter().map(|rows| TITLE_HEIGHT + rows.len() as u32 * BAR_HEIGHT + AXIS_HEIGHT + BOTTOM);
    let body_height = if is_stacked { heights.clone().sum() } else { heights.clone().max().unwrap_or(0) };
    let height = header_height + body_height;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let (header, body) = root.split_vertically(header_height);
        draw_header(&header, report.title, &print)?;
        let mut top = 0;
        for (index, (rows, height)) in of_panels.iter().zip(heights).enumerate() {
            let column = if is_stacked { 0 } else { index as u32 };
            // The first panel of a line names the bars for all of them.
            let labels = if column == 0 { label_width } else { 0 };
            let left = MARGIN + column * panel_width + label_width - labels;
            let (_, below) = body.split_vertically(top);
            let (line, _) = below.split_vertically(height);
            let (_, from_here) = line.split_horizontally(left);
            let (panel, _) = from_here.split_horizontally(panel_width + labels);
            draw_panel(&panel, rows, labels)?;
            top += if is_stacked { height } else { 0 };
        }
        root.present()?;
    }
    Ok(svg)
}

fn draw_header(area: &Area<'_>, title: &str, print: &[String]) -> anyhow::Result<()> {
    let title = format!("{title} (simulated)");
    area.draw(&Text::new(title, (LEFT, 16), text(20).style(FontStyle::Bold).color(&INK)))?;
    let mut top = PRINT_TOP;
    for line in print {
        area.draw(&Text::new(line.clone(), (LEFT, top), text(13).color(&INK)))?;
        top += PRINT_HEIGHT;
    }
    let entries = [(FOREGROUND, "foreground (FG)", 0), (BACKGROUND, "background (BG), all jobs", 150)];
    for (color, label, x) in entries {
        let (x, y) = (LEFT + x, top + 8);
        area.draw(&Rectangle::new([(x, y), (x + 14, y + 14)], color.filled()))?;
        let style = text(13).color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(label, (x + 20, y + 7), style))?;
    }
    Ok(())
}

fn draw_panel(area: &Area<'_>, rows: &[Row], label_width: u32) -> anyhow::Result<()> {
    let bars = rows.len() as f64;
    let longest = rows.iter().map(Row::total_samples_per_s).fold(f64::MIN_POSITIVE, f64::max);
    // Room for the figure at the end of the longest bar.
    let range = longest * if rows.iter().any(|row| row.policy.is_some()) { 2.4 } else { 1.16 };
    let title = rows.first().map(|row| match row.setting {
        Some(setting) => setting.into(),
        None => format!("{}, batch {}", row.title, row.batch),
    });
    let title = title.unwrap_or_default();
    let mut chart = ChartBuilder::on(area)
        .margin_top(TITLE_HEIGHT)
        .margin_right(28)
        .margin_bottom(BOTTOM)
        .set_label_area_size(LabelAreaPosition::Left, label_width)
        .set_label_area_size(LabelAreaPosition::Bottom, AXIS_HEIGHT)
        .build_cartesian_2d(0.0..range, bars..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_labels(5)
        .x_max_light_lines(0)
        .x_desc("throughput (samples/s)")
        .x_label_formatter(&|samples_per_s| format!("{samples_per_s:.0}"))
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(text(12).color(&INK))
        .axis_desc_style(text(13).color(&INK))
        .draw()?;
    let label = |text: String, at, offset, style| EmptyElement::at(at) + Text::new(text, offset, style);
    let above = self::text(14).style(FontStyle::Bold).color(&INK).pos(Pos::new(HPos::Left, VPos::Bottom));
    chart.draw_series([label(title, (0.0, 0.0), (0, -8), above)])?;
    for (index, row) in rows.iter().enumerate() {
        let (top, bottom) = (index as f64 + 0.14, index as f64 + 0.86);
        let middle = index as f64 + 0.5;
        let (foreground, total) = (row.foreground_samples_per_s, row.total_samples_per_s());
        let parts = [(0.0, foreground, FOREGROUND, WHITE), (foreground, total, BACKGROUND, BLACK)];
        for (from, to, color, ink) in parts.into_iter().filter(|(from, to, ..)| to > from) {
            chart.draw_series([Rectangle::new([(from, top), (to, bottom)], color.filled())])?;
            // What part of the bar it is, unless it is all of it or too small to hold the figure.
            if to - from < total && to - from > range * 0.13 {
                let inside = self::text(12).color(&ink).pos(Pos::new(HPos::Center, VPos::Center));
                let at = (f64::midpoint(from, to), middle);
                chart.draw_series([label(format!("{:.0}", to - from), at, (0, 0), inside)])?;
            }
        }
        let after = self::text(12).style(FontStyle::Bold).color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
        chart.draw_series([label(beside(row), (total, middle), (6, 0), after)])?;
        if label_width > 0 {
            let before = self::text(13).color(&INK).pos(Pos::new(HPos::Right, VPos::Center));
            chart.draw_series([label(row.label(), (0.0, middle), (-8, 0), before)])?;
        }
    }
    Ok(())
}

/// What stands at the end of a bar: the total, and for a policy what it does to the foreground and its idle time.
fn beside(row: &Row) -> String {
    let total = format!("{:.0}", row.total_samples_per_s());
    let slowdown = row.foreground_slowdown_median.zip(row.foreground_slowdown_p99);
    match (row.policy, slowdown, row.background_share_of_idle) {
        (Some(_), Some((median, p99)), Some(share)) => {
            let share = share * 100.0;
            format!("{total} (FG slowdown {median:.3}, p99 {p99:.3}; BG has {share:.0}% of idle time)")
        }
        _ => total,
    }
}

fn text(size: u32) -> FontDesc<'static> {
    (FONT, size).into_font()
}
