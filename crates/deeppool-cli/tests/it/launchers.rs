//! Launchers that start several processes which cannot be connected.

use std::path::Path;
use std::process::Output;

use tempfile::TempDir;

use crate::command::{command, files};

const TRAIN: &str = "train --model digits-cnn --data digits --ranks 1 --batch 32 --iterations 1";

fn run(folder: &Path, arguments: &str, variables: &[(&str, &str)]) -> Output {
    command(folder, arguments).envs(variables.iter().copied()).output().unwrap()
}

/// Checks that a call is refused in one line with all of `expected`, and creates no file.
fn refused_with(folder: &Path, arguments: &str, variables: &[(&str, &str)], expected: &[&str]) {
    let output = run(folder, arguments, variables);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{variables:?}: {errors}");
    assert!(output.stdout.is_empty() && files(folder).is_empty(), "{variables:?}");
    for expected in expected {
        assert!(errors.contains(expected), "{variables:?}: {expected}: {errors}");
    }
}

#[test]
fn processes_of_unsupported_launchers_do_not_train() {
    let folder = TempDir::new().unwrap();
    let ways_out = ["deeppool launch", "mpirun", "srun --mpi=pmix", "DEEPPOOL_LAUNCHER=none"];
    for (variables, launcher) in [
        (["PMI_RANK=0", "PMI_SIZE=4"], "MPICH, Intel MPI"),
        (["MV2_COMM_WORLD_RANK=0", "MV2_COMM_WORLD_SIZE=4"], "MVAPICH"),
        (["FLUX_TASK_RANK=0", "FLUX_JOB_SIZE=4"], "Flux"),
        (["PALS_RANKID=0", "PMI_SIZE=4"], "PALS"),
        (["JSM_NAMESPACE_RANK=0", "JSM_NAMESPACE_SIZE=4"], "jsrun"),
        (["HOROVOD_RANK=0", "HOROVOD_SIZE=4"], "horovodrun"),
        (["RANK=0", "WORLD_SIZE=4"], "MASTER_ADDR"),
    ] {
        let variables = variables.map(|variable| variable.split_once('=').unwrap());
        let (size, _) = variables[1];
        let evidence = format!("{size}=4");
        let expected = [&ways_out[..], &[launcher, &evidence]].concat();
        refused_with(folder.path(), &format!("{TRAIN} --checkpoint run"), &variables, &expected);
    }
    let pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "4")];
    let epochs = "epochs --model digits-cnn --data digits --target 0.9 --batches 32 -o curve.json";
    let profile = "profile --model digits-cnn --device a100 --batches 8 -o profile.json";
    for arguments in [TRAIN, epochs, profile, "launch --ranks 2 -- train --model digits-cnn"] {
        refused_with(folder.path(), arguments, &pmi, &["PMI_SIZE=4"]);
    }
}

#[test]
fn other_variables_of_launchers_do_not_hinder_training() {
    let folder = TempDir::new().unwrap();
    for variables in [
        &[("PMI_RANK", "0"), ("PMI_SIZE", "1")][..],
        &[("FLUX_TASK_RANK", "0"), ("FLUX_JOB_SIZE", "1")],
        &[("PMI_SIZE", "4")],
        &[("PMI_RANK", "0"), ("PMI_SIZE", "4"), ("DEEPPOOL_LAUNCHER", "none")],
        &[("MV2_COMM_WORLD_RANK", "3"), ("MV2_COMM_WORLD_SIZE", "4"), ("DEEPPOOL_LAUNCHER", "none")],
        &[("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4"), ("DEEPPOOL_LAUNCHER", "none")],
        &[("SLURM_STEP_NUM_TASKS", "4"), ("PMI_RANK", "1"), ("DEEPPOOL_LAUNCHER", "none")],
    ] {
        let output = run(folder.path(), TRAIN, variables);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{variables:?}: {errors}");
    }
    let unknown = [("DEEPPOOL_LAUNCHER", "mpich")];
    refused_with(folder.path(), TRAIN, &unknown, &["DEEPPOOL_LAUNCHER", "`mpich`", "`none`"]);
}

/// `srun --mpi=pmi2` sets the variables of PMI, too.
#[test]
fn known_launchers_come_before_unsupported_ones() {
    let folder = TempDir::new().unwrap();
    let srun = [("SLURM_STEP_NUM_TASKS", "4"), ("PMI_RANK", "0"), ("PMI_SIZE", "4")];
    refused_with(folder.path(), TRAIN, &srun, &["srun started several", "--mpi=pmix"]);
    let torchrun =
        [("MASTER_ADDR", "here"), ("RANK", "0"), ("WORLD_SIZE", "4"), ("PMI_RANK", "0"), ("PMI_SIZE", "4")];
    let train = TRAIN.replace("--ranks 1 ", "");
    refused_with(folder.path(), &train, &torchrun, &["torchrun started this"]);
    let outside = [("MASTER_ADDR", "here"), ("RANK", "5"), ("WORLD_SIZE", "1")];
    refused_with(folder.path(), &train, &outside, &["RANK=5", "a RANK outside WORLD_SIZE"]);
}

#[cfg(not(feature = "mpi"))]
#[test]
fn open_mpi_needs_a_build_with_mpi() {
    let folder = TempDir::new().unwrap();
    let open_mpi = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "4")];
    refused_with(folder.path(), TRAIN, &open_mpi, &["an MPI launcher started this", "--features mpi"]);
}
