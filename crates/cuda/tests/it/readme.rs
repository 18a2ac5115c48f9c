//! The example of the README, executed on an emulated GPU.
#![allow(unsafe_code)]

use cuda::{Buffer, Driver, LaunchShape, Module, Nvrtc, Priority, Result, Stream};
use cuda_emulator::Emulator;

/// The README's source, compiled by NVRTC 13.0 for `compute_80`.
const PTX: &str = include_str!("scale.ptx");

fn readme() -> &'static str {
    include_str!("../../README.md")
}

/// Returns the PTX of the README's source, compiled if there is NVRTC.
fn ptx() -> Result<String> {
    let source = readme().split_once("r#\"").unwrap().1.split_once("\"#").unwrap().0;
    match Nvrtc::open() {
        Ok(nvrtc) => nvrtc.compile(source, &["--gpu-architecture=compute_80"]),
        Err(error) => {
            println!("SKIPPED: compiling the example: {error}");
            Ok(PTX.to_owned())
        }
    }
}

fn example(context: &cuda::Context, ptx: &str) -> Result<()> {
    let scale = Module::load(context, ptx)?.kernel("scale")?;
    let stream = Stream::new(context, Priority::Foreground)?;
    let x = Buffer::from_slice(context, &[1.0_f32; 1000])?;
    // SAFETY: these are the kernel's parameters, and it checks the bounds.
    let double = |stream: &Stream| unsafe {
        scale.launch(stream, LaunchShape::linear(4, 256), &[(&x).into(), 2.0_f32.into(), 1000_u32.into()])
    };
    double(&stream)?;
    let graph = stream.capture(double)?.instantiate()?; // Keeps `x` and the module alive.
    for _ in 0..3 {
        graph.launch(&stream)?;
    }
    assert_eq!(x.to_vec(&stream)?, [16.0; 1000]);
    Ok(())
}

#[test]
fn readme_example_runs_on_an_emulated_gpu() {
    let emulator = Emulator::new().unwrap();
    let context = Driver::open_first_of(&[Emulator::library().unwrap()]).unwrap().context(0).unwrap();
    for ptx in [PTX, &ptx().unwrap()] {
        example(&context, ptx).unwrap();
    }
    context.close().unwrap();
    assert_eq!(emulator.leaks(), [""; 0]);
    // NVRTC asks the driver for it.
    let misuse = emulator.misuse().into_iter().filter(|line| !line.starts_with("cuGetExportTable"));
    assert_eq!(misuse.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn readme_has_the_example() {
    let file = include_str!("readme.rs");
    let body = file.split_once("fn example(").unwrap().1.split_once("    let stream").unwrap().1;
    let body = body.split_once("\n}\n").unwrap().0;
    let body = body.replace("(context, ", "(&context, ");
    assert!(readme().contains(&format!("    let stream{body}\n}}\n")), "{body}");
}

#[test]
fn errors_of_compilation_are_one_line() {
    // NVRTC calls the driver, which other tests check for misuse meanwhile.
    let _emulator = Emulator::new().unwrap();
    let Ok(nvrtc) = Nvrtc::open() else {
        println!("SKIPPED: no NVRTC");
        return;
    };
    let message = nvrtc.compile("__global__ void f( {", &[]).unwrap_err().to_string();
    assert!(message.starts_with("NVRTC: ") && message.lines().count() == 1, "{message}");
}
