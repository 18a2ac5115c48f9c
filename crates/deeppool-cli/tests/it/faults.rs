//! Fault injection: ranks that are killed, stopped or cut off from the network at random
//! iterations.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{command, files, is_of_run, json, losses, newest_checkpoint};
use crate::comparison::distance;
use crate::hosts::Hosts;
use crate::mpi::{ranks_of, wait_for_newer};

const RUN: &str = "train --model digits-cnn --data digits --batch 32 --iterations 200 --json";
/// Timeout of ranks, in seconds.
const TIMEOUT: u64 = 3;
/// Maximum time until all ranks have ended after a fault.
const IN_TIME: Duration = Duration::from_secs(TIMEOUT + 17);
/// Maximum time until all ranks have ended if a host is cut off, so that TCP has to time out.
const IN_TIME_OF_TCP: Duration = Duration::from_secs(TIMEOUT + 37);

/// Number of faults of all kinds; CI sets more.
fn faults() -> usize {
    std::env::var("DEEPPOOL_FAULTS").ok().and_then(|count| count.parse().ok()).unwrap_or(3)
}

/// Number of faults that cut off a host, which take longest.
fn cut_offs() -> usize {
    faults().div_ceil(4)
}

/// Returns a generator with a random seed, which is printed and can be set.
fn random() -> ChaCha8Rng {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = std::env::var("DEEPPOOL_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(now.as_secs());
    println!("DEEPPOOL_SEED={seed}");
    ChaCha8Rng::seed_from_u64(seed)
}

fn kept(checkpoints: &Path) -> String {
    format!("{RUN} --timeout {TIMEOUT} --checkpoint {} --checkpoint-every 10 --resume", checkpoints.display())
}

/// Sleeps until the run has passed an iteration, with all ranks running.
fn wait_for_some_iteration(random: &mut ChaCha8Rng, checkpoints: &Path) {
    let after = format!("iteration-{:010}", random.next_u32() % 120);
    wait_for_newer(checkpoints, None, || newest_checkpoint(checkpoints).unwrap() >= after);
    std::thread::sleep(Duration::from_millis(u64::from(random.next_u32() % 30)));
    assert_eq!(ranks_of(checkpoints).len(), 4);
}

/// Returns the process of a rank.
fn process_of(rank: u32, checkpoints: &Path) -> u32 {
    let variable = format!("OMPI_COMM_WORLD_RANK={rank}").into_bytes();
    let is_it = |process: &u32| {
        let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap();
        environment.split(|&byte| byte == 0).any(|there| there == variable)
    };
    ranks_of(checkpoints).into_iter().find(is_it).unwrap()
}

/// Returns the ranks that an error names as missing.
fn missing(error: &str) -> Vec<u32> {
    let listed = error.split_once(": ranks [").and_then(|(_, after)| after.split_once("] did not join "));
    let numbers = listed.map(|(ranks, _)| ranks.split(", ").map(|rank| rank.parse().unwrap()));
    numbers.into_iter().flatten().collect()
}

/// Checks that the run resumed from a checkpoint, with the losses of an undisturbed run.
fn check_losses(printed: &[u8], whole: &[f64]) {
    let report: Value = serde_json::from_slice(printed).unwrap();
    let first = usize::try_from(report["first_iteration"].as_u64().unwrap()).unwrap();
    let distance = distance(&losses(&report), &whole[first..]);
    println!("    goes on after iteration {first}: {distance:.1e}");
    assert!(first > 0 && distance <= 1e-4, "{first}: {distance:.1e}");
}

#[test]
fn killed_and_stopped_ranks_are_named_and_restarts_reproduce_the_losses() {
    if Command::new("mpirun").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("SKIPPED: there is no mpirun on the PATH");
        return;
    }
    let folder = TempDir::new().unwrap();
    let whole = losses(&json(folder.path(), &format!("{RUN} --ranks 4")));
    let mut random = random();
    for number in 0..faults() - cut_offs() {
        let checkpoints = folder.path().join(format!("run{number}"));
        let line = format!("launch --ranks 4 --restarts 1 -- {}", kept(&checkpoints));
        let mut launch = command(folder.path(), &line);
        let mut launched = launch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for_some_iteration(&mut random, &checkpoints);
        let segments = format!("/dev/shm/deeppool.{}", launched.id());
        assert_eq!(files(Path::new(&segments)).len(), 4, "the shared memory of the ranks is elsewhere");
        let rank = random.next_u32() % 4;
        let signal = ["KILL", "STOP"][number % 2];
        println!("rank {rank} gets SIG{signal} after {}", newest_checkpoint(&checkpoints).unwrap());
        let process = process_of(rank, &checkpoints).to_string();
        assert!(Command::new("kill").args(["-s", signal, &process]).status().unwrap().success());
        let fault = Instant::now();

        let mut errors = Vec::new();
        let mut lines = BufReader::new(launched.stderr.take().unwrap()).lines().map(Result::unwrap);
        for line in lines.by_ref().take_while(|line| !line.starts_with("a rank failed: going on")) {
            println!("    {line}");
            errors.push(line);
        }
        let ended = fault.elapsed();
        println!("    ended after {:.1} s", ended.as_secs_f64());
        assert!(ended < IN_TIME);
        let killed = format!("error: rank {rank} was ended by signal 9 (Killed)");
        assert!(errors.iter().any(|error| match signal {
            "KILL" => *error == killed,
            _ => missing(error).contains(&rank),
        }));
        let later: Vec<String> = lines.collect();
        let output = launched.wait_with_output().unwrap();
        assert!(output.status.success() && later.iter().all(|line| is_of_run(line)), "{later:?}");
        check_losses(&output.stdout, &whole);
        assert!(ranks_of(&checkpoints).is_empty(), "a rank is left behind");
        assert!(!Path::new(&segments).exists(), "shared memory is left behind");
    }
}

#[test]
fn a_host_that_is_cut_off_is_named_and_the_run_resumes_later() {
    let Some(hosts) = Hosts::start() else { return };
    let whole = losses(&json(hosts.folder(), &format!("{RUN} --ranks 4")));
    let mut random = random();
    for number in 0..cut_offs() {
        let checkpoints = hosts.folder().join(format!("run{number}"));
        let line = kept(&checkpoints);
        let mut ranks = hosts.ranks(&line);
        let running = ranks.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for_some_iteration(&mut random, &checkpoints);
        let host = ["host1", "host2"][random.next_u32() as usize % 2];
        println!("{host} is cut off after {}", newest_checkpoint(&checkpoints).unwrap());
        hosts.cut_off(host);
        let fault = Instant::now();
        let output = running.wait_with_output().unwrap();
        let ended = fault.elapsed();
        println!("    ended after {:.1} s", ended.as_secs_f64());
        let errors = String::from_utf8(output.stderr).unwrap();
        errors.lines().filter(|line| line.starts_with("error: ")).for_each(|line| println!("    {line}"));
        assert!(!output.status.success() && ended < IN_TIME_OF_TCP, "{errors}");
        // The missing ranks are those of the other host than that of mpirun.
        assert!(errors.lines().any(|line| missing(line).iter().any(|&rank| rank >= 2)), "{errors}");
        hosts.wait_until_idle();
        assert!(ranks_of(&checkpoints).is_empty(), "a rank is left behind");
        hosts.reconnect(host);
        let output = hosts.ranks(&line).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        check_losses(&output.stdout, &whole);
        hosts.wait_until_idle();
    }
}
