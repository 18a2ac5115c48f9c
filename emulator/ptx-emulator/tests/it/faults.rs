//! Faults: detection and location.

use crate::{
    gpu::{Gpu, arguments},
    training,
};
use ptx_emulator::{AddressState, Dimensions, Fault, FaultKind, LaunchError, MemorySpace, Options};

/// Returns a kernel with the given body. It has registers of all kinds, and the argument `out` in
/// `%rd1`.
pub(crate) fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry test(.param .u64 out) {{
        .reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<20>; .reg .f32 %f<20>; .reg .b64 %rd<20>; \
        .reg .f64 %fd<20>;
        .shared .align 16 .b8 tile[256];
        ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2; \
        mov.u64 %rd4, tile;
        add.s64 %rd5, %rd4, %rd2;
        {body}
        ret; }}"
    )
}

/// Returns the fault of a kernel with the given body, in one block of `threads` threads on 1,024
/// bytes of memory. It must be the same with and without write tracking.
#[track_caller]
fn fault(body: &str, threads: u32, options: &Options) -> Fault {
    let of = |mut gpu: Gpu| {
        gpu.options = options.clone();
        let out = gpu.allocate(1024);
        match gpu.launch("test", Dimensions::linear(1, threads), &arguments![out]) {
            Err(LaunchError::Fault(fault)) => *fault,
            other => panic!("{other:?}"),
        }
    };
    let found = of(Gpu::new(&kernel(body)));
    if !options.check_uninitialised {
        assert_eq!(found, of(Gpu::plain(&kernel(body))));
    }
    found
}

fn checked() -> Options {
    training::options(0)
}

#[test]
fn invalid_addresses_are_faults() {
    let found = fault("st.global.u32 [%rd3], %r1;", 257, &Options::default());
    assert_eq!((found.thread, found.ptx_line), ([256, 0, 0], 9));
    let FaultKind::IllegalAddress {
        write: true,
        bytes: 4,
        state: AddressState::PastTheEnd { bytes: 1024, .. },
        ..
    } = found.kind
    else {
        panic!("{found}")
    };
    let found = fault("mov.u64 %rd6, 0; ld.global.u8 %r2, [%rd6];", 1, &Options::default());
    assert!(
        matches!(
            found.kind,
            FaultKind::IllegalAddress { write: false, state: AddressState::Unallocated, .. }
        ),
        "{found}"
    );
    let found = fault("ld.shared.v2.u32 {%r2, %r3}, [%rd4+256];", 32, &Options::default());
    assert!(
        matches!(
            found.kind,
            FaultKind::OutOfBounds { space: MemorySpace::Shared, offset: 256, size: 256, .. }
        ),
        "{found}"
    );
    // The last lane alone, the first of the lanes whose guard is true, and a pair whose second half
    // is outside.
    let found = fault("ld.global.u32 %r2, [%rd3+900];", 32, &Options::default());
    assert_eq!(found.thread, [31, 0, 0]);
    let found = fault(
        "setp.gt.u32 %p1, %r1, 7; @%p1 add.s64 %rd3, %rd3, 4096; @%p1 st.global.u32 [%rd3], %r1;",
        32,
        &Options::default(),
    );
    assert_eq!(found.thread, [8, 0, 0]);
    let found =
        fault("add.s64 %rd3, %rd3, %rd2; ld.global.v2.u32 {%r2, %r3}, [%rd3+776];", 32, &Options::default());
    assert_eq!(found.thread, [31, 0, 0]);
    let found = fault("ld.shared.u32 %r2, [%rd5+132];", 32, &Options::default());
    assert_eq!(found.thread, [31, 0, 0]);
    let found = fault("sub.s64 %rd5, %rd5, %rd4; ld.shared.u32 %r2, [%rd5+-4];", 32, &Options::default());
    assert_eq!(found.thread, [0, 0, 0]);
    // Parameters are 8 bytes long, and are given by an address in a register.
    let parameter = |offset: &str| {
        let body = format!("mov.b64 %rd6, out; add.s64 %rd6, %rd6, {offset}; ld.param.u32 %r2, [%rd6+4];");
        fault(&body, 32, &Options::default())
    };
    let found = parameter("%rd2");
    assert_eq!(found.thread, [1, 0, 0]);
    assert!(matches!(found.kind, FaultKind::OutOfBounds { space: MemorySpace::Parameter, .. }), "{found}");
    let found = parameter("2");
    assert!(matches!(found.kind, FaultKind::Misaligned { space: MemorySpace::Parameter, .. }), "{found}");
    let found = fault("ld.global.u32 %r2, [%rd1+2];", 32, &Options::default());
    assert!(
        matches!(found.kind, FaultKind::Misaligned { space: MemorySpace::Global, bytes: 4, .. }),
        "{found}"
    );
    let found = fault("ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%rd4+8];", 32, &Options::default());
    assert!(
        matches!(found.kind, FaultKind::Misaligned { space: MemorySpace::Shared, bytes: 16, .. }),
        "{found}"
    );
}

#[test]
fn reads_of_freed_and_uninitialised_memory_are_faults() {
    let mut gpu = Gpu::new(&kernel("ld.global.u32 %r2, [%rd3];"));
    let out = gpu.allocate(128);
    gpu.run("test", Dimensions::linear(1, 32), &arguments![out]);
    gpu.options = checked();
    let found = gpu.launch("test", Dimensions::linear(1, 32), &arguments![out]).unwrap_err();
    assert!(found.to_string().starts_with("uninitialised: 4 bytes"), "{found}");
    gpu.memory.free(out).unwrap();
    let found = gpu.launch("test", Dimensions::linear(1, 32), &arguments![out]).unwrap_err();
    assert!(found.to_string().contains("the 128 bytes at 0xd0000000000 were freed"), "{found}");
    let found = fault("ld.shared.u8 %r2, [%rd5];", 32, &checked());
    assert!(matches!(found.kind, FaultKind::Uninitialised { space: MemorySpace::Shared, .. }), "{found}");
}

