//! Every policy on every trace, at every load.

use cluster_scheduler::{Cluster, Mode, Policy, Report, Sharing, SimulationOptions, simulate};
use serde::{Deserialize, Serialize};

use super::options::Question;
use super::row::Row;
use super::tables::{PARTS, Tables};
use super::traces::Source;
use crate::journal::Journal;

/// Costs of sharing that are tried instead of what is assumed.
const OVERLAPS: [f64; 5] = [0.0, 0.05, 0.1, 0.2, 0.4];

/// One run.
#[derive(Clone)]
pub(super) struct Run {
    pub(super) source: Source,
    pub(super) policy: Policy,
    pub(super) load: f64,
    pub(super) seed: usize,
}

/// What is kept of it.
#[derive(Serialize, Deserialize)]
struct Answer {
    row: Row,
    completions: Vec<f64>,
}

/// Completion times in seconds, by trace and policy.
type Completions = Vec<(String, String, Vec<f64>)>;

/// Rows of all runs, and completion times at the load whose curves are shown.
pub(super) fn rows(
    question: &Question,
    tables: &Tables,
    journal: &Journal,
) -> anyhow::Result<(Vec<Row>, Completions)> {
    let runs = runs(question);
    let shown = shown_load(&question.loads);
    let answers: Vec<Answer> = journal.answers("runs", &runs, |run| answer(question, tables, run))?;
    let mut completions: Completions = Vec::new();
    for (run, answer) in runs.iter().zip(&answers) {
        let is_shown = (run.load - shown).abs() < 1e-9 && is_as_assumed(&run.policy);
        if !is_shown {
            continue;
        }
        let (trace, policy) = (answer.row.trace.clone(), answer.row.name());
        match completions.iter_mut().find(|found| (&found.0, &found.1) == (&trace, &policy)) {
            Some((.., all)) => all.extend(&answer.completions),
            None => completions.push((trace, policy, answer.completions.clone())),
        }
    }
    for (.., all) in &mut completions {
        all.sort_by(f64::total_cmp);
    }
    Ok((answers.into_iter().map(|answer| answer.row).collect(), completions))
}

/// The load at which curves and sensitivity are shown: the largest.
pub(super) fn shown_load(loads: &[f64]) -> f64 {
    loads.iter().copied().fold(0.0, f64::max)
}

/// The policies that are compared, by how they share GPUs.
pub(super) fn policies(source: Source) -> Vec<Policy> {
    let mut all = vec![
        Policy::fifo(),
        Policy::srtf(),
        Policy::least_attained_service(),
        Policy::max_min_fairness(),
        Policy::finish_time_fairness(),
        Policy::iteration_level(),
    ];
    all.extend(PARTS.map(Policy::jigsaw));
    if source != Source::Gavel {
        // For Gavel's jobs there are no burst plans.
        let sharing = Sharing::Gaps { efficiency: 1.0, overlap: 0.01 };
        let bursts = [Policy::burst(), Policy::burst_fixed()];
        all.extend(bursts.map(|policy| Policy { sharing, ..policy }));
        all.push(Policy::partition());
    }
    all
}

fn runs(question: &Question) -> Vec<Run> {
    let mut runs = Vec::new();
    for source in Source::all(question) {
        for &load in &question.loads {
            for policy in policies(source) {
                let of_seed = |seed| Run { source, policy: policy.clone(), load, seed };
                runs.extend((0..question.seeds).map(of_seed));
            }
        }
    }
    let load = shown_load(&question.loads);
    for policy in policies(Source::Synthetic) {
        let shares = policy.sharing != Sharing::None && !matches!(parts(&policy), Some(2 | 8));
        for overlap in OVERLAPS.into_iter().filter(|_| shares) {
            let policy = policy.clone().with_overlap(overlap);
            let of_seed = |seed| Run { source: Source::Synthetic, policy: policy.clone(), load, seed };
            runs.extend((0..question.seeds).map(of_seed));
        }
    }
    runs
}

/// The parts of SPB, if the policy has jobs under it.
fn parts(policy: &Policy) -> Option<u16> {
    policy.modes.iter().find_map(|mode| match mode {
        Mode::Spb(parts) => Some(*parts),
        Mode::DataParallel | Mode::Burst(_) => None,
    })
}

/// The policy, with the parts of SPB.
pub(super) fn title(policy: &Policy) -> String {
    match parts(policy) {
        Some(parts) => format!("{}, K = {parts}", policy.name),
        None => policy.name.clone(),
    }
}

fn overlap(policy: &Policy) -> f64 {
    match policy.sharing {
        Sharing::None | Sharing::Pairs { .. } => 0.0,
        Sharing::Iterations { overlap } | Sharing::Gaps { overlap, .. } => overlap,
    }
}

/// Whether sharing costs what is assumed where nothing else is said.
fn is_as_assumed(policy: &Policy) -> bool {
    let mut assumed = policies(Source::Synthetic).into_iter();
    assumed.any(|other| other == *policy)
}

/// What becomes of the jobs.
pub(super) fn simulated(question: &Question, tables: &Tables, run: &Run) -> anyhow::Result<Report> {
    let Run { source, policy, load, seed } = run;
    let (cluster, table) =
        (Cluster::uniform(question.times.device(), question.gpus / 8, 8)?, source.table(tables));
    let arrivals = source.arrivals(question, table, *load, *seed)?;
    Ok(simulate(&cluster, table, policy, &arrivals, &SimulationOptions::default())?)
}

fn answer(question: &Question, tables: &Tables, run: &Run) -> anyhow::Result<Answer> {
    let report = simulated(question, tables, run)?;
    let Run { source, policy, load, seed } = run;
    let row = Row {
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
    Ok(Answer { row: row.of(&report), completions: report.completions() })
}
