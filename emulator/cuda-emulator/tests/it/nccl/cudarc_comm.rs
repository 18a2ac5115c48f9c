//! Communicators of cudarc, in a child process that finds the library by its names.
#![allow(unsafe_code)]

use cuda_emulator::Emulator;
use cudarc::{
    driver::CudaContext,
    nccl::{Comm, ReduceOp},
};
use std::{env, fs, process::Command};

const CHILD: &str = "EMULATED_CUDA_TEST_CHILD";

/// Runs the test `child` in a process with the library in `LD_LIBRARY_PATH` and the given
/// variables. Returns whether it succeeds, and its output.
fn in_a_child(name: &str, variables: &[(&str, &str)]) -> (bool, String) {
    let folder = env::temp_dir().join(format!("emulated-cuda-{}-{name}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    Emulator::install(&folder).unwrap();
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "nccl::cudarc_comm::child", "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", &folder)
        .env(CHILD, "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    fs::remove_dir_all(&folder).unwrap();
    let output =
        String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
    (child.status.success(), output)
}

#[test]
fn unmodified_cudarc_finds_driver_and_nccl() {
    let (done, output) =
        in_a_child("right", &[("DEEPPOOL_EMULATED_GPUS", "4"), ("CUDA_EMULATOR_ORDER_SEED", "5")]);
    assert!(done && output.matches("sums: [10.0, 20.0]").count() == 4, "{output}");
}

#[test]
fn unknown_variables_are_named() {
    for (variable, value) in
        [("DEEPPOOL_EMULATED_GPUS", "9"), ("CUDA_EMULATOR_RACES", "1"), ("CUDA_EMULATOR_RACE_CHECK", "yes")]
    {
        let (done, output) = in_a_child(value, &[(variable, value)]);
        let why = format!("emulated CUDA: the environment has {variable}={value}, which is no setting");
        assert!(!done && output.contains(&why), "{output}");
    }
}

#[test]
#[ignore = "started by the test above, with the library in LD_LIBRARY_PATH"]
fn child() {
    assert!(env::var_os(CHILD).is_some(), "the test above starts it");
    let devices = CudaContext::device_count().unwrap();
    let streams: Vec<_> =
        (0..devices as usize).map(|device| CudaContext::new(device).unwrap().new_stream().unwrap()).collect();
    let comms = Comm::from_devices(streams.clone()).unwrap();
    let mut held: Vec<_> = (1..=devices)
        .zip(&streams)
        .map(|(rank, stream)| stream.clone_htod(&[rank as f32, 2.0 * rank as f32]).unwrap())
        .collect();
    cudarc::nccl::group_start().unwrap();
    for (comm, held) in comms.iter().zip(&mut held) {
        comm.all_reduce_in_place(held, &ReduceOp::Sum).unwrap();
    }
    cudarc::nccl::group_end().unwrap();
    for (stream, held) in streams.iter().zip(&held) {
        println!("sums: {:?}", stream.clone_dtoh(held).unwrap());
    }
}
