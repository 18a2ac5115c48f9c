//! A scenario that uses every function of the driver, cuBLASLt and cuDNN.
#![allow(unsafe_code)]

use std::num::NonZeroUsize;
use std::time::Duration;

use cuda::{
    Buffer, CapturedGraph, Context, Event, Gate, GreenContext, HostBuffer, MergeLimits, MergedGraph,
    Priority, Result, Stream, TimingRuns,
};
use cuda_emulator::Emulator;

use super::kernels::{kernels, launch, launch_all};
use super::{assert_no_misuse_or_leaks, convolutions, driver, products};

/// Functions of cuBLASLt and cuDNN that return a status and are called. `cudnnGetStream` is not: a
/// handle of this crate keeps its stream.
const LIBRARY_CALLS: [&str; 22] = [
    "cublasLtCreate",
    "cublasLtDestroy",
    "cublasLtMatmul",
    "cublasLtMatmulAlgoGetHeuristic",
    "cublasLtMatmulDescCreate",
    "cublasLtMatmulDescDestroy",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceDestroy",
    "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatrixLayoutCreate",
    "cublasLtMatrixLayoutDestroy",
    "cublasLtMatrixLayoutSetAttribute",
    "cudnnBackendCreateDescriptor",
    "cudnnBackendDestroyDescriptor",
    "cudnnBackendExecute",
    "cudnnBackendFinalize",
    "cudnnBackendGetAttribute",
    "cudnnBackendSetAttribute",
    "cudnnCreate",
    "cudnnDestroy",
    "cudnnSetStream",
];

/// Opens a device, uses it and closes it.
pub(crate) fn run_scenario() -> Result<()> {
    let context = driver()?.context(0)?;
    let used = use_memory(&context)
        .and_then(|()| use_graphs(&context))
        .and_then(|()| use_parts(&context))
        .and_then(|()| use_libraries(&context));
    used.and(context.close())
}

fn use_memory(context: &Context) -> Result<()> {
    context.device_name()?;
    context.synchronize()?;
    let stream = Stream::new(context, Priority::Background)?;
    let buffer = Buffer::<u32>::zeros(context, 4)?;
    buffer.upload(&stream, &[1; 4])?;
    buffer.fill(&stream, 7)?;
    assert_eq!(buffer.to_vec(&stream)?, [7; 4]);
    let of_stream = Buffer::in_stream(&stream, 4)?;
    let (mut host, from) = (HostBuffer::zeros(context, 2)?, HostBuffer::zeros(context, 1)?);
    of_stream.enqueue_copy(&stream, 0, &buffer, 0..4)?;
    // SAFETY: the stream is waited for while both live.
    unsafe {
        of_stream.enqueue_upload(&stream, &from)?;
        of_stream.enqueue_download(&stream, &mut host)?;
    }
    stream.synchronize()?;
    assert_eq!(host.as_slice(), [0, 7]);
    Ok(())
}

fn use_graphs(context: &Context) -> Result<()> {
    let stream = Stream::new(context, Priority::Background)?;
    let layers = kernels(context, &["a_10us", "b_20us", "c_30us"])?;
    let side = Stream::new(context, Priority::Background)?;
    let (fork, join) = (Event::untimed(&stream)?, Event::untimed(&side)?);
    let weights = Buffer::zeros(context, 2)?;
    let graph = stream.capture(|stream| {
        stream.record(&fork)?;
        side.wait_for(&fork)?;
        launch(&layers[0], stream)?;
        launch(&layers[1], &side)?;
        side.record(&join)?;
        stream.wait_for(&join)?;
        weights.fill_bytes(stream, 7)?;
        launch(&layers[2], stream)
    })?;
    let runs = [&weights];
    let cut = graph.cut(&stream, us(35), TimingRuns::restoring(NonZeroUsize::MIN, &runs))?;
    assert_eq!(weights.to_vec(&stream)?, [0.0; 2]);
    cut.pieces.iter().try_for_each(|piece| piece.executable.launch(&stream))?;
    let short = stream.capture(|stream| launch(&layers[0], stream))?;
    let graphs = [(graph, us(60)), (short, us(10))];
    let merged = MergedGraph::merge_consecutive(&graphs, MergeLimits::default())?;
    merged[0].executable.launch(&stream)?;
    CapturedGraph::chain([&graphs[0].0])?.set_priority(Priority::Foreground)?;
    stream.synchronize()?;
    assert!(stream.is_idle()?);
    Ok(())
}

fn use_parts(context: &Context) -> Result<()> {
    let stream = Stream::new(context, Priority::Foreground)?;
    let gate = Gate::new(context, &stream)?;
    let part = Stream::within(&GreenContext::new(context, 16)?, Priority::Background)?;
    let layers = kernels(context, &["a_10us", "b_20us"])?;
    let end = Event::timed(&part)?;
    gate.shut(&stream)?;
    gate.wait(&part)?;
    let enqueued = launch_all(&layers, &part).and_then(|()| part.record(&end));
    // The stream that waits would never end.
    gate.open(&stream).or_else(|error| gate.force_open(&stream).and(Err(error)))?;
    enqueued?;
    end.is_complete_beside_captures()?;
    while !end.is_complete()? {}
    part.wait_for_stream(&stream)?;
    part.synchronize()
}

fn use_libraries(context: &Context) -> Result<()> {
    let mut handle = convolutions::handle(context)?;
    let stream = handle.stream().clone();
    let prepared = convolutions::Prepared::new(context, &handle)?;
    prepared.enqueue(&mut handle)?;
    let (product, operands) = products::product(context)?;
    let graph = stream.capture(|stream| {
        prepared.enqueue(&mut handle)?;
        products::enqueue(&product, stream, &operands)
    })?;
    graph.instantiate()?.launch(&stream)?;
    let computed = vec![prepared.inner(&stream)?, operands.first(&stream)?];
    assert_eq!(computed, [36.0, 80.0]);
    Ok(())
}

fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

#[test]
fn scenario_uses_cuda_correctly() {
    let emulator = Emulator::new().unwrap();
    run_scenario().unwrap();
    assert_no_misuse_or_leaks(&emulator);
    let log = emulator.log();
    for name in LIBRARY_CALLS {
        assert!(log.iter().any(|call| call.contains(name)), "{name}: {log:#?}");
    }
}
