//! Doubles a number by a kernel.

use ptx_emulator::{Dimensions, Memory, Module, Options};

const PTX: &str = ".version 8.0 .target sm_80 .address_size 64
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut memory = Memory::new();
    let module = Module::load(PTX, &mut memory)?;
    let values = memory.allocate(4)?;
    memory.write(values, &21.0_f32.to_le_bytes())?;
    let arguments: [&[u8]; 1] = [&values.to_le_bytes()];
    module.launch(&memory, "double", Dimensions::linear(1, 1), &arguments, &Options::default())?;
    let mut bytes = [0; 4];
    memory.read(values, &mut bytes)?;
    let doubled = f32::from_le_bytes(bytes);
    println!("21 doubled is {doubled}");
    assert_eq!(doubled, 42.0);
    Ok(())
}
