//! The loss and the gradients of one batch in double precision on one processor, for comparison
//! with other frameworks.

use std::collections::BTreeMap;
use std::ops::Range;

use layer_engine::{CpuEngine, Engine, LaunchContext, Precision, Role, initial_statistics};
use layer_graph::LayerGraph;

use super::tensors::have_same_order;
use crate::Error;
use crate::program::{
    BatchPart, BufferSpec, Contents, LowerOptions, Op, Placement, RankProgram, Step, lower_training,
};
use crate::runtime::{kernel_spec, sample_weight};

/// Dimensions, outermost first, and elements in row-major order.
type Tensor = (Vec<usize>, Vec<f64>);

/// Loss of one batch and its gradients, computed by [`gradients`].
#[derive(Debug, Clone, PartialEq)]
pub struct Gradients {
    /// Mean loss over the batch: the weighted sum of those of all loss layers.
    pub loss: f64,
    /// Gradient of the mean loss with respect to each parameter, by the parameter's name:
    /// dimensions, outermost first, and elements in row-major order.
    pub of_parameters: BTreeMap<String, Tensor>,
}

/// Computes the loss of a batch and its gradients, as training does in an iteration, in double
/// precision. Dropout is that of the first iteration of a run with seed 0. Batch normalisation is
/// over the batch.
///
/// `parameters` are by name, in PyTorch's layouts, as in [`Weights`](super::Weights): dimensions
/// and elements in row-major order. Leading dimensions of 1 are ignored. `features` are the
/// concatenated samples, each with the elements of all inputs in order; for text, each is the
/// number of a token. `labels` are the concatenated labels of all samples: classes from 0, or
/// numbers.
///
/// # Errors
/// [`Error::Setting`] if a parameter is missing or has another shape, or the numbers of features
/// and labels do not fit. [`Error::Engine`] if a label is no class, or the network has an opaque
/// layer: an imported operation that the engine cannot execute.
pub fn gradients(
    network: &LayerGraph,
    parameters: &BTreeMap<String, Tensor>,
    features: &[f64],
    labels: &[f64],
) -> Result<Gradients, Error> {
    let sample = network.sample_elements().max(1);
    let batch = features.len() / sample;
    let label_count = network.label_count();
    if batch == 0 || features.len() != batch * sample || labels.len() != batch * label_count {
        return Err(Error::Setting {
            setting: "the batch",
            expected: "whole samples and their labels",
            got: format!(
                "{} numbers, {sample} a sample, and {} labels, {label_count} a sample",
                features.len(),
                labels.len()
            ),
        });
    }
    let program = lower_training(network, &Placement::single(network)?, batch, &LowerOptions::default())?;
    let program = program.of_rank(0)?;
    let initial = |spec: &BufferSpec| initial(network, spec, parameters);
    let mut buffers = program.buffers.iter().map(initial).collect::<Result<Vec<_>, _>>()?;
    let mut found = Gradients { loss: 0.0, of_parameters: BTreeMap::new() };
    let mut losses = BTreeMap::new();
    for step in &program.steps {
        match step.op {
            Op::LoadBatch { part, shard, ref elements } => {
                let all = if part == BatchPart::Features { features } else { labels };
                let samples = all.chunks(all.len() / batch).skip(shard.first).take(shard.samples);
                let loaded = samples.filter_map(|sample| sample.get(elements.clone()));
                let weight = || weight_of_samples(network, elements, labels);
                let weight = if part == BatchPart::Labels { weight() } else { None };
                buffers[step.writes[0].0] =
                    loaded.flat_map(|sample| sample.iter().copied().chain(weight)).collect();
            }
            Op::OptimizerStep { layer, .. } => {
                let layer = network.layer(layer);
                let mut rest = buffers[step.reads[0].0].as_slice();
                for part in layer.parameters() {
                    let (own, others) = rest.split_at(part.elements());
                    rest = others;
                    found.of_parameters.insert(layer.tensor_name(&part), (part.dims, own.to_vec()));
                }
            }
            _ => launch(network, program, step, &mut buffers)?,
        }
        for id in &step.writes {
            if let Contents::Operand(loss, Role::Metrics) = program.buffers[id.0].contents {
                losses.insert(loss, buffers[id.0][0] / batch as f64);
            }
        }
    }
    found.loss = losses.into_iter().map(|(id, loss)| network.layer(id).loss_weight() * loss).sum();
    Ok(found)
}

/// Returns the weight of samples for the loss that reads some `elements` of the labels of each, if
/// it ignores a label. `labels` are all labels of the batch.
fn weight_of_samples(network: &LayerGraph, elements: &Range<usize>, labels: &[f64]) -> Option<f64> {
    let loss = network.losses().find(|&loss| network.loss_labels(loss).contains(&elements.start))?;
    let ignored = network.layer(loss).ignored_label()?;
    let samples = labels.chunks(network.label_count());
    let of_loss = samples.filter_map(|sample| sample.get(network.loss_labels(loss))).flatten();
    Some(sample_weight(of_loss, ignored))
}

/// Returns the initial content of a buffer.
fn initial(
    network: &LayerGraph,
    spec: &BufferSpec,
    parameters: &BTreeMap<String, Tensor>,
) -> Result<Vec<f64>, Error> {
    Ok(match spec.contents {
        Contents::Operand(id, Role::Parameters) => {
            let layer = network.layer(id);
            let mut values = Vec::with_capacity(spec.elements);
            for part in layer.parameters() {
                let name = layer.tensor_name(&part);
                let wrong =
                    |got| Error::Setting { setting: "the parameters", expected: "those of the network", got };
                let (dims, own) =
                    parameters.get(&name).ok_or_else(|| wrong(format!("none called `{name}`")))?;
                if !have_same_order(dims, &part.dims) || own.len() != part.elements() {
                    return Err(wrong(format!("`{name}` of {dims:?}, which is {:?}", part.dims)));
                }
                values.extend_from_slice(own);
            }
            values
        }
        Contents::Operand(id, Role::Statistics) => initial_statistics(network.layer(id)),
        Contents::Constant(value) => vec![value; spec.elements],
        // There is no optimiser.
        Contents::Velocity(_) | Contents::Master(_) => Vec::new(),
        _ => vec![0.0; spec.elements],
    })
}

/// Runs the kernel of a step, if it has one.
fn launch(
    network: &LayerGraph,
    program: &RankProgram,
    step: &Step,
    buffers: &mut [Vec<f64>],
) -> Result<(), Error> {
    let Some(spec) = kernel_spec(network, program, step) else { return Ok(()) };
    let engine = CpuEngine::<f64>::new();
    let mut kernel = engine.prepare(&spec, Precision::F64)?;
    let mut written: Vec<Vec<f64>> =
        step.writes.iter().map(|id| std::mem::take(&mut buffers[id.0])).collect();
    let reads: Vec<&Vec<f64>> = step.reads.iter().map(|id| &buffers[id.0]).collect();
    let context = LaunchContext { seed: 0, iteration: 0, learning_rate: 0.0 };
    engine.enqueue(&mut kernel, &reads, &mut written.iter_mut().collect::<Vec<_>>(), &context, &mut ())?;
    for (id, values) in step.writes.iter().zip(written) {
        buffers[id.0] = values;
    }
    Ok(())
}
