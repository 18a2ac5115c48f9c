//! Finds a missing barrier in a kernel that reverses an array in shared memory.
//!
//!     cargo run -p ptx-emulator --example find_race

use ptx_emulator::{Dimensions, LaunchError, Memory, Module, Options};

/// Returns a kernel that writes the thread's index to shared memory, executes `barrier`, and reads
/// the value of the opposite thread.
fn reverse(barrier: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64
        .visible .entry reverse(.param .u64 out) {{
        .reg .b32 %r<4>; .reg .b64 %rd<8>;
        .shared .align 4 .b8 tile[256];
        ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4;
        mov.u64 %rd3, tile; add.s64 %rd4, %rd3, %rd2; st.shared.u32 [%rd4], %r1;
        {barrier}
        sub.s64 %rd5, %rd3, %rd2; ld.shared.u32 %r2, [%rd5+252];
        add.s64 %rd6, %rd1, %rd2; st.global.u32 [%rd6], %r2;
        ret; }}"
    )
}

fn run(ptx: &str, options: &Options) -> Result<u32, LaunchError> {
    let mut memory = Memory::new();
    let module = Module::load(ptx, &mut memory).expect("the kernel is supported");
    let out = memory.allocate(64 * 4).expect("256 bytes are available");
    module.launch(&memory, "reverse", Dimensions::linear(1, 64), &[&out.to_le_bytes()], options)?;
    let mut first = [0; 4];
    memory.read(out, &mut first).expect("the memory is allocated");
    Ok(u32::from_le_bytes(first))
}

fn main() {
    let mut options = Options::default();
    options.check_races = true;
    for (label, barrier) in [("with a barrier", "bar.sync 0;"), ("without a barrier", "")] {
        match run(&reverse(barrier), &options) {
            Ok(first) => println!("{label}: no race, the first value is {first}"),
            Err(error) => println!("{label}: {error}"),
        }
    }
}
