//! Reports as bar charts: foreground and background throughput, stacked.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Report;
use crate::canvas::{Area, Figure, Marks, axes, text};
use crate::row::ReportRow;
use crate::style::{BLUE, INK, ORANGE, Style, hex};

const FOREGROUND: RGBColor = BLUE;
const BACKGROUND: RGBColor = ORANGE;

// Lengths in pixels.
const PANEL_WIDTH: u32 = 350;
const LABEL_WIDTH: u32 = 115;
/// Width of a letter of a label: an upper estimate of the average.
const LABEL_LETTER: u32 = 7;
const LEGEND_HEIGHT: u32 = 30;
const BAR_HEIGHT: u32 = 34;
const TITLE_HEIGHT: u32 = 32;
const AXIS_HEIGHT: u32 = 44;
const BOTTOM: u32 = 10;
const MARGIN: u32 = LEFT as u32;
const LEFT: i32 = 22;

/// Draws a panel for each network or setting, with a bar for each row. Panels of networks stand
/// side by side, since they have the same bars; panels of settings stand below each other.
///
/// # Errors
/// If drawing fails.
pub(super) fn draw(report: &Report, style: Style) -> anyhow::Result<Figure> {
    let of_panels: Vec<&[ReportRow]> =
        report.rows.chunk_by(|a, b| (&a.model, &a.setting) == (&b.model, &b.setting)).collect();
    let is_stacked = report.rows.iter().any(|row| row.setting.is_some());
    let columns = if is_stacked { 1 } else { of_panels.len() as u32 };
    let longest = report.rows.iter().map(|row| row.label().len()).max().unwrap_or(0) as u32;
    let label_width = LABEL_WIDTH.max(longest * LABEL_LETTER);
    // The text after a policy's bar needs as much room as the bar.
    let panel_width = if report.rows.iter().any(|row| row.policy.is_some()) { 2 } else { 1 } * PANEL_WIDTH;
    let width = label_width + columns * panel_width + 2 * MARGIN;
    let heights =
        of_panels.iter().map(|rows| TITLE_HEIGHT + rows.len() as u32 * BAR_HEIGHT + AXIS_HEIGHT + BOTTOM);
    let body_height = if is_stacked { heights.clone().sum() } else { heights.clone().max().unwrap_or(0) };
    let size = (width, LEGEND_HEIGHT + body_height);
    let title = format!("{} (simulated)", report.title);
    let figure = Figure::draw(title, report.provenance.clone(), size, style, |root| {
        let (legend, body) = root.split_vertically(LEGEND_HEIGHT);
        draw_legend(&legend)?;
        let mut top = 0;
        for (index, (rows, height)) in of_panels.iter().zip(heights).enumerate() {
            let column = if is_stacked { 0 } else { index as u32 };
            // The first panel of a line has the labels for all of them.
            let labels = if column == 0 { label_width } else { 0 };
            let left = MARGIN + column * panel_width + label_width - labels;
            draw_panel(&body.clone().shrink((left, top), (panel_width + labels, height)), rows, labels)?;
            top += if is_stacked { height } else { 0 };
        }
        Ok(())
    })?;
    Ok(figure.with_marks(marks(&report.rows)))
}

/// Returns the descriptions of the bars.
fn marks(rows: &[ReportRow]) -> Vec<Marks> {
    let bars = |color, rate: fn(&ReportRow) -> f64, whose: &str| {
        let drawn = rows.iter().filter(|row| rate(row) > 0.0);
        let setting = |row: &ReportRow| row.setting.clone().unwrap_or_else(|| row.title.clone());
        let value = |row: &ReportRow| {
            format!("{}, {}: {whose} {:.1} samples/s", setting(row), row.label(), rate(row))
        };
        Marks { tag: "<rect", contains: hex(color), legend: 1, values: drawn.map(value).collect() }
    };
    vec![
        bars(FOREGROUND, |row| row.foreground_samples_per_s, "foreground"),
        bars(BACKGROUND, |row| row.background_samples_per_s, "background"),
    ]
}

