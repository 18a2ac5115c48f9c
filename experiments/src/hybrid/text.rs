//! Results of the experiment `hybrid` as text.

use super::Hybrid;
use super::assumed::{EFFICIENCIES, SLOPES};
use super::case::Case;
use super::configuration::{HybridRow, WorkerMode};
use crate::text_table::{printed, text_table};

/// Difference below which slopes and efficiencies count as equal.
const TOLERANCE: f64 = 1e-9;

impl Hybrid {
    /// Formats the origin of the numbers, the tables and the findings.
    pub(super) fn printed(&self) -> String {
        let mut lines = vec![
            format!(
                "Workers of several GPUs against data parallelism, by the time to an accuracy ({})",
                self.header.experiment
            ),
            self.provenance().join("\n"),
            String::new(),
            "Speed-up of one worker over one GPU with the same samples (modelled, without other workers)"
                .into(),
            self.worker_table(),
        ];
        for case in &self.cases {
            let rows: Vec<&HybridRow> = self.rows.iter().filter(|row| row.model == case.model).collect();
            lines.extend([String::new(), about(case), times_table(&rows)]);
            let placed = rows.iter().filter(|row| row.mode == WorkerMode::Placed && row.gpus_per_worker == 2);
            lines.extend(placed.filter_map(|row| row.inequality.clone()).map(|line| format!("  {line}")));
        }
        lines.extend([
            String::new(),
            "Gain of workers of two GPUs over data parallelism, SU^2 / 2 x (E_2N / E_N) x (SE_N / SE_2N), \
             for assumed \
             curves E ~ batch^slope (across) and efficiencies SE_2N / SE_N (down)"
                .into(),
            self.sweep_table(),
            String::new(),
        ]);
        lines.extend(self.summary());
        lines.join("\n") + "\n"
    }

    fn worker_table(&self) -> String {
        let header = [
            "network",
            "GPUs",
            "samples",
            "one GPU",
            "each layer\non one GPU",
            "at most,\nboth passes",
            "list scheduling,\nboth passes",
            "burst plan",
            "paper, from\nmemory",
        ];
        let mut table = text_table(header, 1..);
        for worker in &self.workers {
            let case = self.cases.iter().find(|case| case.model == worker.model);
            let paper = case.and_then(|case| case.paper_speedup).filter(|_| worker.gpus == 2);
            table.add_row([
                case.map_or(worker.model.as_str(), |case| case.title).to_owned(),
                worker.gpus.to_string(),
                worker.samples.to_string(),
                format!("{:.2} ms", worker.single_gpu_us / 1e3),
                format!("{:.3}", worker.placed_speedup),
                format!("{:.3}", worker.placed_bound),
                format!("{:.3}", worker.list_speedup),
                format!("{:.3}", worker.burst_speedup),
                paper.map_or_else(|| "-".into(), |paper| format!("{paper:.2}")),
            ]);
        }
        printed(&table)
    }

    fn sweep_table(&self) -> String {
        let header = ["network".to_owned(), "SU^2".into(), "SE_2N / SE_N".into()]
            .into_iter()
            .chain(SLOPES.map(|slope| format!("slope {slope:.1}")));
        let mut table = text_table(header, 1..);
        for case in &self.cases {
            let of_case = || self.sweeps.iter().filter(|sweep| sweep.model == case.model);
            for (index, ratio) in EFFICIENCIES.into_iter().enumerate() {
                let gains = of_case().filter(|sweep| (sweep.efficiency_ratio - ratio).abs() < TOLERANCE);
                let speedup = of_case().next().map_or(0.0, |sweep| sweep.worker_speedup);
                let title = if index == 0 { case.title } else { "" };
                let first = [title.to_owned(), format!("{speedup:.3}"), format!("{ratio:.2}")];
                table.add_row(first.into_iter().chain(gains.map(|sweep| format!("{:.2}", sweep.gain))));
            }
        }
        printed(&table)
    }

    /// Returns the findings, one line each.
    pub(super) fn summary(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for case in &self.cases {
            let gains = |mode: WorkerMode| {
                let rows = self.rows.iter().filter(move |row| row.model == case.model && row.mode == mode);
                rows.filter_map(|row| Some((row.gain?, row)))
            };
            let best = |mode| gains(mode).max_by(|a, b| a.0.total_cmp(&b.0));
            for mode in WorkerMode::HYBRID {
                if let Some((gain, row)) = best(mode) {
                    lines.push(format!(
                        "* {}, {}: {gain:.2} times as soon as data parallelism at best, by workers of {} \
                         on {} GPUs.",
                        case.title,
                        mode.label(),
                        row.gpus_per_worker,
                        row.gpus
                    ));
                }
            }
            let needed = |slope: f64| {
                let sweep = self
                    .sweeps
                    .iter()
                    .find(|sweep| sweep.model == case.model && (sweep.slope - slope).abs() < TOLERANCE)?;
                sweep.efficiency_ratio_for_paper
            };
            if let (Some(paper), Some(none), Some(half), Some(full)) =
                (case.paper_gain, needed(0.0), needed(0.4), needed(1.0))
            {
                lines.push(format!(
                    "* {}: the paper's {paper:.3} needs SE_2N / SE_N of {none:.2} where epochs do not grow, \
                     {half:.2} at slope 0.4, {full:.2} at slope 1.",
                    case.title
                ));
            }
        }
        lines
    }
}

fn about(case: &Case) -> String {
    let curve = match case.curve {
        Some(curve) if case.has_substitute_curve() => format!("epochs of {curve} as a substitute"),
        Some(curve) => format!("epochs of {curve}, published"),
        None => "no public curve of epochs: throughput alone".into(),
    };
    let paper =
        case.paper_gain.map(|gain| format!("; the paper projects at least {gain:.3}")).unwrap_or_default();
    format!("{}, {} samples a worker; {curve}{paper}", case.title, case.samples)
}

fn times_table(rows: &[&HybridRow]) -> String {
    let header = [
        "GPUs",
        "way",
        "workers",
        "batch",
        "iteration",
        "samples/s",
        "epochs",
        "hours",
        "gain",
        "gain, measured SE",
    ];
    let mut table = text_table(header, 2..);
    let or_dash = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"))
    };
    for row in rows {
        table.add_row([
            row.gpus.to_string(),
            row.mode.label().to_owned(),
            format!("{} x {}", row.workers, row.gpus_per_worker),
            row.batch.to_string(),
            format!("{:.2} ms", row.iteration_us / 1e3),
            format!("{:.0}", row.samples_per_s),
            or_dash(row.epochs, 1),
            or_dash(row.hours_to_target, 3),
            or_dash(row.gain, 3),
            or_dash(row.gain_by_measured_efficiency, 3),
        ]);
    }
    printed(&table)
}
