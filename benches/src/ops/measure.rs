//! Measurement of the kernels of a program.

use anyhow::Context;
use deeppool::program::{BufferId, LowerOptions, Op, Placement, Step, lower_training};
use deeppool::runtime::{ImageOrder, fastest_image_order, kernel_groups, kernel_precision, kernel_spec};
use layer_engine::{CudaEngine, Engine, ImageLayout, KernelChoice, KernelPart, KernelSpec, Precision};
use layer_graph::LayerGraph;
use layer_profile::Profiler;

use super::report::{OpCandidate, OpPart, OpReport, OpRow, OpStep};
use crate::progress;
use crate::report_file::micros;

/// Times every kernel of one training iteration of a network on one GPU, and every candidate of its
/// parts: `batch` samples in a precision and an order of images, or, without one, in the fastest.
/// `repeats` is the number of repeats of each measurement.
///
/// # Errors
/// If the network cannot be trained, or for an error of the device.
pub fn measure(
    engine: &CudaEngine,
    network: &LayerGraph,
    (batch, precision, layout): (usize, Precision, Option<ImageLayout>),
    repeats: usize,
) -> anyhow::Result<OpReport> {
    let placement = Placement::single(network)?;
    let lowered =
        lower_training(network, &placement, batch, &LowerOptions::default().with_precision(precision))?;
    let program = lowered.of_rank(0)?;
    let engine = engine.clone().with_choice(KernelChoice::Fastest);
    let programs = std::slice::from_ref(&lowered);
    let order = match layout {
        Some(layout) => ImageOrder::configured(layout),
        None => fastest_image_order(&engine, network, programs, &[])?,
    };
    let engine = &engine.with_image_layout(order.layout);
    let profiler = Profiler::new(engine).repeats(repeats).precision(precision);
    let device = engine.describe();
    let emulated = cuda::emulated::library()?.is_some();
    let mut report = OpReport::new(network.name(), (batch, precision, repeats), &order, (&device, emulated));
    let groups = kernel_groups(network, [program]);
    let bar = progress::bar(groups.len());
    for steps in groups {
        let (_, step) = steps[0];
        let Some(spec) = kernel_spec(network, program, step) else { continue };
        bar.set_message(step.label.clone());
        let scalars = |ids: &[BufferId]| -> Vec<usize> {
            ids.iter().map(|id| program.buffers[id.0].scalars()).collect()
        };
        let (reads, writes) = (scalars(&step.reads), scalars(&step.writes));
        let precision = kernel_precision(program, step, &spec, precision);
        let kernel = engine.prepare(&spec, precision).with_context(|| step.label.clone())?;
        let launches = kernel.launches();
        let (candidate, parts) = described_parts(kernel.parts());
        let timed = profiler.time_kernel(kernel, &spec, &reads, &writes);
        let timed = timed.with_context(|| step.label.clone())?;
        let operands: usize = reads.iter().chain(&writes).sum();
        report.rows.push(OpRow {
            steps: steps.iter().map(|(_, step)| described(network, step)).collect(),
            operation: operation(&spec),
            candidate,
            parts,
            launches,
            bytes: 4 * operands as u64,
            time_us: micros(timed.time),
            deviation_us: micros(timed.spread.deviation),
            is_stable: !timed.spread.warm_up_unstable,
        });
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(report)
}

/// Returns the chosen candidates of a kernel's parts as one text, and all candidates.
fn described_parts(parts: &[KernelPart]) -> (String, Vec<OpPart>) {
    let chosen: Vec<&str> = parts.iter().map(|part| part.chosen.as_str()).collect();
    let all = parts.iter().map(|part| OpPart {
        part: part.part.into(),
        chosen: part.chosen.clone(),
        reason: part.reason.clone(),
        candidates: part
            .candidates
            .iter()
            .map(|candidate| OpCandidate {
                name: candidate.name.clone(),
                time_us: candidate.time.map(micros),
            })
            .collect(),
    });
    (if chosen.is_empty() { "own".into() } else { chosen.join("; ") }, all.collect())
}

/// Returns a short description of a kernel: the kind of layer with its shapes and the pass, or the
/// kind of a kernel that belongs to no layer.
fn operation(spec: &KernelSpec<'_>) -> String {
    match spec {
        KernelSpec::Layer { layer, pass, .. } => {
            let inputs: Vec<String> = layer.input_shapes().iter().map(ToString::to_string).collect();
            let (kind, inputs, output) = (layer.kind().label(), inputs.join(" + "), layer.output_shape());
            format!("{kind} {inputs} -> {output}, {pass:?}")
        }
        other => {
            let text = format!("{other:?}");
            text.split([' ', '{']).next().unwrap_or_default().to_owned()
        }
    }
}

fn described(network: &LayerGraph, step: &Step) -> OpStep {
    let (phase, layer) = match &step.op {
        Op::Forward { layer, .. } => ("forward", Some(layer)),
        Op::Backward { layer, .. } => ("backward", Some(layer)),
        Op::SumGradients | Op::AddGradient | Op::ScaleGradient { .. } => ("backward", None),
        _ => ("update", None),
    };
    let layer = layer.map(|&layer| network.layer(layer).name().to_owned());
    OpStep { label: step.label.clone(), phase: phase.into(), layer }
}
