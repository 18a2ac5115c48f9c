//! Runs of every scheduling policy on every source of jobs at every load, and with other costs of
//! GPU sharing. The *load* is the GPU time that the jobs need alone with data parallelism, divided
//! by the GPU time of the cluster until the last arrival.

use cluster_scheduler::{Cluster, Mode, Policy, Report, Sharing, SimulationOptions, simulate};
use serde::{Deserialize, Serialize};

use super::input::JigsawInput;
use super::row::PolicyRow;
use super::tables::{PARTS, Tables};
use super::traces::JobSource;
use crate::journal::Journal;

/// Costs of GPU sharing that replace the assumed one: fractions by which work takes longer.
const OVERLAPS: [f64; 5] = [0.0, 0.05, 0.1, 0.2, 0.4];

/// One run: a policy on a draw of jobs.
#[derive(Clone)]
pub(super) struct PolicyRun {
    /// Source of the jobs.
    pub(super) source: JobSource,
    /// The policy.
    pub(super) policy: Policy,
    /// Load of the cluster.
    pub(super) load: f64,
    /// Seed of the draw of jobs.
    pub(super) seed: usize,
}

/// Stored result of a run.
#[derive(Serialize, Deserialize)]
struct RunResult {
    row: PolicyRow,
    completions: Vec<f64>,
}

/// Completion times in seconds, by trace and policy.
type Completions = Vec<(String, String, Vec<f64>)>;

/// Simulates all runs. Returns their rows, and the jobs' completion times (from arrival to end) at
/// the largest load with the assumed costs of GPU sharing.
///
/// # Errors
/// If a simulation fails.
pub(super) fn rows(
    input: &JigsawInput,
    tables: &Tables,
    journal: &Journal,
) -> anyhow::Result<(Vec<PolicyRow>, Completions)> {
    let runs = runs(input);
    let shown = max_load(&input.loads);
    let results: Vec<RunResult> = journal.results("runs", &runs, |run| run_result(input, tables, run))?;
    let mut completions: Completions = Vec::new();
    for (run, result) in runs.iter().zip(&results) {
        let is_shown = (run.load - shown).abs() < 1e-9 && is_as_assumed(&run.policy);
        if !is_shown {
            continue;
        }
        let (trace, policy) = (result.row.trace.clone(), result.row.title());
        match completions.iter_mut().find(|found| (&found.0, &found.1) == (&trace, &policy)) {
            Some((.., all)) => all.extend(&result.completions),
            None => completions.push((trace, policy, result.completions.clone())),
        }
    }
    for (.., all) in &mut completions {
        all.sort_by(f64::total_cmp);
    }
    Ok((results.into_iter().map(|result| result.row).collect(), completions))
}

/// Returns the largest load, which the curves of completion times and the sensitivity analysis use.
pub(super) fn max_load(loads: &[f64]) -> f64 {
    loads.iter().copied().fold(0.0, f64::max)
}

/// Returns the policies for the jobs of a source, with the assumed costs of GPU sharing.
pub(super) fn policies(source: JobSource) -> Vec<Policy> {
    let mut all = vec![
        Policy::fifo(),
        Policy::srtf(),
        Policy::least_attained_service(),
        Policy::max_min_fairness(),
        Policy::finish_time_fairness(),
        Policy::iteration_level(),
    ];
    all.extend(PARTS.map(Policy::jigsaw));
    if source != JobSource::Gavel {
        // There are no burst plans of Gavel's jobs.
        let sharing = Sharing::IdlePeriods { efficiency: 1.0, overlap: 0.01 };
        let bursts = [Policy::burst(), Policy::burst_fixed()];
        all.extend(bursts.map(|policy| Policy { sharing, ..policy }));
        all.push(Policy::partition());
    }
    all
}

fn runs(input: &JigsawInput) -> Vec<PolicyRun> {
    let mut runs = Vec::new();
    for source in JobSource::available(input) {
        for &load in &input.loads {
            for policy in policies(source) {
                let of_seed = |seed| PolicyRun { source, policy: policy.clone(), load, seed };
                runs.extend((0..input.seeds).map(of_seed));
            }
        }
    }
    let load = max_load(&input.loads);
    for policy in policies(JobSource::Synthetic) {
        let shares = policy.sharing != Sharing::None && !matches!(parts(&policy), Some(2 | 8));
        for overlap in OVERLAPS.into_iter().filter(|_| shares) {
            let policy = policy.clone().with_overlap(overlap);
            let of_seed =
                |seed| PolicyRun { source: JobSource::Synthetic, policy: policy.clone(), load, seed };
            runs.extend((0..input.seeds).map(of_seed));
        }
    }
    runs
}

/// Returns the number of SPB parts of a policy, if it uses SPB.
fn parts(policy: &Policy) -> Option<u16> {
    policy.modes.iter().find_map(|mode| match mode {
        Mode::Spb(parts) => Some(*parts),
        Mode::DataParallel | Mode::Burst(_) => None,
    })
}

/// Returns the policy's title: its name, with the number K of SPB parts if it has one.
pub(super) fn title(policy: &Policy) -> String {
    match parts(policy) {
        Some(parts) => format!("{}, K = {parts}", policy.name),
        None => policy.name.clone(),
    }
}

fn overlap(policy: &Policy) -> f64 {
    match policy.sharing {
        Sharing::None | Sharing::Pairs { .. } => 0.0,
        Sharing::Iterations { overlap } | Sharing::IdlePeriods { overlap, .. } => overlap,
    }
}

/// Returns whether the policy's cost of sharing is the assumed one.
fn is_as_assumed(policy: &Policy) -> bool {
    let mut assumed = policies(JobSource::Synthetic).into_iter();
    assumed.any(|other| other == *policy)
}

/// Simulates a run, and returns the scheduler's report.
///
/// # Errors
/// If the jobs cannot be drawn, or if the simulation fails.
pub(super) fn simulated(input: &JigsawInput, tables: &Tables, run: &PolicyRun) -> anyhow::Result<Report> {
    let PolicyRun { source, policy, load, seed } = run;
    let (cluster, table) = (Cluster::uniform(input.times.device(), input.gpus / 8, 8)?, source.table(tables));
    let arrivals = source.arrivals(input, table, *load, *seed)?;
    Ok(simulate(&cluster, table, policy, &arrivals, &SimulationOptions::default())?)
}

fn run_result(input: &JigsawInput, tables: &Tables, run: &PolicyRun) -> anyhow::Result<RunResult> {
    let report = simulated(input, tables, run)?;
    let PolicyRun { source, policy, load, seed } = run;
    let row = PolicyRow {
        trace: source.name().into(),
        policy: policy.name.clone(),
        parts: parts(policy),
        load: *load,
        overlap: overlap(policy),
        seed: *seed,
        jobs: 0,
        gpu_hours_per_job: 0.0,
        efficiency: 0.0,
        mean_jct_s: 0.0,
        p99_jct_s: 0.0,
        makespan_s: 0.0,
        utilization: 0.0,
        fairness: 0.0,
        rho_mean: 0.0,
        rho_p99: 0.0,
    };
    Ok(RunResult { row: row.with_report(&report), completions: report.completions() })
}
