//! Measurement on threads of this machine, one for each rank.

mod background;
mod foreground;
mod matrices;

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use gpu_mux::{BackgroundJob, CpuDriver, Policy, Usage};
use indicatif::ProgressBar;

use self::background::Background;
use self::foreground::{OtherRankFailed, Rank, Shared};
use crate::command::bad_input;
use crate::mux::MuxReport;
use crate::mux::row::{Alone, Collocated, row, times};
use crate::mux::task::BenchTask;
use crate::progress;
use crate::report_file::micros;

/// Number of iterations before the next policy's turn, so that disturbances of the machine affect
/// all policies.
const BLOCK: usize = 5;

/// Number of iterations in which a policy learns the foreground's program.
const WARM_UP: usize = 10;

/// Duration for which the background runs alone between two rounds over the policies.
const BACKGROUND_ALONE: Duration = Duration::from_millis(10);

/// Goals of the default policy: maximum slowdown of an iteration, and minimum share of the idle
/// time for the background.
const MAX_SLOWDOWN: f64 = 1.1;
const MIN_SHARE: f64 = 0.5;

/// Ratio of an iteration alone to its undisturbed time above which other programs have disturbed
/// the measurement.
const DISTURBED: f64 = 1.2;

/// Maximum number of ranks a core. With more, only the system's scheduler would be measured.
const MAX_RANKS_PER_CORE: usize = 4;

/// Measures the policies on `ranks` threads, each a rank of the same built-in jobs.
///
/// # Errors
/// Bad input, if there are too many ranks for the cores; otherwise if a rank fails.
pub(crate) fn measure(ranks: NonZeroUsize, task: &BenchTask<'_>) -> anyhow::Result<MuxReport> {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let max_ranks = cores.saturating_mul(MAX_RANKS_PER_CORE);
    if ranks.get() > max_ranks {
        return Err(bad_input(format!(
            "--ranks {ranks}: at most {max_ranks} fit on this machine's {cores} cores"
        )));
    }
    let records = records(ranks.get(), task)?;
    let background_samples_per_s = records.iter().map(|record| record.background_alone).sum();
    let rows = task.policies.iter().enumerate().map(|(index, (name, _))| {
        let both: Vec<&PolicyRecord> = records.iter().map(|record| &record.policies[index]).collect();
        let first = both.first().context("no rank was measured")?;
        // Both percentiles are over the same number of iterations at the same time.
        let alone = Alone { foreground: times(&first.alone)?, drift: None, background_samples_per_s };
        Ok(row(name, false, &alone, &collocated(&both, task.iterations)?))
    });
    let rows = rows.collect::<anyhow::Result<Vec<_>>>()?;
    let workload = format!("{}, beside {}", foreground::NAME, background::NAME);
    Ok(MuxReport::new(format!("CPU: {ranks} ranks on {cores} cores"), false, workload, rows))
}

/// Runs all ranks and returns their records. If one fails, all of them end.
fn records(ranks: usize, task: &BenchTask<'_>) -> anyhow::Result<Vec<RankRecord>> {
    let unit = matrices::unit();
    let shared = Shared::new(ranks);
    let progress = progress::bar(task.iterations);
    let ends: Vec<anyhow::Result<RankRecord>> = thread::scope(|scope| {
        let (shared, progress) = (&shared, &progress);
        let rank = |rank| {
            let named = thread::Builder::new().name(format!("rank {rank}"));
            named.spawn_scoped(scope, move || {
                let end = catch_unwind(AssertUnwindSafe(|| run(shared, rank, unit, task, progress)));
                let end = end.unwrap_or_else(|_| Err(anyhow!("rank {rank} panicked")));
                end.inspect_err(|_| shared.fail())
            })
        };
        let threads: Vec<_> = (0..ranks).map(rank).collect();
        if threads.iter().any(Result::is_err) {
            shared.fail();
        }
        let joined = threads.into_iter().map(|thread| {
            let thread = thread.context("a thread for a rank cannot be started")?;
            thread.join().map_err(|_| anyhow!("a rank panicked"))?
        });
        joined.collect()
    });
    progress.finish_and_clear();
    // The cause is reported before its consequences.
    let (consequences, ends): (Vec<_>, Vec<_>) =
        ends.into_iter().partition(|end| end.as_ref().is_err_and(anyhow::Error::is::<OtherRankFailed>));
    ends.into_iter().chain(consequences).collect()
}

/// Note on the techniques of policies that have no effect on threads.
pub(crate) const NOTE: &str = "
a thread has neither streams nor graphs, and runs one tasklet at a time: stream priority, captured graphs,
pieces in flight, launches ahead and `not beside compute` have no effect here";

