//! Errors of the CUDA engine.

use std::error::Error;
use std::process::Command;

use cuda::Buffer;
use cuda_emulator::Setting;
use layer_engine::{
    CudaEngine, CudaQueue, Engine, EngineError, ImageLayout, KernelChoice, KernelSpec, LaunchContext, Pass,
    Precision, Shard,
};
use layer_graph::{Conv2d, Dropout, Layer, LayerGraph, LayerKind, Opaque, Shape};

use super::{emulated_gpu, emulator, on_device, on_emulator, on_gpu};
use crate::single_layer::layer;

const CONTEXT: LaunchContext = LaunchContext { seed: 7, iteration: 3, learning_rate: 0.1 };

/// An error on the device is reported by the next wait, with the name of the kernel. After it
/// nothing works.
#[test]
fn illegal_access_error_names_the_kernel() {
    #![allow(unsafe_code)]
    let Some(emulator) = emulator(0) else { return };
    let engine = CudaEngine::on(&emulated_gpu().unwrap());
    let mut queue = engine.queue().unwrap();
    let sum = engine.prepare(&KernelSpec::Sum { terms: 1, elements: 3 }, Precision::F32).unwrap();
    // SAFETY: the device is emulated, and detects that the address is not allocated.
    let nowhere = [unsafe { Buffer::from_raw(engine.context(), 4096, 3, ()) }];
    let enqueued = queue.launch(&sum, &nowhere, &nowhere);
    let error = enqueued.and_then(|()| engine.synchronize(&mut queue)).unwrap_err();
    assert!(error.to_string().contains("`Sum`") && error.to_string().contains("ILLEGAL_ADDRESS"), "{error}");
    assert!(engine.allocate(1).is_err());
    drop((sum, queue, nowhere, engine));
    assert!(emulator.faults()[0].contains("kernel sum_terms"), "{:?}", emulator.faults());
    assert!(emulator.misuse().is_empty(), "{:?}", emulator.misuse());
}

#[test]
fn allocation_beyond_device_memory_is_an_error() {
    on_emulator(0, |engine, emulator| {
        emulator.set(Setting::MemoryBytes, 1 << 20);
        let error = engine.allocate(1 << 20).unwrap_err();
        assert!(matches!(error, EngineError::OutOfMemory { elements: 0x10_0000, .. }), "{error}");
    });
}

/// With channels last, a layer without a kernel for images is an error of its own, also for shards
/// without samples, and so is a convolution without cuDNN. Layers without images are computed.
#[test]
fn layers_without_kernels_for_channels_last_are_rejected() {
    on_device(0, |engine| {
        let image = [Shape::image(2, 3, 4)];
        let own = engine.clone().with_image_layout(ImageLayout::ChannelsLast).with_choice(KernelChoice::Own);
        let prepare = |layer: &Layer, samples| {
            let spec = KernelSpec::Layer { layer, pass: Pass::Forward, shard: Shard::whole(samples) };
            own.prepare(&spec, Precision::F32)
        };
        for (kind, samples, problem) in [
            (LayerKind::Softmax, 0, "no kernel for images"),
            (LayerKind::Softmax, 2, "no kernel for images"),
            (Conv2d::new(2, 1).into(), 2, "own kernels need channels first"),
        ] {
            let error = prepare(&layer(kind, &image), samples).unwrap_err();
            assert!(matches!(error, EngineError::ChannelsLast { .. }), "{error}");
            assert!(error.to_string().contains(problem), "{error}");
        }
        prepare(&layer(LayerKind::Softmax, &[Shape::sequence(3, 4)]), 2).unwrap();
        prepare(&layer(LayerKind::Relu, &image), 2).unwrap();
    });
}