#[test]
fn races_on_shared_memory_are_faults() {
    let exchange = |between: &str, other: &str| {
        format!(
            "st.shared.u32 [%rd5], %r1; {between} xor.b32 %r2, %r1, {other}; mul.wide.u32 %rd6, %r2, 4; \
             add.s64 %rd6, %rd6, %rd4; ld.shared.u32 %r3, [%rd6];"
        )
    };
    let found = fault(&exchange("", "32"), 64, &checked());
    assert!(
        matches!(found.kind, FaultKind::Race { .. }) || matches!(found.kind, FaultKind::Uninitialised { .. }),
        "{found}"
    );
    let found = fault(&exchange("", "1"), 32, &checked());
    assert!(matches!(found.kind, FaultKind::Race { write: false, .. }), "{found}");
    for (between, other) in [("bar.sync 0;", "32"), ("bar.warp.sync -1;", "1")] {
        let mut gpu = Gpu::new(&kernel(&exchange(between, other)));
        gpu.options = checked();
        let out = gpu.allocate(128);
        gpu.run("test", Dimensions::linear(1, 64), &arguments![out]);
    }
    let found = fault(&exchange("bar.warp.sync -1;", "32"), 64, &training::options(3));
    assert!(matches!(found.kind, FaultKind::Race { .. } | FaultKind::Uninitialised { .. }), "{found}");
}

#[test]
fn deadlocks_endless_loops_and_traps_are_faults() {
    let found = fault("setp.lt.u32 %p1, %r1, 32; @%p1 bar.sync 0, 96;", 64, &Options::default());
    assert!(matches!(found.kind, FaultKind::Deadlock { waits_for: "a barrier of the block" }), "{found}");
    let mut options = Options::default();
    options.max_instructions = 100_000;
    let found = fault("again: bra again;", 64, &options);
    assert!(matches!(found.kind, FaultKind::Watchdog { instructions: 100_000 }), "{found}");
    let found = fault("trap;", 1, &Options::default());
    assert_eq!(found.kind, FaultKind::Trap);
    let found = fault("mov.u32 %r2, 1; shfl.sync.idx.b32 %r3, %r1, 0, 31, %r2;", 32, &Options::default());
    assert!(matches!(found.kind, FaultKind::LaneMask { mask: 1, .. }), "{found}");
}

#[test]
fn lanes_of_a_warp_may_wait_for_each_other() {
    // Lane 0 spins until lane 1, which runs code after the loop, has written.
    let mut gpu = Gpu::new(&kernel(
        "setp.ne.u32 %p1, %r1, 0; @%p1 bra write;
         again: ld.volatile.global.u32 %r2, [%rd1]; setp.eq.u32 %p2, %r2, 0; @%p2 bra again; bra done;
         write: mov.u32 %r3, 7; st.volatile.global.u32 [%rd1], %r3; done:",
    ));
    gpu.options.max_instructions = 1_000_000;
    let out = gpu.zeros::<u32>(1);
    gpu.run("test", Dimensions::linear(1, 2), &arguments![out]);
    assert_eq!(gpu.download::<u32>(out, 1), [7]);
}

#[test]
fn faults_name_the_source_line() {
    let mut gpu = Gpu::new(training::PTX);
    let short = gpu.zeros::<f32>(10);
    let output = gpu.zeros::<f32>(20);
    let found =
        gpu.launch("gelu", Dimensions::linear(1, 32), &arguments![20_i32, short, output]).unwrap_err();
    let source = include_str!("../kernels/training.cu");
    let line = source.lines().position(|line| line.contains("erff")).unwrap() + 1;
    assert!(found.to_string().ends_with(&format!("(training.cu:{line})")), "{found}");
}

#[test]
fn unsupported_instructions_are_errors_with_their_line() {
    for (body, named) in [
        ("add.rz.f64 %fd1, %fd2, %fd3;", "add.rz.f64"),
        ("mma.sync.aligned.m8n8k4 %r1, %r2;", "mma.sync.aligned.m8n8k4"),
        ("call foo;", "call"),
        ("setp.lt.f16 %p1, %h1, %h2;", "setp.lt.f16"),
        ("cvt.f32.f64 %f1, %fd1;", "cvt.f32.f64"),
        ("ld.global.v3.u32 {%r2, %r3, %r4}, [%rd1];", "ld.global.v3.u32"),
    ] {
        let error =
            ptx_emulator::Module::load(&kernel(body), &mut ptx_emulator::Memory::new()).err().unwrap();
        assert_eq!(error.to_string(), format!("line 9: `{named}` is not supported"));
    }
    for body in [
        "add.u32 %r1, %rd1, 1;",
        "add.u32 %r1, %r2;",
        "bra nowhere;",
        "mov.u32 %r99, 0;",
        "ld.param.u64 %rd1, [out+4];",
    ] {
        let error =
            ptx_emulator::Module::load(&kernel(body), &mut ptx_emulator::Memory::new()).err().unwrap();
        assert!(error.to_string().starts_with("line 9: "), "{error}");
    }
}
