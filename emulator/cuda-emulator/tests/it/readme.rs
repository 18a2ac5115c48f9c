//! The example of the README, executed.
#![allow(unsafe_code)]

use cuda_emulator::Emulator;
use cudarc::{
    driver::{CudaContext, LaunchConfig, PushKernelArg},
    nvrtc::Ptx,
};

fn example() -> Result<(), Box<dyn std::error::Error>> {
    // Opens the library, which cudarc then finds. One test at a time holds it, and finds it reset.
    let emulator = Emulator::new()?;
    let gpu = CudaContext::new(0)?;
    let stream = gpu.new_stream()?;
    let ptx = ".version 8.0\n.target sm_80\n.address_size 64
    .visible .entry double(.param .u64 values) {
    .reg .f32 %f<2>; .reg .b32 %r<2>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [values];
    mov.u32 %r1, %tid.x;
    mad.wide.u32 %rd2, %r1, 4, %rd1;
    ld.global.f32 %f1, [%rd2];
    add.f32 %f1, %f1, %f1;
    st.global.f32 [%rd2], %f1;
    ret;
    }";
    let double = gpu.load_module(Ptx::from_src(ptx))?.load_function("double")?;
    let mut values = stream.clone_htod(&[1.5_f32; 32])?;
    // A block of 1024 threads on 32 values.
    // SAFETY: the emulator catches the accesses that are out of bounds.
    unsafe { stream.launch_builder(&double).arg(&mut values).launch(LaunchConfig::for_num_elems(32))? };
    // CUDA_ERROR_ILLEGAL_ADDRESS, and the context is lost, as on a GPU.
    assert!(stream.synchronize().is_err());
    assert_eq!(
        emulator.faults()[0],
        "device 0: illegal address: read of 4 bytes at 0xd0000000080: past the end of the 128 bytes \
         at 0xd0000000000, in kernel double, block [0, 0, 0], thread [32, 0, 0], PTX line 9"
    );
    emulator.reset();
    Ok(())
}

#[test]
fn readme_example_runs() {
    // SAFETY: loading a driver runs no code that matters.
    if unsafe { libloading::Library::new("libcuda.so") }.is_ok() {
        println!("SKIPPED: cudarc would open this machine's own libcuda.so");
        return;
    }
    example().unwrap();
    let file = include_str!("readme.rs");
    let body = file.split_once("-> Result<(), Box<dyn std::error::Error>> {\n").unwrap().1;
    let body = body.split_once("    emulator.reset();").unwrap().0;
    let lines: String =
        body.lines().map(|line| line.strip_prefix("    ").unwrap_or(line).to_owned() + "\n").collect();
    assert!(include_str!("../../README.md").contains(&lines), "README.md differs from this example");
}
