//! Schedules four real `deeppool train` processes on this machine: they arrive one after another
//! and share two cores at iteration granularity.
//!
//! `cargo run --release -p cluster-scheduler --example live -- target/release/deeppool`, with the
//! path of the command. One iteration of the scheduler is a process with 50 training iterations,
//! which resumes from the previous checkpoint. A GPU is a core, and a job on two of them is data
//! parallel on two ranks.

use std::collections::HashMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use cluster_scheduler::{
    Cluster, Command as Decision, Event, Execution, GpuType, Job, JobId, Mode, Placement, Policy, Scheduler,
    Table,
};

/// Training iterations in one iteration of the scheduler.
const AT_ONCE: u64 = 50;
/// Arrival time in milliseconds, number of iterations, and number of cores of each job.
const JOBS: [(u64, u64, usize); 4] = [(0, 6, 1), (200, 4, 2), (400, 2, 1), (600, 3, 2)];

/// The result of a process.
struct Exited {
    job: JobId,
    result: Result<(), String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Some(deeppool) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("error: give the path of the command `deeppool`");
        std::process::exit(2);
    };
    let folder = std::env::temp_dir().join(format!("cluster-scheduler-live-{}", std::process::id()));
    let done = drive(&deeppool, &folder);
    std::fs::remove_dir_all(&folder)?;
    for (job, iterations) in done? {
        println!("{job} has trained for {iterations} iterations");
    }
    Ok(())
}

/// Runs all jobs to completion and returns the training iterations of each.
fn drive(deeppool: &Path, folder: &Path) -> Result<Vec<(JobId, u64)>, Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    let mut table = Table::new();
    let kind = table.kind("digits-cnn");
    for cores in [1, 2] {
        // The time is only an expectation: attained service is computed from it, and nothing waits
        // for it.
        table.set(kind, GpuType(0), Mode::DataParallel, Execution::full(cores, Duration::from_millis(400))?);
    }
    let cluster = Cluster::uniform("core", 1, 2)?;
    let order = cluster_scheduler::Order::AttainedService { levels: vec![Duration::from_secs(1)] };
    let policy = Policy { order, ..Policy::least_attained_service() };
    let mut scheduler = Scheduler::new(&cluster, &table, policy)?;
    let (exits, exited) = channel();
    let start = Instant::now();
    let mut arrivals = JOBS.iter().enumerate().peekable();
    let mut done: HashMap<JobId, u64> = HashMap::new();
    loop {
        let due =
            |&(_, &(at, ..)): &(usize, &(u64, u64, usize))| Duration::from_millis(at) <= start.elapsed();
        while let Some((number, &(_, iterations, cores))) = arrivals.next_if(due) {
            let id = JobId(number as u64);
            done.insert(id, 0);
            scheduler.handle(start.elapsed(), Event::Arrived(id, Job::new(kind, iterations, cores)))?;
        }
        for decision in scheduler.decide()? {
            match decision {
                Decision::Run(placement) => {
                    println!(
                        "{:6.2} s: {} on {:?}",
                        start.elapsed().as_secs_f64(),
                        placement.job,
                        placement.gpus
                    );
                    let until = (done[&placement.job] + 1) * AT_ONCE;
                    run(deeppool, folder, &placement, until, exits.clone());
                }
                // A process is one iteration. After it, a job that was told to stop is not placed
                // again.
                Decision::Stop(job) => println!("{:6.2} s: {job} stops", start.elapsed().as_secs_f64()),
            }
        }
        if arrivals.peek().is_none() && scheduler.active() == 0 {
            break;
        }
        if let Some(Exited { job, result }) = next(&exited, Duration::from_millis(20))? {
            result?;
            *done.entry(job).or_default() += 1;
            scheduler.handle(start.elapsed(), Event::Ended(job, 1))?;
        }
    }
    let mut done: Vec<(JobId, u64)> = done.into_iter().map(|(job, done)| (job, done * AT_ONCE)).collect();
    done.sort_unstable();
    Ok(done)
}

/// Returns the next process that exits within a time limit.
fn next(exited: &Receiver<Exited>, patience: Duration) -> Result<Option<Exited>, Box<dyn Error>> {
    match exited.recv_timeout(patience) {
        Ok(exited) => Ok(Some(exited)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Starts the next process of a job, which trains from its last checkpoint to an iteration.
fn run(deeppool: &Path, folder: &Path, placement: &Placement, until: u64, exits: Sender<Exited>) {
    let job = placement.job;
    let mut command = Command::new(deeppool);
    command.args([
        "train",
        "--model",
        "digits-cnn",
        "--data",
        "digits",
        "--batch",
        "32",
        "--resume",
        "--checkpoint",
    ]);
    command.arg(folder.join(job.0.to_string()));
    command.args(["--ranks", &placement.gpus.len().to_string(), "--iterations", &until.to_string()]);
    command.stdin(Stdio::null());
    thread::spawn(move || {
        let result = match command.output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(format!("{}: {error}", command.get_program().to_string_lossy())),
        };
        // The receiver is gone if the program is ending.
        let _ = exits.send(Exited { job, result });
    });
}
