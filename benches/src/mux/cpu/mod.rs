//! Threads of this machine, one a rank.

mod background;
mod foreground;
mod work;

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use gpu_mux::{BackgroundJob, CpuDriver, Policy, Usage};
use indicatif::ProgressBar;

use self::background::Background;
use self::foreground::{GivenUp, Rank, Shared};
use crate::command::bad_input;
use crate::mux::MuxReport;
use crate::mux::row::{Alone, Collocated, row, times};
use crate::mux::task::Task;
use crate::progress;
use crate::report_file::micros;

/// Iterations between a change from one policy to the next: what disturbs the machine disturbs all of them.
const BLOCK: usize = 5;

/// Iterations in which a policy learns the foreground's program.
const WARM_UP: usize = 10;

/// How long the background runs by itself between two rounds over the policies.
const BACKGROUND_ALONE: Duration = Duration::from_millis(10);

/// What the default policy is to keep: the most that an iteration may take by alone, and the least share of the idle time
/// that the background is to get.
const SLOWDOWN: f64 = 1.1;
const SHARE: f64 = 0.5;

/// An iteration that takes so much longer alone than its work has been disturbed by other programs.
const DISTURBED: f64 = 1.2;

/// Ranks that may share a core: with more of them nothing is measured but the system's scheduler.
const RANKS_BY_CORE: usize = 4;

/// Measures policies on this many threads.
pub(crate) fn measure(ranks: NonZeroUsize, task: &Task<'_>) -> anyhow::Result<MuxReport> {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let most = cores.saturating_mul(RANKS_BY_CORE);
    if ranks.get() > most {
        return Err(bad_input(format!(
            "--ranks {ranks}: at most {most} fit on this machine's {cores} cores"
        )));
    }
    let records = records(ranks.get(), task)?;
    let background_samples_per_s = records.iter().map(|record| record.background_alone).sum();
    let rows = task.policies.iter().enumerate().map(|(index, (name, _))| {
        let both: Vec<&Beside> = records.iter().map(|record| &record.beside[index]).collect();
        let first = both.first().context("no rank was measured")?;
        // As many iterations alone as beside the background, from the same time: the same percentile of both.
        let alone = Alone { foreground: times(&first.alone)?, drift: None, background_samples_per_s };
        Ok(row(name, false, &alone, &collocated(&both, task.iterations)?))
    });
    let rows = rows.collect::<anyhow::Result<Vec<_>>>()?;
    let workload = format!("{}, beside {}", foreground::NAME, background::NAME);
    Ok(MuxReport::new(format!("CPU: {ranks} ranks on {cores} cores"), false, workload, rows))
}

/// What all ranks have seen, by rank. When one fails all of them end.
fn records(ranks: usize, task: &Task<'_>) -> anyhow::Result<Vec<Record>> {
    let unit = work::unit();
    let shared = Shared::new(ranks);
    let progress = progress::bar(task.iterations);
    let ends: Vec<anyhow::Result<Record>> = thread::scope(|scope| {
        let (shared, progress) = (&shared, &progress);
        let rank = |rank| {
            let named = thread::Builder::new().name(format!("rank {rank}"));
            named.spawn_scoped(scope, move || {
                let end = catch_unwind(AssertUnwindSafe(|| run(shared, rank, unit, task, progress)));
                let end = end.unwrap_or_else(|_| Err(anyhow!("rank {rank} panicked")));
                end.inspect_err(|_| shared.give_up())
            })
        };
        let threads: Vec<_> = (0..ranks).map(rank).collect();
        if threads.iter().any(Result::is_err) {
            shared.give_up();
        }
        let joined = threads.into_iter().map(|thread| {
            let thread = thread.context("a thread for a rank cannot be had")?;
            thread.join().map_err(|_| anyhow!("a rank panicked"))?
        });
        joined.collect()
    });
    progress.finish_and_clear();
    // The first cause is reported before its consequences.
    let (given_up, ends): (Vec<_>, Vec<_>) =
        ends.into_iter().partition(|end| end.as_ref().is_err_and(anyhow::Error::is::<GivenUp>));
    ends.into_iter().chain(given_up).collect()
}

