//! Jobs on a Slurm cluster of two nodes, with scripts of `deeppool slurm`.

use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;

use crate::cluster::{Cluster, succeeded, wait};
use crate::command::{json, losses, newest_checkpoint, succeed};
use crate::comparison::{distance, random_plan};
use crate::mpi::{iterations, ranks_of, wait_for_newer};
use crate::pages::{blocks, commands, read};

const TRAIN: &str = "train --model digits-cnn --data digits";
const SRUN: &str = "srun --mpi=pmix --kill-on-bad-exit=1 --nodes 2";
const ALL: &str = "PartitionName=all Nodes=ALL Default=YES\n";

/// Number of disturbed jobs; CI sets more.
fn disturbed_jobs() -> usize {
    std::env::var("DEEPPOOL_REQUEUES").ok().and_then(|count| count.parse().ok()).unwrap_or(1)
}

#[test]
fn job_losses_match_thread_losses() {
    let Some(cluster) = Cluster::start(ALL) else { return };
    let path = cluster.folder();
    let run = format!("{TRAIN} --iterations {} --json", iterations());
    let plan = "plan --model digits-cnn --device cpu-core --batch 32";
    succeed(path, &format!("{plan} --gpus 2 --mode dp -o dp.json"));
    succeed(path, &format!("{plan} --gpus 4 --amplification 1.2 -o burst.json"));
    random_plan(path, 4);
    for (ranks, plan, options) in
        [(2, "dp.json", ""), (4, "burst.json", "--background digits-cnn:8"), (4, "random4.json", "")]
    {
        let threads = json(path, &format!("{run} --plan {plan} {options}"));
        succeed(path, &format!("slurm --plan {plan} --nodes 2 --time 10 -o job.sh -- {run} {options}"));
        let job = cluster.submit("job.sh").report();
        let line = format!("{SRUN} --ntasks {ranks} deeppool {run} --plan {plan} {options}");
        let srun: Value = serde_json::from_str(&cluster.shell(&line)).unwrap();
        for (how, processes) in [("sbatch", &job), ("srun", &srun)] {
            let distance = distance(&losses(&threads), &losses(processes));
            println!("{ranks} ranks, {how} {options}: {distance:.1e}");
            assert!(distance <= 1e-4, "{ranks} ranks, {how} {options}: {distance:.1e}");
            assert_eq!(threads["plan"], processes["plan"]);
        }
    }
    cluster.stop();
}

/// Kills a rank or requeues the job, each time at another rank and iteration.
#[test]
fn disturbed_jobs_reproduce_the_losses() {
    let Some(cluster) = Cluster::start(ALL) else { return };
    let path = cluster.folder();
    let run = format!("{TRAIN} --batch 32 --iterations 400 --json");
    let undisturbed = cluster.shell(&format!("{SRUN} --ntasks 4 deeppool {run}"));
    let whole = losses(&serde_json::from_str(&undisturbed).unwrap());
    for number in 0..disturbed_jobs() {
        let checkpoints = path.join(format!("run{number}"));
        succeed(
            path,
            &format!(
                "slurm --nodes 2 --ranks-per-node 2 -o job.sh -- {run} --checkpoint {} --checkpoint-every 20",
                checkpoints.display()
            ),
        );
        let job = cluster.submit("job.sh");
        wait_for_newer(&checkpoints, None, || ranks_of(&checkpoints).len() == 4);
        std::thread::sleep(Duration::from_millis(number as u64 * 37));
        let ranks = ranks_of(&checkpoints);
        if number % 3 == 2 {
            job.told("scontrol requeue");
        } else {
            let rank = ranks[number * 5 % ranks.len()].to_string();
            assert!(Command::new("kill").args(["-9", &rank]).status().unwrap().success());
        }
        let report = job.report();
        let first = report["first_iteration"].as_u64().unwrap() as usize;
        let distance = distance(&losses(&report), &whole[first..]);
        println!("job {number} goes on after iteration {first}: {distance:.1e}");
        assert!(first > 0 && distance <= 1e-4, "{first}: {distance:.1e}");
        assert!(ranks_of(&checkpoints).is_empty(), "a rank is left behind");
    }
    cluster.stop();
}

