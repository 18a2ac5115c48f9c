//! Small schedules by some of the policies: the job of each GPU over time.

use std::time::Duration;

use cluster_scheduler::{
    Arrival, Cluster, GpuType, Job, JobId, Mode, Policy, Segment, SimulationOptions, simulate,
};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::tables::Tables;
use crate::canvas::{Figure, axes, text};
use crate::style::{BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, Style, VERMILION};

const GPUS: usize = 8;
const PANEL: (u32, u32) = (900, 150);
const COLORS: [RGBColor; 7] = [BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, GREY];

/// Schedules eight jobs on one host of eight GPUs by each of four policies. Returns the title of
/// each schedule, and its segments: times in which a job holds the same GPUs.
///
/// # Errors
/// If a simulation fails.
pub(super) fn small(tables: &Tables) -> anyhow::Result<Vec<(String, Vec<Segment>)>> {
    let table = &tables.networks;
    let kinds: Vec<_> = table.kinds().collect();
    // Arrival in seconds, duration alone in seconds, and number of GPUs.
    let jobs = [
        (0, 300, 4),
        (0, 200, 4),
        (10, 250, 8),
        (20, 120, 1),
        (30, 150, 4),
        (40, 100, 2),
        (50, 240, 1),
        (60, 90, 2),
    ];
    let mut arrivals = Vec::new();
    for (number, (at, seconds, gpus)) in jobs.into_iter().enumerate() {
        let kind = kinds[number % kinds.len()];
        let allocation = cluster_scheduler::Allocation { gpu_type: GpuType(0), gpus, spread: false };
        let Some(execution) = table.execution(kind, allocation, Mode::DataParallel) else { continue };
        let iterations = f64::from(seconds) / execution.iteration().as_secs_f64();
        arrivals.push(Arrival {
            at: Duration::from_secs(at),
            id: JobId(number as u64),
            job: Job::new(kind, (iterations as u64).max(1), gpus),
        });
    }
    let cluster = Cluster::uniform("gpu", 1, GPUS)?;
    let options = SimulationOptions { record: true, ..SimulationOptions::default() };
    let policies = [Policy::fifo(), Policy::iteration_level(), Policy::jigsaw(4), Policy::burst()];
    let mut schedules = Vec::new();
    for policy in policies {
        let report = simulate(&cluster, table, &policy, &arrivals, &options)?;
        let end = report.makespan.as_secs_f64();
        schedules.push((format!("{}: {end:.0} s", policy.name), report.segments));
    }
    Ok(schedules)
}

/// Draws a panel for each schedule, with time across and GPUs down. A job that runs beside another
/// one has the lower half of its GPUs' lines.
///
/// # Errors
/// If drawing fails.
pub(super) fn draw(
    schedules: &[(String, Vec<Segment>)],
    provenance: &[String],
    style: Style,
) -> anyhow::Result<Figure> {
    let ends = schedules.iter().flat_map(|(_, segments)| segments).map(|segment| segment.to);
    let end = ends.max().unwrap_or(Duration::from_secs(1)).as_secs_f64();
    let size = (PANEL.0, schedules.len().max(1) as u32 * PANEL.1);
    let title = "Eight jobs on eight GPUs by policy: who runs where (simulated)".to_owned();
    Figure::draw(title, provenance.to_vec(), size, style, |root| {
        for (line, (name, segments)) in schedules.iter().enumerate() {
            let area = root.clone().shrink((0, line as u32 * PANEL.1), PANEL);
            let mut chart = ChartBuilder::on(&area)
                .margin_top(22)
                .margin_right(16)
                .set_label_area_size(LabelAreaPosition::Left, 52)
                .set_label_area_size(LabelAreaPosition::Bottom, 34)
                .build_cartesian_2d(0.0..end, 0.0..GPUS as f64)?;
            axes(&mut chart.configure_mesh()).disable_y_mesh().x_desc("s").y_desc("GPU").draw()?;
            let above = text(13).pos(Pos::new(HPos::Left, VPos::Bottom));
            let title = Text::new(name.clone(), (0, -4), above);
            chart.draw_series([EmptyElement::at((0.0, GPUS as f64)) + title])?;
            let boxes = segments.iter().flat_map(|segment| {
                let color = COLORS[segment.job.0 as usize % COLORS.len()];
                let (from, to) = (segment.from.as_secs_f64(), segment.to.as_secs_f64());
                segment.gpus.iter().map(move |gpu| {
                    let low = f64::from(gpu.0);
                    let high = low + if segment.beside.is_some() { 0.45 } else { 0.95 };
                    (segment.beside.is_some(), Rectangle::new([(from, low), (to, high)], color.filled()))
                })
            });
            // Jobs beside others are drawn over them.
            let (beside, own): (Vec<_>, Vec<_>) = boxes.partition(|(is_beside, _)| *is_beside);
            chart.draw_series(own.into_iter().chain(beside).map(|(_, rectangle)| rectangle))?;
        }
        Ok(())
    })
}