fn draw_legend(area: &Area<'_>) -> anyhow::Result<()> {
    let entries = [(FOREGROUND, "foreground (FG)", 0), (BACKGROUND, "background (BG), all jobs", 150)];
    for (color, label, x) in entries {
        let (x, y) = (LEFT + x, 8);
        area.draw(&Rectangle::new([(x, y), (x + 14, y + 14)], color.filled()))?;
        let style = text(13).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(label, (x + 20, y + 7), style))?;
    }
    Ok(())
}

fn draw_panel(area: &Area<'_>, rows: &[ReportRow], label_width: u32) -> anyhow::Result<()> {
    let bars = rows.len() as f64;
    let longest = rows.iter().map(ReportRow::total_samples_per_s).fold(f64::MIN_POSITIVE, f64::max);
    // Leaves room for the text after the longest bar.
    let range = longest * if rows.iter().any(|row| row.policy.is_some()) { 2.4 } else { 1.16 };
    let title = rows.first().map(|row| match &row.setting {
        Some(setting) => setting.clone(),
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
    axes(&mut chart.configure_mesh())
        .disable_y_mesh()
        .disable_y_axis()
        .x_labels(5)
        .x_max_light_lines(0)
        .x_desc("throughput (samples/s)")
        .x_label_formatter(&|samples_per_s| format!("{samples_per_s:.0}"))
        .draw()?;
    let label = |words: String, at, offset, style| EmptyElement::at(at) + Text::new(words, offset, style);
    let above = bold(14).pos(Pos::new(HPos::Left, VPos::Bottom));
    chart.draw_series([label(title, (0.0, 0.0), (0, -8), above)])?;
    for (index, row) in rows.iter().enumerate() {
        let (top, bottom) = (index as f64 + 0.14, index as f64 + 0.86);
        let middle = index as f64 + 0.5;
        let (foreground, total) = (row.foreground_samples_per_s, row.total_samples_per_s());
        let parts = [(0.0, foreground, FOREGROUND, WHITE), (foreground, total, BACKGROUND, BLACK)];
        for (from, to, color, ink) in parts.into_iter().filter(|(from, to, ..)| to > from) {
            chart.draw_series([Rectangle::new([(from, top), (to, bottom)], color.filled())])?;
            // The number stands inside its bar, unless the bar is the only one of its row or too
            // small.
            if to - from < total && to - from > range * 0.13 {
                let inside = TextStyle { color: ink.to_backend_color(), ..text(12) }
                    .pos(Pos::new(HPos::Center, VPos::Center));
                let at = (f64::midpoint(from, to), middle);
                chart.draw_series([label(format!("{:.0}", to - from), at, (0, 0), inside)])?;
            }
        }
        let after = bold(12).pos(Pos::new(HPos::Left, VPos::Center));
        chart.draw_series([label(beside(row), (total, middle), (6, 0), after)])?;
        if label_width > 0 {
            let before = text(13).pos(Pos::new(HPos::Right, VPos::Center));
            chart.draw_series([label(row.label(), (0.0, middle), (-8, 0), before)])?;
        }
    }
    Ok(())
}

/// Returns the text after a bar: the total and, for a policy, the foreground's slow-down and the
/// share of idle time that the background uses.
fn beside(row: &ReportRow) -> String {
    let total = format!("{:.0}", row.total_samples_per_s());
    let slowdown = row.foreground_slowdown_median.zip(row.foreground_slowdown_p99);
    match (&row.policy, slowdown, row.background_share_of_idle) {
        (Some(_), Some((median, p99)), Some(share)) => {
            let share = share * 100.0;
            format!("{total} (FG slowdown {median:.3}, p99 {p99:.3}; BG has {share:.0}% of idle time)")
        }
        _ => total,
    }
}

fn bold(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().style(FontStyle::Bold).color(&INK)
}
