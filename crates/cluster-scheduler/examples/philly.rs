//! Speed of the scheduler: 10,000 jobs of Philly on 2,048 GPUs under each policy, and single
//! decisions with 1,000 running jobs.
//!
//! `cargo run --release -p cluster-scheduler --example philly -- philly_jobs.csv 13127`, with a
//! file in the format of [`cluster_scheduler::trace::philly`] and the number of its first jobs to
//! leave out; without a file, similar jobs are generated. Philly's cluster was in full use from job
//! 13127 on.

use std::error::Error;
use std::fs::{self, File};
use std::time::{Duration, Instant};

use cluster_scheduler::trace::{TraceJob, assign, at_load, philly, synthetic};
use cluster_scheduler::{
    Arrival, Cluster, Command, Event, Execution, GpuType, Job, JobId, Mode, Policy, Scheduler,
    SimulationOptions, Table, simulate,
};

const JOBS: usize = 10_000;
/// Number of jobs present while decisions are timed, more than can run.
const AT_ONCE: usize = 1400;

fn main() -> Result<(), Box<dyn Error>> {
    let (from, jobs) = match std::env::args().nth(1) {
        Some(file) => {
            let jobs = philly(&file, File::open(&file)?)?;
            let skipped = std::env::args().nth(2).map_or(Ok(0), |skipped| skipped.parse())?;
            if skipped >= jobs.len() {
                return Err(format!("{file}: it has {} jobs, {skipped} are left out", jobs.len()).into());
            }
            (file, jobs[skipped..].iter().take(JOBS).copied().collect())
        }
        None => ("synthetic jobs".to_owned(), synthetic(JOBS, 0)),
    };
    let cluster = Cluster::uniform("gpu", 256, 8)?;
    let table = table()?;
    let kinds: Vec<_> = table.kinds().collect();
    let policies = [
        Policy::fifo(),
        Policy::srtf(),
        Policy::least_attained_service(),
        Policy::iteration_level(),
        Policy::jigsaw(4),
        Policy::burst(),
        Policy::max_min_fairness(),
        Policy::finish_time_fairness(),
    ];
    println!("{} jobs of {from} on {} GPUs of {} hosts", jobs.len(), cluster.gpus(), 256);
    println!(
        "policy                load  wall s   CPU s  events   mean JCT s  efficiency  peak MiB of the process"
    );
    for load in [1.0, 6.0] {
        let scaled: Vec<TraceJob> = at_load(&jobs, cluster.gpus(), load);
        if scaled.len() < jobs.len() {
            let count = jobs.len() - scaled.len();
            eprintln!("left out {count} of {} jobs: on more GPUs than the cluster has", jobs.len());
        }
        let mut arrivals = assign(&scaled, &table, &kinds, GpuType(0), 0)?;
        for arrival in &mut arrivals {
            arrival.job.other_gpu_counts = fewer(arrival.job.gpus);
        }
        for policy in &policies {
            let (start, cpu) = (Instant::now(), cpu_seconds());
            let report = simulate(&cluster, &table, policy, &arrivals, &SimulationOptions::default())?;
            println!(
                "{:20} {load:5} {:7.2} {:7.2} {:8} {:12.0} {:11.3} {:9}",
                policy.name,
                start.elapsed().as_secs_f64(),
                cpu_seconds() - cpu,
                report.events,
                report.mean_completion(),
                report.efficiency(),
                peak_mib()
            );
        }
    }
    println!(
        "\ndecisions on 2,048 GPUs, a running job ending and one arriving for each; \
         fair shares are recomputed for each"
    );
    println!("policy                running  waiting  median us    p99 us");
    for policy in &policies {
        let policy = policy.clone().with_rounds(Duration::from_secs(360), Duration::ZERO);
        let (running, mut times) = decisions(&cluster, &table, &policy)?;
        times.sort_unstable();
        let [median, p99] = [times.len() / 2, times.len() * 99 / 100].map(|at| times[at].as_secs_f64() * 1e6);
        println!("{:20} {running:8} {:8} {median:10.1} {p99:9.1}", policy.name, AT_ONCE - running);
    }
    Ok(())
}

/// Numbers of GPUs in the table.
const COUNTS: [usize; 10] = [1, 2, 4, 8, 12, 16, 24, 32, 64, 128];

