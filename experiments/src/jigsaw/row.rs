//! Row of one run: a record of the CSV file. A run simulates a scheduling policy of the cluster on
//! one draw of jobs, its workload. A completion time (JCT) is from a job's arrival to its end. The
//! *work* of a job is the GPU time that it takes alone, with data parallelism on the number of GPUs
//! that it asks for. It does not depend on the policy.

use cluster_scheduler::Report;
use serde::{Deserialize, Serialize};

use crate::statistics::percentile;

/// Result of a policy on a draw of jobs, all of which finish.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PolicyRow {
    /// Name of the source of the jobs.
    pub(super) trace: String,
    /// Name of the policy.
    pub(super) policy: String,
    /// Number K of parts of structured partial backpropagation. `None` for policies without it.
    pub(super) parts: Option<u16>,
    /// Load: sum of the jobs' work, divided by the GPU time of the whole cluster until the last
    /// arrival. Above 1, more work arrives than the cluster can do meanwhile.
    pub(super) load: f64,
    /// Assumed cost of GPU sharing: fraction by which work takes longer on a shared GPU. 0 if the
    /// policy shares none.
    pub(super) overlap: f64,
    /// Seed of the draw of jobs.
    pub(super) seed: usize,
    /// Number of finished jobs.
    pub(super) jobs: usize,
    /// GPU time in hours for which jobs held GPUs, divided by the number of finished jobs.
    pub(super) gpu_hours_per_job: f64,
    /// Work of the finished jobs, divided by the GPU time for which all jobs held GPUs. Exceeds 1
    /// if the policy runs the jobs in less GPU time than their work, for example by sharing GPUs.
    pub(super) efficiency: f64,
    /// Mean completion time in seconds.
    pub(super) mean_jct_s: f64,
    /// 99th percentile of the completion times in seconds.
    pub(super) p99_jct_s: f64,
    /// Time at which the last job ends, in seconds from time 0.
    pub(super) makespan_s: f64,
    /// Fraction of the GPU time until the makespan for which jobs held GPUs.
    pub(super) utilization: f64,
    /// Jain's index of the finished jobs' speeds relative to running alone, from 1/n for n jobs to
    /// 1: 1 if all are slowed equally.
    pub(super) fairness: f64,
    /// Mean over the finished jobs of the finish-time fairness rho (Themis, NSDI 2020). The rho of
    /// a job is its completion time divided by the time that it would take alone on 1/n of the
    /// cluster's GPUs. n is the mean number of jobs in the cluster between the arrival and the end
    /// of the job.
    pub(super) rho_mean: f64,
    /// 99th percentile over the finished jobs of the finish-time fairness rho.
    pub(super) rho_p99: f64,
}

impl PolicyRow {
    /// Returns the row with all fields that follow from a simulation's report. The other fields are
    /// kept.
    pub(super) fn with_report(self, report: &Report) -> Self {
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

    /// Returns the policy's title: its name, with K if it has one.
    pub(super) fn title(&self) -> String {
        match self.parts {
            Some(parts) => format!("{}, K = {parts}", self.policy),
            None => self.policy.clone(),
        }
    }
}
