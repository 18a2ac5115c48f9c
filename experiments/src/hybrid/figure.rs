//! Figures of the gains. The gain is the time to the target accuracy of data parallelism, divided
//! by that of hybrid workers on the same number of GPUs.

use std::ops::Range;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Hybrid;
use super::assumed::{AssumedGain, EFFICIENCIES};
use super::case::Case;
use super::configuration::{HybridRow, WorkerMode};
use crate::canvas::{Area, Figure, Marks, axes, dot_entry, text, titled_chart};
use crate::style::{BLUE, GREEN, INK, ORANGE, PURPLE, SKY, Style, VERMILION, hex};

const PANEL: (u32, u32) = (450, 300);
const LEGEND_LINE: u32 = 20;

/// A line of the first figure.
struct GainLine {
    label: &'static str,
    color: RGBColor,
    gpus_per_worker: usize,
    mode: WorkerMode,
    value: fn(&HybridRow) -> Option<f64>,
}

const LINES: [GainLine; 5] = [
    line("2 GPUs a worker, each layer on one of them", BLUE, 2, WorkerMode::Placed, |row| row.gain),
    line("4 GPUs a worker, each layer on one of them", SKY, 4, WorkerMode::Placed, |row| row.gain),
    line("2 GPUs a worker, burst plans", VERMILION, 2, WorkerMode::Burst, |row| row.gain),
    line("4 GPUs a worker, burst plans", ORANGE, 4, WorkerMode::Burst, |row| row.gain),
    line(
        "2 GPUs a worker, each layer on one, with efficiencies measured on V100s",
        GREEN,
        2,
        WorkerMode::Placed,
        |row| row.gain_by_measured_efficiency,
    ),
];

const fn line(
    label: &'static str,
    color: RGBColor,
    gpus_per_worker: usize,
    mode: WorkerMode,
    value: fn(&HybridRow) -> Option<f64>,
) -> GainLine {
    GainLine { label, color, gpus_per_worker, mode, value }
}

impl GainLine {
    fn points<'a>(&self, rows: impl Iterator<Item = &'a HybridRow>) -> Vec<(f64, f64)> {
        let of_line = rows.filter(|row| row.mode == self.mode && row.gpus_per_worker == self.gpus_per_worker);
        of_line.filter_map(|row| Some((row.gpus as f64, (self.value)(row)?))).collect()
    }
}

/// Draws the gains by number of GPUs, with a line for each mode and a panel for each network that
/// has a curve of epochs.
///
/// # Errors
/// If drawing fails.
pub(super) fn by_gpus(found: &Hybrid, style: Style) -> anyhow::Result<Figure> {
    let cases: Vec<&Case> = found.cases.iter().filter(|case| case.curve.is_some()).collect();
    let of_case = |case: &Case| {
        let model = case.model;
        found.rows.iter().filter(move |row| row.model == model)
    };
    let values = || cases.iter().flat_map(|case| LINES.iter().flat_map(|line| line.points(of_case(case))));
    let papers = cases.iter().filter_map(|case| case.paper_gain);
    let all = values().map(|(_, gain)| gain).chain(papers);
    let range = range_of(all);
    let max_gpus = values().map(|(gpus, _)| gpus).fold(8.0, f64::max);
    let min_gpus = values().map(|(gpus, _)| gpus).fold(max_gpus / 2.0, f64::min);
    let legend_height = LEGEND_LINE * (LINES.len() as u32 + 1) + 6;
    let size = (PANEL.0 * cases.len().max(1) as u32, legend_height + PANEL.1);
    let title = "Time to accuracy: workers of several GPUs over data parallelism (modelled)".to_owned();
    let figure = Figure::draw(title, found.provenance(), size, style, |root| {
        let (legend, body) = root.split_vertically(legend_height);
        legend_of(&legend, LINES.iter().map(|line| (line.color, line.label.to_owned())))?;
        for (index, case) in cases.iter().enumerate() {
            let area = body.clone().shrink((index as u32 * PANEL.0, 0), PANEL);
            let lines = LINES.iter().map(|line| (line.color, line.points(of_case(case))));
            let panel = Panel {
                title: case.title,
                x: min_gpus..max_gpus,
                y: range.clone(),
                about: ("GPUs", "times as soon"),
                is_log: true,
            };
            panel.draw(&area, lines.collect(), case.paper_gain)?;
        }
        Ok(())
    })?;
    let marks = LINES.iter().map(|line| Marks {
        tag: "<circle",
        contains: hex(line.color),
        legend: 1,
        values: cases
            .iter()
            .flat_map(|case| {
                let points = line.points(of_case(case)).into_iter();
                points
                    .map(|(gpus, gain)| format!("{}, {gpus:.0} GPUs: {gain:.3} ({})", case.title, line.label))
            })
            .collect(),
    });
    Ok(figure.with_marks(marks.collect()).with_suffix("gpus"))
}

const EFFICIENCY_COLORS: [RGBColor; EFFICIENCIES.len()] = [BLUE, GREEN, ORANGE, PURPLE];