/// What a thread does not have.
pub(crate) const NOTE: &str = "
a thread has neither streams nor graphs, and runs one tasklet at a time: stream priority, captured graphs, pieces in
flight, what is launched ahead and `not beside compute` change nothing here";

/// Whether the default policy keeps what it is to keep, if it was measured.
pub(crate) fn verdict(report: &MuxReport) -> Option<String> {
    let row = report.rows.iter().find(|row| row.policy == "default")?;
    let kept = |kept: bool| if kept { "kept" } else { "NOT kept" };
    let (alone, work) = (row.foreground_alone_us / 1e3, micros(foreground::work()) / 1e3);
    let disturbed = if alone > DISTURBED * work {
        format!(
            "\nother programs disturbed this: an iteration alone took {alone:.1} ms, with {work:.1} ms of work"
        )
    } else {
        String::new()
    };
    Some(format!(
        "\ndefault: foreground within {:.0}% of alone: {:+.1}%, {}; background gets {:.0}% of the idle time: {:.1}%, {}{disturbed}",
        (SLOWDOWN - 1.0) * 100.0,
        (row.foreground_slowdown - 1.0) * 100.0,
        kept(row.foreground_slowdown <= SLOWDOWN),
        SHARE * 100.0,
        row.background_share_of_idle * 100.0,
        kept(row.background_share_of_idle >= SHARE),
    ))
}

/// What a rank has seen.
#[derive(Default)]
struct Record {
    /// Samples of the background by second without a foreground.
    background_alone: f64,
    /// By policy.
    beside: Vec<Beside>,
}

/// What a rank has seen of a policy.
#[derive(Default)]
struct Beside {
    /// Iterations without a background, each block of them before one with it.
    alone: Vec<Duration>,
    iterations: Vec<Duration>,
    usage: Usage,
    background_samples: f64,
}

fn run(
    shared: &Shared,
    rank: usize,
    unit: Duration,
    task: &Task<'_>,
    progress: &ProgressBar,
) -> anyhow::Result<Record> {
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
    let mut record = Record::default();
    record.beside.resize_with(drivers.len(), Beside::default);
    let (mut left, mut rounds) = (task.iterations, 0_u32);
    while left > 0 {
        let iterations = left.min(BLOCK);
        for (driver, beside) in drivers.iter_mut().zip(&mut record.beside) {
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

/// Some iterations of the foreground by a driver.
fn block(
    driver: &mut CpuDriver<Background>,
    foreground: &mut Rank<'_>,
    iterations: usize,
) -> anyhow::Result<Beside> {
    let samples = |driver: &CpuDriver<Background>| -> f64 {
        driver.background().iter().map(|background| background.job().samples()).sum()
    };
    let before = samples(driver);
    let mut job = foreground.iterations(iterations);
    let usage = driver.run(&mut job)?;
    if let Some(end) = driver.background().iter().find_map(BackgroundJob::end) {
        bail!("the background has ended: {end:?}");
    }
    let background_samples = samples(driver) - before;
    Ok(Beside { alone: Vec::new(), iterations: job.into_times(), usage, background_samples })
}

/// What all ranks have seen of a policy. An iteration takes as long on all of them.
fn collocated(ranks: &[&Beside], iterations: usize) -> anyhow::Result<Collocated> {
    let first = ranks.first().context("no rank was measured")?;
    let mut all = Usage::default();
    for rank in ranks {
        all += rank.usage;
    }
    let by_rank = |time: Duration| micros(time) / ranks.len() as f64;
    let samples_per_s = |rank: &&Beside| rank.background_samples / rank.usage.elapsed.as_secs_f64();
    Ok(Collocated {
        foreground: times(&first.iterations)?,
        iterations,
        idle_us: by_rank(all.foreground_idle()),
        background_in_idle_us: by_rank(all.background_busy),
        // Ranks meet in memory: to wait and to transfer is the same.
        waiting_us: None,
        transfer_us: None,
        background_samples_per_s: ranks.iter().map(samples_per_s).sum(),
        background_pieces: all.background_tasklets,
        over_long_pieces: all.over_long,
    })
}