/// Returns a line that says whether the default policy reaches its goals for slowdown and idle
/// time. `None` if it was not measured.
pub(crate) fn verdict(report: &MuxReport) -> Option<String> {
    let row = report.rows.iter().find(|row| row.policy == "default")?;
    let kept = |kept: bool| if kept { "kept" } else { "NOT kept" };
    let (alone, work) = (row.foreground_alone_us / 1e3, micros(foreground::undisturbed_time()) / 1e3);
    let disturbed = if alone > DISTURBED * work {
        format!(
            "\nother programs disturbed this: an iteration alone took {alone:.1} ms, \
             with {work:.1} ms of work"
        )
    } else {
        String::new()
    };
    Some(format!(
        "\ndefault: foreground within {:.0}% of alone: {:+.1}%, {}; background gets {:.0}% of the idle time: \
         {:.1}%, {}{disturbed}",
        (MAX_SLOWDOWN - 1.0) * 100.0,
        (row.foreground_slowdown - 1.0) * 100.0,
        kept(row.foreground_slowdown <= MAX_SLOWDOWN),
        MIN_SHARE * 100.0,
        row.background_share_of_idle * 100.0,
        kept(row.background_share_of_idle >= MIN_SHARE),
    ))
}

/// Measurements of one rank.
#[derive(Default)]
struct RankRecord {
    /// Throughput of the background without a foreground, in samples a second.
    background_alone: f64,
    /// Measurements of each policy.
    policies: Vec<PolicyRecord>,
}

/// Measurements of a policy on one rank.
#[derive(Default)]
struct PolicyRecord {
    /// Iterations without a background. Each block of them precedes one with it.
    alone: Vec<Duration>,
    iterations: Vec<Duration>,
    usage: Usage,
    background_samples: f64,
}

fn run(
    shared: &Shared,
    rank: usize,
    unit: Duration,
    task: &BenchTask<'_>,
    progress: &ProgressBar,
) -> anyhow::Result<RankRecord> {
    let mut foreground = Rank::new(shared, rank, unit);
    let mut background = Background::new(&Policy::naive(), unit);
    let mut alone = CpuDriver::<Background>::new(Policy::default());
    let mut drivers: Vec<CpuDriver<Background>> = Vec::new();
    for (_, policy) in task.policies {
        let mut driver = CpuDriver::new(*policy);
        driver.add(Background::new(policy, unit));
        block(&mut driver, &mut foreground, WARM_UP)?;
        drivers.push(driver);
    }
    let mut record = RankRecord::default();
    record.policies.resize_with(drivers.len(), PolicyRecord::default);
    let (mut left, mut rounds) = (task.iterations, 0_u32);
    while left > 0 {
        let iterations = left.min(BLOCK);
        for (driver, beside) in drivers.iter_mut().zip(&mut record.policies) {
            beside.alone.extend(block(&mut alone, &mut foreground, iterations)?.iterations);
            let both = block(driver, &mut foreground, iterations)?;
            beside.iterations.extend(both.iterations);
            beside.usage += both.usage;
            beside.background_samples += both.background_samples;
        }
        record.background_alone += background.alone(BACKGROUND_ALONE)?;
        left -= iterations;
        rounds += 1;
        if rank == 0 {
            progress.inc(iterations as u64);
        }
    }
    record.background_alone /= f64::from(rounds.max(1));
    Ok(record)
}

/// Runs some iterations of the foreground under a driver.
fn block(
    driver: &mut CpuDriver<Background>,
    foreground: &mut Rank<'_>,
    iterations: usize,
) -> anyhow::Result<PolicyRecord> {
    let samples = |driver: &CpuDriver<Background>| -> f64 {
        driver.background().iter().map(|background| background.job().samples()).sum()
    };
    let before = samples(driver);
    let mut job = foreground.iterations(iterations);
    let usage = driver.run(&mut job)?;
    if let Some(end) = driver.background().iter().find_map(BackgroundJob::outcome) {
        bail!("the background has ended: {end:?}");
    }
    let background_samples = samples(driver) - before;
    Ok(PolicyRecord { alone: Vec::new(), iterations: job.into_times(), usage, background_samples })
}

/// Combines the measurements of all ranks. The duration of an iteration is the same on all of them.
fn collocated(ranks: &[&PolicyRecord], iterations: usize) -> anyhow::Result<Collocated> {
    let first = ranks.first().context("no rank was measured")?;
    let mut all = Usage::default();
    for rank in ranks {
        all += rank.usage;
    }
    let by_rank = |time: Duration| micros(time) / ranks.len() as f64;
    let samples_per_s = |rank: &&PolicyRecord| rank.background_samples / rank.usage.elapsed.as_secs_f64();
    Ok(Collocated {
        foreground: times(&first.iterations)?,
        iterations,
        idle_us: by_rank(all.foreground_idle()),
        background_in_idle_us: by_rank(all.background_busy),
        // Ranks exchange through memory, so waiting and transferring are the same.
        waiting_us: None,
        transfer_us: None,
        background_samples_per_s: ranks.iter().map(samples_per_s).sum(),
        background_pieces: all.background_tasklets,
        over_long_pieces: all.over_limit,
    })
}
