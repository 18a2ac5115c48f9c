//! Results of the experiment `jigsaw` as text.

use super::Jigsaw;
use super::band::Band;
use super::row::PolicyRow;
use crate::text_table::{printed, text_table};

/// A column: its header, its value and the number of decimals.
type Column = (&'static str, fn(&PolicyRow) -> f64, usize);

const COLUMNS: [Column; 9] = [
    ("GPU hours\na job", |row| row.gpu_hours_per_job, 2),
    ("efficiency\n", |row| row.efficiency, 3),
    ("mean JCT\nh", |row| row.mean_jct_s / 3600.0, 2),
    ("p99 JCT\nh", |row| row.p99_jct_s / 3600.0, 1),
    ("makespan\nh", |row| row.makespan_s / 3600.0, 0),
    ("GPUs held\n%", |row| row.utilization * 100.0, 0),
    ("fairness\n", |row| row.fairness, 3),
    ("rho\nmean", |row| row.rho_mean, 2),
    ("rho\np99", |row| row.rho_p99, 1),
];

impl Jigsaw {
    /// Formats the origin of the numbers, a line for each source of jobs, load and policy, and the
    /// findings. A line has medians over the seeds, and the range of the efficiency.
    pub(super) fn printed(&self) -> String {
        let mut lines = vec![super::TITLE.to_owned(), self.provenance.join("\n"), String::new()];
        let header = ["trace\n", "load\n", "policy\n"].into_iter().chain(COLUMNS.map(|(name, ..)| name));
        let mut table = text_table(header.chain(["efficiency\nfrom, to"]), 3..);
        for trace in self.traces() {
            for load in self.loads() {
                for (index, policy) in self.policies(trace).iter().enumerate() {
                    let titles =
                        if index == 0 { (trace.to_owned(), load.to_string()) } else { Default::default() };
                    let mut cells = vec![titles.0, titles.1, policy.clone()];
                    for (_, figure, digits) in COLUMNS {
                        let band = self.band(trace, policy, load, figure);
                        cells.push(band.map_or_else(String::new, |band| format!("{:.digits$}", band.median)));
                    }
                    let band = self.band(trace, policy, load, |row| row.efficiency);
                    let range = |Band { min, max, .. }| format!("{min:.3}, {max:.3}");
                    cells.push(band.map_or_else(String::new, range));
                    table.add_row(cells);
                }
            }
        }
        lines.push(printed(&table));
        lines.push(String::new());
        lines.push(
            "Medians over the seeds. JCT: time from arrival to end. Efficiency: GPU time of the jobs alone \
             by data parallelism, divided by the GPU time that they held. Fairness: Jain's index of the \
             jobs' speeds relative to running alone. Rho: finish-time fairness (Themis, NSDI 2020), the \
             completion time divided by that on 1/n of the cluster alone, where n is the mean number of \
             jobs meanwhile; up to 1 is fair."
                .into(),
        );
        if !self.rounds.is_empty() {
            lines.extend([String::new(), "Gavel's 500 jobs on 32 V100".into(), self.rounds_table()]);
        }
        lines.push(String::new());
        lines.extend(self.summary());
        lines.join("\n") + "\n"
    }

    fn rounds_table(&self) -> String {
        let mut table = text_table(["policy", "pace", "mean JCT s", "makespan s", "Gavel's mean JCT s"], 2..);
        for row in &self.rounds {
            table.add_row([
                row.policy.clone(),
                row.pace.clone(),
                format!("{:.0}", row.mean_jct_s),
                format!("{:.0}", row.makespan_s),
                row.gavel_mean_jct_s.map_or_else(String::new, |mean| format!("{mean:.0}")),
            ]);
        }
        printed(&table)
    }
}