/// Draws the gains of workers of two GPUs for assumed curves of epochs by slope, with a line for
/// each relative efficiency and a panel for each network.
///
/// # Errors
/// If drawing fails.
pub(super) fn by_slope(found: &Hybrid, style: Style) -> anyhow::Result<Figure> {
    let points = |case: &Case, ratio: f64| -> Vec<(f64, f64)> {
        let is_of =
            |sweep: &&AssumedGain| sweep.model == case.model && (sweep.efficiency_ratio - ratio).abs() < 1e-9;
        found.sweeps.iter().filter(is_of).map(|sweep| (sweep.slope, sweep.gain)).collect()
    };
    let papers = found.cases.iter().filter_map(|case| case.paper_gain);
    let range = range_of(found.sweeps.iter().map(|sweep| sweep.gain).chain(papers));
    let legend_height = LEGEND_LINE * (EFFICIENCIES.len() as u32 + 1) + 6;
    let size = (2 * PANEL.0, legend_height + PANEL.1 * found.cases.len().div_ceil(2) as u32);
    let label = |ratio: f64| format!("twice as many workers have {ratio:.2} of the scaling efficiency");
    let title = "Workers of two GPUs over data parallelism, for assumed curves of epochs".to_owned();
    let figure = Figure::draw(title, found.provenance(), size, style, |root| {
        let (legend, body) = root.split_vertically(legend_height);
        legend_of(&legend, EFFICIENCY_COLORS.into_iter().zip(EFFICIENCIES.map(label)))?;
        for (index, case) in found.cases.iter().enumerate() {
            let corner = (index as u32 % 2 * PANEL.0, index as u32 / 2 * PANEL.1);
            let area = body.clone().shrink(corner, PANEL);
            let lines = EFFICIENCY_COLORS.into_iter().zip(EFFICIENCIES.map(|ratio| points(case, ratio)));
            let about = ("slope: epochs grow as the batch to this power", "times as soon");
            let panel = Panel { title: case.title, x: 0.0..1.0, y: range.clone(), about, is_log: false };
            panel.draw(&area, lines.collect(), case.paper_gain)?;
        }
        Ok(())
    })?;
    let marks = EFFICIENCY_COLORS.into_iter().zip(EFFICIENCIES).map(|(color, ratio)| Marks {
        tag: "<circle",
        contains: hex(color),
        legend: 1,
        values: found
            .cases
            .iter()
            .flat_map(|case| {
                let points = points(case, ratio).into_iter();
                points.map(|(slope, gain)| {
                    format!("{}, slope {slope:.1}: {gain:.2}; {}", case.title, label(ratio))
                })
            })
            .collect(),
    });
    Ok(figure.with_marks(marks.collect()).with_suffix("slope"))
}

fn range_of(values: impl Iterator<Item = f64> + Clone) -> Range<f64> {
    values.clone().fold(0.9, f64::min) * 0.95..values.fold(1.1, f64::max) * 1.05
}

fn legend_of(area: &Area<'_>, entries: impl Iterator<Item = (RGBColor, String)>) -> anyhow::Result<()> {
    let mut top = 4;
    for (color, label) in entries {
        dot_entry(&area.clone().shrink((22, top), (2 * PANEL.0, LEGEND_LINE)), color, &label)?;
        top += LEGEND_LINE;
    }
    let line = "dashed: as soon as data parallelism; dotted: what the paper projects at least";
    area.clone().shrink((28, top), (2 * PANEL.0, LEGEND_LINE)).draw(&Text::new(line, (0, 1), text(13)))?;
    Ok(())
}

/// A chart of lines.
struct Panel<'a> {
    title: &'a str,
    x: Range<f64>,
    y: Range<f64>,
    about: (&'a str, &'a str),
    is_log: bool,
}

impl Panel<'_> {
    fn draw(
        &self,
        area: &Area<'_>,
        lines: Vec<(RGBColor, Vec<(f64, f64)>)>,
        paper: Option<f64>,
    ) -> anyhow::Result<()> {
        // A logarithmic axis has doublings at equal distances.
        let place = |x: f64| if self.is_log { x.log2() } else { x };
        let (from, to) = (place(self.x.start), place(self.x.end));
        let mut chart = titled_chart(area).build_cartesian_2d(from..to, self.y.clone())?;
        let is_log = self.is_log;
        axes(&mut chart.configure_mesh())
            .x_desc(self.about.0)
            .y_desc(self.about.1)
            .x_label_formatter(&|x| if is_log { format!("{:.0}", x.exp2()) } else { format!("{x:.1}") })
            .y_label_formatter(&|ratio| format!("{ratio:.1}"))
            .draw()?;
        chart.draw_series(DashedLineSeries::new([(from, 1.0), (to, 1.0)], 6, 4, INK.stroke_width(1)))?;
        if let Some(paper) = paper {
            chart.draw_series(DashedLineSeries::new(
                [(from, paper), (to, paper)],
                2,
                3,
                INK.stroke_width(1),
            ))?;
        }
        let above = text(13).pos(Pos::new(HPos::Left, VPos::Bottom));
        let title = Text::new(self.title.to_owned(), (0, -8), above);
        chart.draw_series([EmptyElement::at((from, self.y.end)) + title])?;
        for (color, points) in lines {
            let points: Vec<(f64, f64)> = points.into_iter().map(|(x, y)| (place(x), y)).collect();
            chart.draw_series([PathElement::new(points.clone(), color.stroke_width(1))])?;
            chart.draw_series(points.into_iter().map(|point| Circle::new(point, 4, color.filled())))?;
        }
        Ok(())
    }
}