/// Other numbers of GPUs on which elastic policies may run a job.
fn fewer(gpus: usize) -> Vec<usize> {
    COUNTS.into_iter().filter(|&count| count < gpus).collect()
}

/// Creates three kinds of jobs with little synchronization, idle periods from SPB and from burst
/// plans.
fn table() -> Result<Table, cluster_scheduler::Error> {
    let mut table = Table::new();
    for (name, ms) in [("small", 20), ("medium", 100), ("large", 300)] {
        let kind = table.kind(name);
        for gpus in COUNTS {
            // A batch split over more GPUs, which are used slightly less efficiently.
            let compute = Duration::from_millis(ms).mul_f64((gpus as f64).powf(-0.8));
            let synchronize = if gpus > 1 { compute / 10 } else { Duration::ZERO };
            let iteration = compute + synchronize;
            let layers = [(compute / 48, compute / 24); 16];
            let mut set = |mode, execution| table.set(kind, GpuType(0), mode, execution);
            set(Mode::DataParallel, Execution::parts(iteration, &vec![compute; gpus])?);
            set(Mode::Spb(4), Execution::spb(gpus, &layers, synchronize, 4)?);
            let busy: Vec<Duration> =
                (0..gpus).map(|gpu| compute.mul_f64(1.0 - gpu as f64 / (2 * gpus) as f64)).collect();
            set(Mode::Burst(0), Execution::parts(iteration, &busy)?);
            // A slower plan that leaves longer idle periods.
            let busy: Vec<Duration> = busy.into_iter().map(|busy| busy.mul_f64(0.8)).collect();
            set(Mode::Burst(1), Execution::parts(iteration.mul_f64(1.1), &busy)?);
        }
    }
    Ok(table)
}

/// Returns the number of jobs running at the end, and the duration of each of 200 decisions.
fn decisions(
    cluster: &Cluster,
    table: &Table,
    policy: &Policy,
) -> Result<(usize, Vec<Duration>), cluster_scheduler::Error> {
    let kinds: Vec<_> = table.kinds().collect();
    let mut scheduler = Scheduler::new(cluster, table, policy.clone())?;
    let job = |number: usize| {
        let gpus = if number % 8 == 0 { 8 } else { 1 };
        Arrival {
            at: Duration::from_secs(number as u64),
            id: JobId(number as u64),
            job: Job { other_gpu_counts: fewer(gpus), ..Job::new(kinds[number % 3], 100_000, gpus) },
        }
    };
    let mut now = Duration::ZERO;
    for number in 0..AT_ONCE {
        let Arrival { at, id, job } = job(number);
        scheduler.handle(at, Event::Arrived(id, job))?;
        now = at;
    }
    let mut running: Vec<JobId> = started(&scheduler.decide()?);
    let mut times = Vec::new();
    for number in AT_ONCE..AT_ONCE + 200 {
        now += Duration::from_secs(1);
        scheduler.handle(now, Event::Cancelled(running.swap_remove(number % running.len())))?;
        let Arrival { id, job, .. } = job(number);
        scheduler.handle(now, Event::Arrived(id, job))?;
        let start = Instant::now();
        let commands = scheduler.decide()?;
        times.push(start.elapsed());
        for command in &commands {
            // A job that is told to stop ends its iteration at once.
            if let Command::Stop(job) = command {
                scheduler.handle(now, Event::Ended(*job, 1))?;
                running.retain(|other| other != job);
            }
        }
        running.extend(started(&commands));
        running.extend(started(&scheduler.decide()?));
    }
    Ok((running.len(), times))
}

fn started(commands: &[Command]) -> Vec<JobId> {
    let job = |command: &Command| match command {
        Command::Run(placement) => Some(placement.job),
        Command::Stop(_) => None,
    };
    commands.iter().filter_map(job).collect()
}

/// Returns the CPU time of the process, which is independent of other processes; NaN if the system
/// does not report it.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: Vec<f64> =
        fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse().ok()).collect();
    // Linux counts 100 ticks per second.
    if let [user, system] = ticks[..] { (user + system) / 100.0 } else { f64::NAN }
}

/// Returns the peak memory of the process, if the system reports it.
fn peak_mib() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.map_or_else(|| "unknown".into(), |kib| (kib / 1024).to_string())
}
