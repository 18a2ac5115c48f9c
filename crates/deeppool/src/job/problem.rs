//! The planning problem of a job.

use std::num::NonZeroUsize;

use burst_planner::{Evaluator, GradientOptions, Node, NodeSplit, PlanProblem, SynchronizedBytes};
use layer_engine::{Pass, Role, Storage};
use layer_graph::LayerId;

use super::nodes::NodeDivision;
use super::splits::planner_values;
use super::{Job, JobCosts, PlannerNodes};
use crate::Error;
use crate::program::{
    ELEMENT_BYTES, LowerOptions, Placement, backward_passes, backward_reads, checkpoints, is_read_once,
};

/// Number of elements of the metrics: the loss and the number of correctly classified samples.
const METRICS: u64 = 2;

/// Returns the planning problem of a job on up to `gpus` GPUs, where each layer may run on any of
/// the given GPU counts, which are those of ranges of samples if it is split in one of the
/// [job's ways](Job::with_splits). Counts above `gpus` or above the samples of a micro-batch are
/// ignored. The nodes are those of [`PlannerNodes`].
///
/// # Errors
/// [`Error::Setting`] if no GPU count is left, micro-batches have different sizes, or an activation
/// checkpoint is not possible. [`Error::Profile`] if the profile lacks a time for a count.
pub fn plan_problem(job: &Job<'_>, gpus: usize, gpu_counts: &[usize]) -> Result<PlanProblem, Error> {
    let nodes = &job.nodes();
    let network = job.costs.network();
    let max_count = gpus.min(job.micro_batch()?);
    let counts: Vec<usize> =
        gpu_counts.iter().copied().filter(|count| (1..=max_count).contains(count)).collect();
    if counts.is_empty() {
        return Err(Error::Setting {
            setting: "GPU counts",
            expected: "at most the number of GPUs and of samples",
            got: "none of them".into(),
        });
    }
    check_times(job, &counts)?;
    let mut problem = PlanProblem::new(gpus);
    problem.gradients = gradient_options(&job.lowering);
    if let Some(cut) = NonZeroUsize::new(job.lowering.micro_batches).filter(|cut| cut.get() > 1) {
        problem.micro_batches = cut;
        problem.single_gpu_us = Some(single_gpu_us(&job.whole_batch())?);
    }
    let needs_gradient = network.needs_gradient();
    let checkpoints = checkpoints(network, &job.lowering.checkpoints)?;
    problem.checkpoints = checkpoints.into_iter().map(|id| nodes.node(id)).collect();
    for &id in nodes.layers() {
        problem.add_node(node(job, nodes, id, &counts, &needs_gradient));
    }
    for &id in nodes.layers() {
        let mut consumers: Vec<LayerId> =
            network.consumers(id).into_iter().map(|(consumer, _)| consumer).collect();
        // A consumer may read the same output twice: it is moved once.
        consumers.dedup();
        for consumer in consumers {
            problem.add_edge(nodes.node(id), nodes.node(consumer));
        }
    }
    Ok(problem)
}

/// Checks that the profile has the times of all shards of a micro-batch on these GPU counts, and of
/// the whole batch.
///
/// # Errors
/// [`Error::Profile`] with the first time that is missing.
pub(crate) fn check_times(job: &Job<'_>, counts: &[usize]) -> Result<(), Error> {
    let samples = job.micro_batch()?;
    let shards = counts.iter().flat_map(|&count| [samples.div_ceil(count), samples / count]);
    let mut sizes: Vec<usize> = shards.chain([job.batch]).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for (id, _) in job.costs.network().computing_layers() {
        for &samples in &sizes {
            job.costs.layer_time(id, samples)?;
        }
    }
    Ok(())
}

/// Computes the iteration time of a job on one GPU, in microseconds. Amplification is GPU time
/// divided by it.
///
/// # Errors
/// [`Error::Profile`] if the profile lacks the times of the whole batch.
pub fn single_gpu_us(job: &Job<'_>) -> Result<f64, Error> {
    let problem = plan_problem(job, 1, &[1])?;
    Ok(Evaluator::new(&problem, JobCosts::new(job))?.single_gpu_us()?)
}

/// Computes the memory that one GPU needs for the whole job, in bytes. One lowering.
///
/// # Errors
/// As [`lower_training`](crate::program::lower_training).
pub(crate) fn single_gpu_memory_bytes(job: &Job<'_>) -> Result<u64, Error> {
    data_parallel_bytes(job, 1)
}

