//! Figure of throughput relative to data parallelism by amplification limit.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::canvas::{Area, Figure, Marks, axes, dot_entry, text};
use crate::report::Report;
use crate::row::{Mode, ReportRow};
use crate::style::{BLUE, GREEN, INK, Style, VERMILION, hex};

const PANEL: (u32, u32) = (350, 330);
const LEGEND: u32 = 46;
const LEFT: u32 = 16;

/// A line of the figure: a throughput of the rows of a mode.
struct LimitsLine {
    label: &'static str,
    color: RGBColor,
    mode: Mode,
    rate: fn(&ReportRow) -> f64,
}

const LINES: [LimitsLine; 3] = [
    LimitsLine {
        label: "BP+Col, FG + BG",
        color: VERMILION,
        mode: Mode::BurstCollocated,
        rate: ReportRow::total_samples_per_s,
    },
    LimitsLine { label: "BP, FG", color: BLUE, mode: Mode::Burst, rate: |row| row.foreground_samples_per_s },
    LimitsLine {
        label: "BP+Col, FG",
        color: GREEN,
        mode: Mode::BurstCollocated,
        rate: |row| row.foreground_samples_per_s,
    },
];

/// Draws a panel for each network, with a line for each throughput by amplification limit, and
/// dashed lines for data parallelism and background jobs alone.
///
/// # Errors
/// If drawing fails.
pub(super) fn draw(report: &Report, style: Style) -> anyhow::Result<Figure> {
    let networks: Vec<&[ReportRow]> = report.rows.chunk_by(|a, b| a.model == b.model).collect();
    let size = (2 * LEFT + networks.len().max(2) as u32 * PANEL.0, LEGEND + PANEL.1);
    let title = format!("{} (simulated)", report.title);
    let figure = Figure::draw(title, report.provenance.clone(), size, style, |root| {
        let (legend, body) = root.split_vertically(LEGEND);
        for (index, line) in LINES.iter().enumerate() {
            let area = legend.clone().shrink((22 + 170 * index as u32, 6), (170, 18));
            dot_entry(&area, line.color, line.label)?;
        }
        let note = "dashed: DP at its amplification, and what background jobs alone would give (the \
                    ceiling of FG + BG)";
        legend.draw(&Text::new(note, (22, 26), text(12)))?;
        for (index, rows) in networks.iter().enumerate() {
            let area = body.clone().shrink((LEFT + index as u32 * PANEL.0, 0), PANEL);
            panel(&area, rows)?;
        }
        Ok(())
    })?;
    let marks = LINES.iter().map(|line| {
        let values = networks.iter().flat_map(|rows| {
            points(line, rows).into_iter().map(|(limit, over)| {
                format!("{}, {} at limit {limit}: {over:.2} of DP's", rows[0].title, line.label)
            })
        });
        Marks { tag: "<circle", contains: hex(line.color), legend: 1, values: values.collect() }
    });
    Ok(figure.with_marks(marks.collect()))
}

/// Returns the points of a line: the limit and the throughput relative to data parallelism.
fn points(line: &LimitsLine, rows: &[ReportRow]) -> Vec<(f64, f64)> {
    let Some(dp) = rows.iter().find(|row| row.mode == Mode::DataParallel) else { return Vec::new() };
    let of_line = rows.iter().filter(|row| row.mode == line.mode);
    let point =
        |row: &ReportRow| Some((row.amplification_limit?, (line.rate)(row) / dp.foreground_samples_per_s));
    of_line.filter_map(point).collect()
}

fn panel(area: &Area<'_>, rows: &[ReportRow]) -> anyhow::Result<()> {
    let find = |mode: Mode| rows.iter().find(|row| row.mode == mode);
    let ceiling = find(Mode::Background)
        .zip(find(Mode::DataParallel))
        .map(|(background, dp)| background.background_samples_per_s / dp.foreground_samples_per_s);
    let lines = LINES.map(|line| (line.color, points(&line, rows)));
    let values = lines.iter().flat_map(|(_, points)| points);
    let (max_limit, max) =
        values.fold((1.1, 1.0), |(limit, max), point| (f64::max(limit, point.0), f64::max(max, point.1)));
    let top = f64::max(max, ceiling.unwrap_or(1.0)) * 1.06;
    let mut chart = ChartBuilder::on(area)
        .margin_top(26)
        .margin_right(16)
        .margin_bottom(6)
        .set_label_area_size(LabelAreaPosition::Left, 48)
        .set_label_area_size(LabelAreaPosition::Bottom, 44)
        .build_cartesian_2d(1.0..max_limit, 0.0..top)?;
    axes(&mut chart.configure_mesh())
        .x_desc("limit on amplification")
        .y_desc("samples/s over DP's")
        .x_label_formatter(&|limit| format!("{limit:.1}"))
        .y_label_formatter(&|over| format!("{over:.1}"))
        .draw()?;
    let mut dash = |from: (f64, f64), to: (f64, f64)| -> anyhow::Result<()> {
        chart.draw_series(DashedLineSeries::new([from, to], 4, 4, INK.stroke_width(1)))?;
        Ok(())
    };
    dash((1.0, 1.0), (max_limit, 1.0))?;
    if let Some(ceiling) = ceiling {
        dash((1.0, ceiling), (max_limit, ceiling))?;
    }
    if let Some(amplification) = find(Mode::DataParallel).and_then(|dp| dp.amplification) {
        let at = amplification.clamp(1.0, max_limit);
        dash((at, 0.0), (at, top))?;
    }
    let above = text(14).pos(Pos::new(HPos::Left, VPos::Bottom));
    let title = rows.first().map_or_else(String::new, |row| format!("{}, batch {}", row.title, row.batch));
    chart.draw_series([EmptyElement::at((1.0, top)) + Text::new(title, (0, -6), above)])?;
    for (color, points) in lines {
        chart.draw_series([PathElement::new(points.clone(), color.stroke_width(1))])?;
        chart.draw_series(points.into_iter().map(|point| Circle::new(point, 4, color.filled())))?;
    }
    Ok(())
}
