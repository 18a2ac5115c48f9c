//! Charts of reports.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::mux::{MuxReport, MuxRow};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Blue and orange of M. Okabe and K. Ito, "Color Universal Design", 2008, which are
/// distinguishable with any color vision.
const FOREGROUND: RGBColor = RGBColor(0, 114, 178);
const BACKGROUND: RGBColor = RGBColor(230, 159, 0);
const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(225, 225, 225);

// Lengths in pixels.
/// Estimated width of a letter in labels and in small print.
const LABEL_LETTER: u32 = 7;
const PRINT_LETTER: u32 = 6;
const PANEL_WIDTH: u32 = 360;
/// Height of the header without small print, top of the first line of small print, and height of a
/// line.
const HEADER_HEIGHT: u32 = 50;
const PRINT_TOP: i32 = 44;
const PRINT_HEIGHT: u32 = 16;
const TITLE_HEIGHT: u32 = 30;
const BAR_HEIGHT: u32 = 26;
const AXIS_HEIGHT: u32 = 24;
const MARGIN: u32 = 20;
const LEFT: i32 = 20;

/// One panel of bars.
struct Panel {
    title: &'static str,
    color: RGBColor,
    figure: fn(&MuxRow) -> f64,
    shown: fn(f64) -> String,
    /// Minimum range of the axis.
    range: f64,
}

const PANELS: [Panel; 2] = [
    Panel {
        title: "foreground's slow-down (median)",
        color: FOREGROUND,
        figure: |row| row.foreground_slowdown,
        shown: |slowdown| format!("{slowdown:.2}"),
        range: 1.5,
    },
    Panel {
        title: "background's share of the idle time",
        color: BACKGROUND,
        figure: |row| row.background_share_of_idle,
        shown: |share| format!("{:.0}%", share * 100.0),
        range: 1.0,
    },
];

/// Draws the rows as an SVG image, with a panel for each job and a bar for each policy.
///
/// # Errors
/// If drawing fails.
pub(crate) fn svg(report: &MuxReport) -> anyhow::Result<String> {
    let longest = report.rows.iter().map(|row| row.policy.chars().count()).max().unwrap_or(0);
    let label_width = LABEL_LETTER * longest as u32 + MARGIN;
    let width = 2 * MARGIN + label_width + 2 * PANEL_WIDTH;
    let origin = if report.modelled { "modelled" } else { "measured" };
    let print = format!("{}; {}; {origin}", report.workload, report.device);
    let print = wrapped(&print, ((width - 2 * MARGIN) / PRINT_LETTER) as usize);
    let header_height = HEADER_HEIGHT + PRINT_HEIGHT * print.len() as u32;
    let height = header_height + TITLE_HEIGHT + report.rows.len() as u32 * BAR_HEIGHT + AXIS_HEIGHT + MARGIN;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let (header, body) = root.split_vertically(header_height);
        let title = text(18).style(FontStyle::Bold).color(&INK);
        header.draw(&Text::new("Foreground and background on one device", (LEFT, 16), title))?;
        let tops = (PRINT_TOP..).step_by(PRINT_HEIGHT as usize);
        for (line, top) in print.into_iter().zip(tops) {
            header.draw(&Text::new(line, (LEFT, top), text(12).color(&INK)))?;
        }
        let (_, mut rest) = body.split_horizontally(MARGIN);
        for (index, panel) in PANELS.iter().enumerate() {
            // The first panel has the labels of the bars for both panels.
            let labels = if index == 0 { label_width } else { 0 };
            let (area, right) = rest.split_horizontally(PANEL_WIDTH + labels);
            draw(&area, panel, &report.rows, labels)?;
            rest = right;
        }
        root.present()?;
    }
    Ok(svg)
}

/// Wraps a line after at most `max_letters` letters. Longer words are divided.
fn wrapped(line: &str, max_letters: usize) -> Vec<String> {
    let mut lines: Vec<Vec<char>> = Vec::new();
    for word in line.split_whitespace() {
        let word: Vec<char> = word.chars().collect();
        for part in word.chunks(max_letters.max(1)) {
            match lines.last_mut() {
                Some(last) if last.len() + 1 + part.len() <= max_letters => {
                    last.push(' ');
                    last.extend(part);
                }
                _ => lines.push(part.to_vec()),
            }
        }
    }
    lines.into_iter().map(String::from_iter).collect()
}

fn draw(area: &Area<'_>, panel: &Panel, rows: &[MuxRow], label_width: u32) -> anyhow::Result<()> {
    let longest = rows.iter().map(panel.figure).fold(panel.range, f64::max);
    // Room for the value at the end of the longest bar.
    let range = longest * 1.16;
    let mut chart = ChartBuilder::on(area)
        .margin_top(TITLE_HEIGHT)
        .margin_right(24)
        .set_label_area_size(LabelAreaPosition::Left, label_width)
        .set_label_area_size(LabelAreaPosition::Bottom, AXIS_HEIGHT)
        .build_cartesian_2d(0.0..range, rows.len() as f64..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_labels(5)
        .x_max_light_lines(0)
        .x_label_formatter(&|figure| (panel.shown)(*figure))
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(text(12).color(&INK))
        .draw()?;
    let label = |text: String, at, offset, style| EmptyElement::at(at) + Text::new(text, offset, style);
    let above = text(14).style(FontStyle::Bold).color(&INK).pos(Pos::new(HPos::Left, VPos::Bottom));
    chart.draw_series([label(panel.title.to_owned(), (0.0, 0.0), (0, -8), above)])?;
    for (index, row) in rows.iter().enumerate() {
        let (figure, middle) = ((panel.figure)(row), index as f64 + 0.5);
        let corners = [(0.0, index as f64 + 0.16), (figure, index as f64 + 0.84)];
        chart.draw_series([Rectangle::new(corners, panel.color.filled())])?;
        let after = text(12).color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
        chart.draw_series([label((panel.shown)(figure), (figure, middle), (6, 0), after)])?;
        if label_width > 0 {
            let before = text(13).color(&INK).pos(Pos::new(HPos::Right, VPos::Center));
            chart.draw_series([label(row.policy.clone(), (0.0, middle), (-8, 0), before)])?;
        }
    }
    Ok(())
}

fn text(size: u32) -> FontDesc<'static> {
    ("sans-serif", size).into_font()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_wrap_between_words_and_only_long_words_are_divided() {
        assert_eq!(wrapped("a network beside a network", 10), ["a network", "beside a", "network"]);
        assert_eq!(wrapped("/a/long/path of \u{fc}bung", 8), ["/a/long/", "path of", "\u{fc}bung"]);
        assert!(wrapped("", 8).is_empty());
    }
}