/// Computes the memory of the fullest GPU with data parallelism on `gpus` GPUs, in bytes. One
/// lowering. The profile is not used.
///
/// # Errors
/// As [`lower_training`](crate::program::lower_training).
pub(crate) fn data_parallel_bytes(job: &Job<'_>, gpus: usize) -> Result<u64, Error> {
    let network = job.costs.network();
    let ranks = vec![(0..gpus).collect(); PlannerNodes::new(network).layers().len()];
    let placement = Placement::new(network, gpus, ranks)?;
    Ok(job.training(placement).for_simulation()?.peak_bytes())
}

fn gradient_options(lowering: &LowerOptions) -> GradientOptions {
    GradientOptions {
        bucket_bytes: lowering.bucket_bytes,
        overlap: lowering.overlap_all_reduce,
        clip_norm: lowering.optimizer.clip_norm.is_some(),
        metrics_bytes: METRICS * ELEMENT_BYTES,
    }
}

fn node(
    job: &Job<'_>,
    nodes: &PlannerNodes<'_>,
    id: LayerId,
    counts: &[usize],
    needs_gradient: &[bool],
) -> Node {
    let network = job.costs.network();
    let layer = network.layer(id);
    let owner = network.parameter_owner(id);
    let bytes = |role: Role| role.elements(layer, 0) as u64 * ELEMENT_BYTES;
    let input_gradient = network.producers(id).iter().any(|producer| needs_gradient[producer.index()]);
    let forward = Pass::forward(layer).contains(&Pass::ForwardMoments);
    let backward = input_gradient && Pass::backward(layer, true).contains(&Pass::BackwardMoments);
    let synchronized = SynchronizedBytes {
        forward: if forward { bytes(Role::Moments) } else { 0 },
        backward: if backward { bytes(Role::GradientMoments) } else { 0 },
    };
    let gradient_bytes = network.own_parameter_count(id) as u64 * ELEMENT_BYTES;
    let mut node = Node::new(layer.name(), counts.iter().copied());
    node.gradient_bytes = gradient_bytes;
    let storage = Role::Parameters.storage(layer, job.lowering.precision);
    node.state_bytes = state_bytes(network.own_parameter_count(id), storage);
    node.parameters_of = (owner != id).then(|| nodes.node(owner));
    node.synchronized = (job.lowering.sync_batch_norm && forward).then_some(synchronized);
    node.backward_reads = backward_reads(network, id, needs_gradient);
    if backward_passes(network, id, input_gradient).contains(&Pass::BackwardInPlace) {
        // From the backward step on, the memory of the input is that of its gradient.
        node.backward_reads.input = false;
    }
    node.is_kept = !is_read_once(network, id);
    if let Some(divisions) = nodes.all_divisions() {
        let of_node = &divisions.of_nodes[nodes.node(id).0];
        let split = |NodeDivision { division, part }: &NodeDivision| {
            let owned = if owner == id { part.parameter_count() } else { 0 };
            let bytes = |role: Role| role.elements(part, 0) as u64 * ELEMENT_BYTES;
            let values = divisions.splits.values(id, division.split);
            let [input, gradient, output] =
                [values.input, values.input_gradient, values.output].map(planner_values);
            let mut split = NodeSplit::new(division.parts, input, gradient, output);
            split.sums_parts = values.parameter_gradient == layer_graph::Values::Addends;
            split.gradient_bytes = owned as u64 * ELEMENT_BYTES;
            split.state_bytes = state_bytes(owned, storage);
            split.synchronized = node.synchronized.map(|whole| SynchronizedBytes {
                forward: if whole.forward > 0 { bytes(Role::Moments) } else { 0 },
                backward: if whole.backward > 0 { bytes(Role::GradientMoments) } else { 0 },
            });
            split
        };
        node.splits = of_node.iter().map(split).collect();
    }
    node
}

/// Returns the size of the parameters and the state of the optimiser: parameters and velocities,
/// and master parameters if parameters have 16 bits.
fn state_bytes(parameters: usize, storage: Storage) -> u64 {
    let bytes = parameters as u64 * ELEMENT_BYTES;
    match storage {
        Storage::Scalar => 2 * bytes,
        Storage::Bf16 => 2 * bytes + storage.scalars(parameters) as u64 * ELEMENT_BYTES,
    }
}
