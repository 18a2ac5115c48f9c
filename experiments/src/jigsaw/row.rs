//! One run: a record of the CSV.

use cluster_scheduler::Report;
use serde::{Deserialize, Serialize};

use crate::statistics::percentile;

/// Result of a policy on a draw of jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PolicyRow {
    pub(super) trace: String,
    pub(super) policy: String,
    /// Number of SPB parts K, for JigSaw.
    pub(super) parts: Option<u16>,
    pub(super) load: f64,
    /// Fraction by which sharing slows work down.
    pub(super) overlap: f64,
    pub(super) seed: usize,
    pub(super) jobs: usize,
    pub(super) gpu_hours_per_job: f64,
    /// GPU time that the jobs need alone, divided by the GPU time that they held.
    pub(super) efficiency: f64,
    pub(super) mean_jct_s: f64,
    pub(super) p99_jct_s: f64,
    pub(super) makespan_s: f64,
    pub(super) utilization: f64,
    /// Jain's index of the jobs' speeds relative to running alone.
    pub(super) fairness: f64,
    /// Completion time divided by that on 1/n of the cluster alone: the mean and the 99th
    /// percentile.
    pub(super) rho_mean: f64,
    pub(super) rho_p99: f64,
}

impl PolicyRow {
    /// Fills in the figures of a report.
    pub(super) fn of(self, report: &Report) -> Self {
        let ratios = report.finish_time_ratios();
        Self {
            rho_mean: ratios.iter().sum::<f64>() / ratios.len() as f64,
            rho_p99: percentile(ratios.iter().copied(), 0.99).unwrap_or(f64::NAN),
            jobs: report.finished().count(),
            gpu_hours_per_job: report.gpu_hours_per_job(),
            efficiency: report.efficiency(),
            mean_jct_s: report.mean_completion(),
            p99_jct_s: report.completion_quantile(0.99),
            makespan_s: report.makespan.as_secs_f64(),
            utilization: report.utilization(),
            fairness: report.fairness(),
            ..self
        }
    }

    /// Returns the policy's name, with the number of SPB parts.
    pub(super) fn name(&self) -> String {
        match self.parts {
            Some(parts) => format!("{}, K = {parts}", self.policy),
            None => self.policy.clone(),
        }
    }
}
