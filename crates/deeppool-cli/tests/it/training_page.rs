//! docs/training.md: its commands for one host. Those for two are in `hosts`.

use tempfile::TempDir;

use crate::command::{files, succeed};
use crate::pages::{commands, read};

#[test]
fn commands_for_one_host_work() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    for command in commands(&read("docs/training.md")) {
        let Some(arguments) = command.strip_prefix("deeppool ") else { continue };
        if arguments.starts_with("launch ") && !cfg!(feature = "mpi") {
            println!("SKIPPED: {command}: this build is without the feature mpi");
            continue;
        }
        let printed = succeed(path, arguments);
        let expected = match arguments {
            of if of.contains("--background") => "background pieces",
            of if of.contains("--resume") => "resumed after iteration 176",
            of if of.starts_with("plan ") => "data parallel on the same GPUs",
            of if of.contains("train ") => "iteration, measured",
            of if of.starts_with("eval ") => "held-out samples",
            _ => "wrote",
        };
        assert!(printed.contains(expected), "{command}: {printed}");
    }
    for made in ["plan.json", "timeline.json", "run.jsonl", "weights.safetensors"] {
        assert!(files(path).contains(&made.to_owned()), "{made}");
    }
}
