//! Measurement of the kernels of a program.

use std::collections::HashMap;

use anyhow::Context;
use deeppool::program::{BufferId, LowerOptions, Op, Placement, RankProgram, Step, lower_training};
use deeppool::runtime::kernel_spec;
use layer_engine::{CudaEngine, Engine, KernelChoice, KernelPart, KernelSpec, Precision};
use layer_graph::LayerGraph;
use layer_profile::Profiler;

use super::report::{OpCandidate, OpPart, OpReport, OpRow, OpStep};
use crate::progress;
use crate::report_file::micros;

/// Times every kernel of one training iteration of a network on one GPU, and every candidate of its
/// parts. `batch` is the number of
/// samples, `repeats` the number of repeats of each measurement.
///
/// # Errors
/// If the network cannot be trained, or for an error of the device.
pub fn measure(
    engine: &CudaEngine,
    network: &LayerGraph,
    batch: usize,
    repeats: usize,
) -> anyhow::Result<OpReport> {
    let placement = Placement::single(network)?;
    let lowered = lower_training(network, &placement, batch, &LowerOptions::default())?;
    let program = lowered.of_rank(0)?;
    let engine = &engine.clone().with_choice(KernelChoice::Fastest);
    let profiler = Profiler::new(engine).repeats(repeats);
    let device = engine.describe();
    let emulated = cuda::emulated::library()?.is_some();
    let mut report = OpReport::new(network.name(), batch, repeats, &device, emulated);
    let groups = groups(network, program);
    let bar = progress::bar(groups.len());
    for steps in groups {
        let step = steps[0];
        let Some(spec) = kernel_spec(network, program, step) else { continue };
        bar.set_message(step.label.clone());
        let elements = |ids: &[BufferId]| -> Vec<usize> {
            ids.iter().map(|id| program.buffers[id.0].elements).collect()
        };
        let (reads, writes) = (elements(&step.reads), elements(&step.writes));
        let prepared = || engine.prepare(&spec, Precision::F32);
        let kernel = prepared().with_context(|| step.label.clone())?;
        let launches = kernel.launches();
        let (candidate, parts) = described_parts(kernel.parts());
        let timed = profiler.time_kernel(kernel, &spec, &reads, &writes);
        let timed = timed.with_context(|| step.label.clone())?;
        let operands: usize = reads.iter().chain(&writes).sum();
        report.rows.push(OpRow {
            steps: steps.iter().map(|step| described(network, step)).collect(),
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

/// Returns the steps with a kernel, grouped by equal kernels, in the order of their first steps.
fn groups<'p>(network: &LayerGraph, program: &'p RankProgram) -> Vec<Vec<&'p Step>> {
    let mut groups: Vec<Vec<&Step>> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for step in &program.steps {
        let Some(spec) = kernel_spec(network, program, step) else { continue };
        let group = *known.entry(shape(&spec)).or_insert(groups.len());
        match groups.get_mut(group) {
            Some(steps) => steps.push(step),
            None => groups.push(vec![step]),
        }
    }
    groups
}

/// Returns a text that is equal for kernels that do the same work: that of a layer does not depend
/// on the layer's name.
fn shape(spec: &KernelSpec<'_>) -> String {
    match spec {
        KernelSpec::Layer { layer, pass, shard } => {
            format!("{:?} {:?} {pass:?} {shard:?}", layer.kind(), layer.input_shapes())
        }
        other => format!("{other:?}"),
    }
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use layer_graph::zoo;

    use super::*;

    #[test]
    fn kernels_of_equal_shape_are_one_group() {
        let network = zoo::model("resnet-18").unwrap();
        let placement = Placement::single(&network).unwrap();
        let lowered = lower_training(&network, &placement, 4, &LowerOptions::default()).unwrap();
        let program = lowered.of_rank(0).unwrap();
        let groups = groups(&network, program);
        let with_kernel = |step: &&Step| kernel_spec(&network, program, step).is_some();
        let steps = program.steps.iter().filter(with_kernel).count();
        assert_eq!(groups.iter().map(Vec::len).sum::<usize>(), steps);
        let labels: HashSet<&str> = groups.iter().flatten().map(|step| step.label.as_str()).collect();
        assert_eq!(labels.len(), steps);
        let group_of = |label: &str| {
            groups.iter().position(|steps| steps.iter().any(|step| step.label == label)).unwrap()
        };
        assert_eq!(group_of("forward layer1.0.conv1"), group_of("forward layer1.1.conv2"));
        assert_ne!(group_of("forward layer1.0.conv1"), group_of("backward layer1.0.conv1"));
        assert_ne!(group_of("forward layer2.0.conv1"), group_of("forward layer2.0.conv2"), "strides differ");
        for steps in &groups {
            let lengths = |step: &Step| {
                [&step.reads, &step.writes]
                    .map(|ids| ids.iter().map(|id| program.buffers[id.0].elements).collect::<Vec<_>>())
            };
            assert!(steps.iter().all(|step| lengths(step) == lengths(steps[0])), "{}", steps[0].label);
        }
    }
}