#[test]
fn jobs_at_their_time_limit_resume_until_cancelled() {
    let Some(cluster) = Cluster::start(ALL) else { return };
    // Slurm checks time limits twice a minute, so that this warning comes after one minute.
    let slurm = "slurm --nodes 2 --ranks-per-node 1 --time 1 --warning 55 -o job.sh";
    succeed(cluster.folder(), &format!("{slurm} -- {TRAIN} --batch 32 --iterations 1000000"));
    let job = cluster.submit("job.sh");
    let checkpoints = job.checkpoints();
    wait("the job to go on", || job.printed().contains("resumed after iteration "));
    // Checkpoints are written every 30 s, so that the one of the warning comes earlier.
    let newest = newest_checkpoint(&checkpoints).unwrap();
    let printed = job.printed();
    let stopped = printed.lines().find(|line| line.contains("stopped after iteration ")).unwrap();
    assert!(stopped.contains("go on with --resume"), "{printed}");
    assert!(printed.contains(&format!("not finished: going on from {newest}")), "{printed}");
    job.told("scancel");
    assert_eq!(job.end(), "CANCELLED");
    cluster.stop();
}

#[test]
fn jobs_without_progress_end() {
    let Some(cluster) = Cluster::start(ALL) else { return };
    let path = cluster.folder();
    // Before the first checkpoint.
    let command = format!("slurm --nodes 2 --ranks-per-node 1 -o job.sh -- {TRAIN} --batch 32 --init none");
    succeed(path, &command);
    let job = cluster.submit("job.sh");
    assert_eq!(job.end(), "FAILED");
    let printed = job.printed();
    assert!(printed.contains("none: no such file") && !printed.contains("going on"), "{printed}");
    // The job fails at the same iteration each time.
    let fails = format!("{TRAIN} --batch 32 --lr 1e30 --checkpoint-every 1");
    succeed(path, &format!("slurm --nodes 2 --ranks-per-node 1 --restarts 1 -o job.sh -- {fails}"));
    let job = cluster.submit("job.sh");
    assert_eq!(job.end(), "FAILED");
    let printed = job.printed();
    assert_eq!(printed.matches("not finished: going on from ").count(), 1, "{printed}");
    assert!(printed.contains("giving up"), "{printed}");
    cluster.stop();
}

/// Runs all commands of the page in order.
#[test]
fn the_documented_commands_do_what_the_page_says() {
    let page = read("docs/slurm.md");
    let readme = read("README.md");
    for line in readme.lines().filter(|line| {
        ["$ srun", "$ sbatch", "$ deeppool slurm"].iter().any(|of_slurm| line.starts_with(of_slurm))
    }) {
        assert!(page.lines().any(|there| there == line), "not on the page: {line}");
    }
    let Some(cluster) = Cluster::start(&blocks(&page, "conf").concat()) else { return };
    let commands = commands(&page);
    assert!(commands.len() >= 10, "{commands:?}");
    let mut queue = String::new();
    for line in &commands {
        let output: Output = cluster.command("bash").args(["-c", line]).output().unwrap();
        queue = succeeded(line, &output);
        println!("$ {line}\n{queue}");
        // Wait until the job has started, as a reader would.
        if let Some(job) = queue.strip_prefix("Submitted batch job ").filter(|_| !line.contains("--wait")) {
            let number = job.trim().parse().unwrap();
            wait("the background job to learn", || {
                cluster.printed("background", number).contains("\nepoch ")
            });
        }
    }
    // The background jobs are unfinished: the foreground did not wait for them.
    assert_eq!(queue.matches("background").count(), 2, "{queue}");
    cluster.wait_until_idle();

    let background = format!("{TRAIN} --ranks 1 --batch 32 --epochs 60");
    let learned = |printed: &str| {
        let epoch = printed.lines().rfind(|line| line.starts_with("epoch ")).unwrap();
        epoch.split_once("  foreground").unwrap().0.to_owned()
    };
    let undisturbed = learned(&succeed(cluster.folder(), &background));
    let jobs: Vec<String> = ["background", "foreground"]
        .iter()
        .flat_map(|name| (1..=10).map(|number| cluster.printed(name, number)))
        .filter(|printed| !printed.is_empty())
        .collect();
    let [first, second, foreground] = &*jobs else { panic!("{jobs:?}") };
    for background in [first, second] {
        assert!(background.contains("DUE TO PREEMPTION"), "{background}");
        assert!(background.contains("resumed after iteration "), "{background}");
        assert_eq!(learned(background), undisturbed);
    }
    assert!(foreground.contains("background pieces"), "{foreground}");
    cluster.stop();
}
