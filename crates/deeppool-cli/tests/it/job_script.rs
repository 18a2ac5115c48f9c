//! `deeppool slurm`: contents of job scripts, and errors. `slurm.rs` runs them.

use std::process::Command;

use tempfile::TempDir;

use crate::command::{deeppool, refused, succeed};

const TRAIN: &str = "train --model digits-cnn --data digits";
/// Returns a folder with a plan. It is in the temporary folder, which nodes do not share.
const SLURM: &str = "slurm --shared-tmp --program /opt/deeppool";

fn folder_with_plan() -> TempDir {
    let folder = TempDir::new().unwrap();
    succeed(
        folder.path(),
        "plan --model digits-cnn --device cpu-core --gpus 4 --batch 32 --mode dp -o plan.json",
    );
    folder
}

#[test]
fn job_scripts_have_the_given_options_and_parse_in_bash() {
    let folder = folder_with_plan();
    let path = folder.path();
    let script = succeed(
        path,
        &format!(
            "{SLURM} --plan plan.json --nodes 2 --time 1-12 --partition gpu,big --job-name mine --warning 90 \
             --restarts 5 \
             --cpus-per-rank 6 -o - -- {TRAIN} --checkpoint my'run"
        ),
    );
    for line in [
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks-per-node=2",
        "#SBATCH --cpus-per-task=6",
        "#SBATCH --time=1-12",
        "#SBATCH --partition=gpu,big",
        "#SBATCH --job-name=mine",
        "#SBATCH --output=mine-%j.out",
        "#SBATCH --open-mode=append",
        "#SBATCH --requeue",
        "#SBATCH --signal=TERM@90",
        r"checkpoints='my'\''run'",
        concat!(
            "    /opt/deeppool train --plan plan.json --model digits-cnn --data digits ",
            r"--checkpoint 'my'\''run' --resume"
        ),
        r#"if [ "$restarts" -ge 5 ]; then"#,
    ] {
        assert!(script.lines().any(|there| there == line), "{line}: {script}");
    }
    assert_eq!(script.matches("--cpus-per-task=6").count(), 2, "srun does not take it over from sbatch");
    let said = succeed(
        path,
        &format!("{SLURM} --nodes 1 --ranks-per-node 2 -o job.sh -- {TRAIN} --batch 32 --resume"),
    );
    assert!(said.contains("job.sh") && said.contains("ranks: 2"), "{said}");
    let script = std::fs::read_to_string(path.join("job.sh")).unwrap();
    assert!(script.contains("--cpus-per-task=1") && !script.contains("--time"), "{script}");
    assert!(script.contains("--batch 32 --resume --checkpoint \"$checkpoints\""), "{script}");
    assert!(script.contains("checkpoints=\"run-$SLURM_JOB_ID\"") && script.matches("--resume").count() == 1);
    let read = Command::new("bash").arg("-n").arg(path.join("job.sh")).status().unwrap();
    assert!(read.success());
}

#[test]
fn ranks_are_divided_equally_among_nodes() {
    let folder = folder_with_plan();
    for (layout, nodes, of_node) in [
        ("--plan plan.json", 1, 4),
        ("--plan plan.json --nodes 4", 4, 1),
        ("--plan plan.json --ranks-per-node 2", 2, 2),
        ("--plan plan.json --nodes 2 --ranks-per-node 2", 2, 2),
    ] {
        let script = succeed(folder.path(), &format!("{SLURM} {layout} -o - -- {TRAIN}"));
        let expected = format!("#SBATCH --nodes={nodes}\n#SBATCH --ntasks-per-node={of_node}\n");
        assert!(script.contains(&expected), "{layout}: {script}");
    }
    let script = succeed(folder.path(), &format!("{SLURM} --nodes 2 -o - -- {TRAIN} --batch 32 --ranks 6"));
    assert!(script.contains("--ntasks-per-node=3"), "{script}");
}

#[test]
fn invalid_jobs_are_errors() {
    let folder = folder_with_plan();
    let path = folder.path();
    for (options, command, says) in [
        ("--plan plan.json --nodes 3", TRAIN, "cannot be shared equally by 3 nodes"),
        ("--plan plan.json --nodes 3 --ranks-per-node 2", TRAIN, "3 nodes of 2 ranks each have 6"),
        ("--plan plan.json --ranks-per-node 3", TRAIN, "--nodes times --ranks-per-node has to be 4"),
        ("--plan plan.json --nodes 8", TRAIN, "cannot be shared equally by 8 nodes"),
        ("--nodes 2", "train --model digits-cnn --data digits --batch 32", "say how many ranks"),
        (
            "--plan plan.json",
            "train --model digits-cnn --data digits --ranks 3",
            "for 4 ranks, and there are 3",
        ),
        ("--plan plan.json", "train --model digits-cnn --data digits --plan plan.json", "multiple times"),
        ("--plan none.json", TRAIN, "none.json"),
        ("--plan plan.json", "plan --model digits-cnn", "only `train`"),
        ("--plan plan.json", "train --model digits-cnn --dat digits", "--dat"),
        ("--plan plan.json", "train --model digits-cnn", "--data"),
        ("--plan plan.json --time 1h", TRAIN, "2-12 (days, hours)"),
        ("--plan plan.json --time 1", TRAIN, "before a warning of 60 seconds"),
        ("--plan plan.json --job-name a'b", TRAIN, "letters, digits"),
        ("--plan plan.json --partition=-x", TRAIN, "letters, digits"),
        ("--plan plan.json --program deeppool", TRAIN, "whole path"),
    ] {
        let slurm = if options.contains("--program") { "slurm --shared-tmp" } else { SLURM };
        refused(path, &format!("{slurm} {options} -o job.sh -- {command}"), says);
    }
    refused(path, "slurm --plan plan.json -o job.sh", "<COMMAND>");
    refused(path, &format!("{SLURM} --plan plan.json -o no/such/job.sh -- {TRAIN}"), "does not exist");
}

#[test]
fn unshared_folders_are_errors() {
    let folder = folder_with_plan();
    for word in ["--checkpoint=/tmp/run", "--init /dev/shm/weights", "--link /var/tmp/link.json"] {
        let command = format!("slurm --plan plan.json --program /opt/deeppool -o job.sh -- {TRAIN} {word}");
        refused(folder.path(), &command, "of its own");
    }
    let data = "slurm --plan plan.json --program /opt/deeppool -o job.sh -- train --model digits-cnn --data \
        mnist:/tmp/x";
    refused(folder.path(), data, "/tmp/x: each node has a /tmp of its own");
    let program = format!("slurm --plan plan.json --program /tmp/deeppool -o job.sh -- {TRAIN}");
    refused(folder.path(), &program, "/tmp/deeppool");
}

/// The command writes a script without MPI, which the program of the job needs.
#[test]
fn builds_without_mpi_print_a_warning() {
    let folder = folder_with_plan();
    let output =
        deeppool(folder.path(), &format!("slurm --shared-tmp --plan plan.json -o job.sh -- {TRAIN}"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert_eq!(said.contains("without MPI"), !cfg!(feature = "mpi"), "{said}");
    assert!(folder.path().join("job.sh").is_file());
}
