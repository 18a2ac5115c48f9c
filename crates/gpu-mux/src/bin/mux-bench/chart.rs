//! Results as an image.

use gpu_mux::{MuxReport, MuxRow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Blue and orange of M. Okabe and K. Ito, "Color Universal Design", 2008: told apart with any colour vision.
const FOREGROUND: RGBColor = RGBColor(0, 114, 178);
const BACKGROUND: RGBColor = RGBColor(230, 159, 0);
const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(225, 225, 225);

// Lengths in pixels.
const LABEL_WIDTH: u32 = 170;
const PANEL_WIDTH: u32 = 360;
const HEADER_HEIGHT: u32 = 66;
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
    /// What the axis shows at least.
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

/// The rows as an SVG image: a panel for each job, a bar a policy.
pub(crate) fn svg(report: &MuxReport) -> anyhow::Result<String> {
    let width = 2 * MARGIN + LABEL_WIDTH + 2 * PANEL_WIDTH;
    let height = HEADER_HEIGHT + TITLE_HEIGHT + report.rows.len() as u32 * BAR_HEIGHT + AXIS_HEIGHT + MARGIN;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let (header, body) = root.split_vertically(HEADER_HEIGHT);
        let title = text(18).style(FontStyle::Bold).color(&INK);
        header.draw(&Text::new("Foreground and background on one device", (LEFT, 16), title))?;
        let origin = if report.modelled { "modelled" } else { "measured" };
        let print = format!("{}; {}; {origin}", report.workload, report.device);
        header.draw(&Text::new(print, (LEFT, 44), text(12).color(&INK)))?;
        let (_, mut rest) = body.split_horizontally(MARGIN);
        for (index, panel) in PANELS.iter().enumerate() {
            // The first panel names the bars for both.
            let labels = if index == 0 { LABEL_WIDTH } else { 0 };
            let (area, right) = rest.split_horizontally(PANEL_WIDTH + labels);
            draw(&area, panel, &report.rows, labels)?;
            rest = right;
        }
        root.present()?;
    }
    Ok(svg)
}

fn draw(area: &Area<'_>, panel: &Panel, rows: &[MuxRow], label_width: u32) -> anyhow::Result<()> {
    let longest = rows.iter().map(panel.figure).fold(panel.range, f64::max);
    // Room for the figure at the end of the longest bar.
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
