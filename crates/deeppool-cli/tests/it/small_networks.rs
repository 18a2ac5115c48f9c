//! Small networks are planned and trained at once.

use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::command::{json, succeed};

/// Maximum duration. Each command takes about a second of CPU time; the machine may do other work.
const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn small_networks_are_planned_in_seconds() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let started = Instant::now();
    for gpus in [7, 8] {
        json(path, &format!("plan --model digits-cnn --device cpu-core --gpus {gpus} --batch 32 --json"));
        assert!(started.elapsed() < LIMIT, "{gpus} GPUs: {:?}", started.elapsed());
    }
    succeed(path, "simulate --model digits-cnn --device a100 --gpus 7 --batch 14");
    assert!(started.elapsed() < LIMIT, "{:?}", started.elapsed());
}

#[test]
fn training_on_seven_ranks_starts_in_seconds() {
    let folder = TempDir::new().unwrap();
    let started = Instant::now();
    succeed(folder.path(), "train --ranks 7 --model digits-cnn --data digits --batch 32 --iterations 1");
    assert!(started.elapsed() < LIMIT, "{:?}", started.elapsed());
}