#[test]
fn unsupported_kernels_are_rejected() {
    on_device(0, |engine| {
        let sum = KernelSpec::Sum { terms: 1, elements: 1 };
        assert!(matches!(engine.prepare(&sum, Precision::F64), Err(EngineError::Precision { .. })));
        let none = KernelSpec::Sum { terms: 0, elements: 1 };
        assert!(matches!(engine.prepare(&none, Precision::F32), Err(EngineError::Operand { .. })));
        let mut net = LayerGraph::new("net", Shape::features(2)).unwrap();
        let opaque = net.add("op", Opaque::new("fft", Shape::features(2)), [net.input()]).unwrap();
        let relu = net.add("relu", LayerKind::Relu, [opaque]).unwrap();
        for (id, pass, samples) in [(opaque, Pass::Forward, 0), (opaque, Pass::Forward, 1)] {
            let spec = KernelSpec::Layer { layer: net.layer(id), pass, shard: Shard::whole(samples) };
            assert!(matches!(engine.prepare(&spec, Precision::F32), Err(EngineError::Opaque { .. })));
        }
        let layer = net.layer(relu);
        let spec = KernelSpec::Layer { layer, pass: Pass::ForwardMoments, shard: Shard::whole(1) };
        assert!(matches!(engine.prepare(&spec, Precision::F32), Err(EngineError::Unsupported { .. })));
    });
}

/// Each call of the driver fails in turn. Each failure is an error of one line without a panic or a
/// leak.
#[test]
fn every_failed_driver_call_is_an_error() {
    let Some(emulator) = emulator(0) else { return };
    let mut net = LayerGraph::new("net", Shape::features(9)).unwrap();
    let id = net.add("drop", Dropout::new(0.5), [net.input()]).unwrap();
    let spec = KernelSpec::Layer { layer: net.layer(id), pass: Pass::Forward, shard: Shard::whole(1) };
    let run = || -> Result<(), Box<dyn Error>> {
        let engine = CudaEngine::on(&emulated_gpu()?);
        let mut queue = engine.queue()?;
        let [mut x, mut y] = [engine.allocate(9)?, engine.allocate(9)?];
        engine.upload(&[1.0; 9], &mut x, &mut queue)?;
        let mut kernel = engine.prepare(&spec, Precision::F32)?;
        let norm = KernelSpec::SquaredNorm { elements: vec![9] };
        drop(engine.prepare(&norm, Precision::F32)?);
        let mut body =
            |queue: &mut CudaQueue| engine.enqueue(&mut kernel, &[&x], &mut [&mut y], &CONTEXT, queue);
        body(&mut queue)?;
        engine.time(&mut queue, &mut body, &mut |stopwatch| stopwatch(2).map(drop))?;
        Ok(engine.download(&y, &mut [0.0; 9], &mut queue)?)
    };
    run().unwrap();
    let calls = emulator.calls();
    let mut errors = 0;
    for call in 1..=calls {
        emulator.reset();
        // CUDA_ERROR_OPERATING_SYSTEM, which no code expects.
        emulator.fail_call(call, 304);
        let result = run();
        let failed = emulator.log()[call as usize - 1].clone();
        if let Err(error) = &result {
            errors += 1;
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
        }
        assert!(emulator.leaks().is_empty(), "{failed}: {result:?}: {:?}", emulator.leaks());
    }
    println!("{calls} calls, of which {errors} matter");
    assert!(errors > 40);
}

/// Runs in separate processes, with another environment.
#[test]
fn missing_driver_or_device_is_one_clear_error() {
    const DEVICE: &str = "CUDA_ENGINE_DEVICE";
    if let Ok(device) = std::env::var(DEVICE) {
        match CudaEngine::new(device.parse().unwrap()) {
            Ok(engine) => println!("FOUND: {}", engine.describe().name),
            Err(error) => println!("ERROR: {error}"),
        }
        return;
    }
    let test = "cuda::errors::missing_driver_or_device_is_one_clear_error";
    let open = |device: &str, emulated_gpus: &str| {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(DEVICE, device)
            .env("DEEPPOOL_EMULATED_GPUS", emulated_gpus)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}");
        text.lines().find(|line| line.contains("FOUND: ") || line.contains("ERROR: ")).unwrap().to_owned()
    };
    let line = open("0", "");
    assert!(
        line.contains("FOUND")
            || line.contains("CUDA device 0 cannot be used: CUDA's driver is not available"),
        "{line}"
    );
    if on_gpu() {
        println!("SKIPPED: it needs emulated GPUs");
        return;
    }
    let line = open("0", "2");
    assert!(line.contains("FOUND: Emulated CUDA device"), "{line}");
    let line = open("2", "2");
    assert!(line.contains("CUDA device 2 cannot be used: device 2 was requested and there are 2"), "{line}");
}
