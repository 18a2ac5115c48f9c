//! The kernels of the programs of a rotation: the iterations after which the roles of partial
//! backpropagation repeat.

use std::collections::HashMap;

use layer_engine::{Engine, KernelSpec, Precision, Storage};
use layer_graph::LayerGraph;

use super::{Backend, RankDevice};
use crate::Error;
use crate::program::{BufferId, Op, RankProgram, Step};

/// A prepared kernel of backend `B`.
pub(super) type Kernel<B> = <<B as Backend>::Engine as Engine>::Kernel;

/// Collection of the kernels of all programs of a rotation. Equal steps for operands of the same
/// sizes and formats share one kernel with one workspace: with partial backpropagation all forward
/// steps, and the backward steps of a layer. This is safe because the compute lane runs one step at
/// a time.
pub(super) struct Kernels<'p, B: Backend> {
    prepared: Vec<Kernel<B>>,
    /// The steps so far by label, with the indices of their kernels.
    known: HashMap<&'p str, Vec<(&'p Step, usize)>>,
}

impl<'p, B: Backend> Kernels<'p, B> {
    /// Creates an empty collection.
    pub(super) fn new() -> Self {
        Self { prepared: Vec::new(), known: HashMap::new() }
    }

    /// Prepares the kernels of one program that are not in the collection yet. `precision` is that
    /// of the program. Returns the index of each step's kernel, by step; `None` for steps without
    /// one. All programs must have the same buffers and precision.
    ///
    /// # Errors
    /// [`Error::Engine`] if the engine lacks a kernel or memory.
    pub(super) fn of_iteration(
        &mut self,
        device: &RankDevice<B>,
        network: &LayerGraph,
        program: &'p RankProgram,
        precision: Precision,
    ) -> Result<Vec<Option<usize>>, Error> {
        let mut of_step = |step: &'p Step| {
            let Some(spec) = kernel_spec(network, program, step) else { return Ok(None) };
            let known = self.known.entry(&step.label).or_default();
            let is_same = |other: &Step| {
                other.op == step.op
                    && have_same_operands(program, &other.reads, &step.reads)
                    && have_same_operands(program, &other.writes, &step.writes)
            };
            if let Some(&(_, index)) = known.iter().find(|(other, _)| is_same(other)) {
                return Ok(Some(index));
            }
            let index = self.prepared.len();
            let precision = kernel_precision(program, step, &spec, precision);
            self.prepared.push(device.engine.prepare(&spec, precision)?);
            known.push((step, index));
            Ok(Some(index))
        };
        program.steps.iter().map(&mut of_step).collect()
    }

    /// Returns all kernels, in the order of their indices.
    pub(super) fn into_prepared(self) -> Vec<Kernel<B>> {
        self.prepared
    }
}

/// Returns whether two lists of buffers have the same numbers of elements and number formats.
fn have_same_operands(program: &RankProgram, some: &[BufferId], others: &[BufferId]) -> bool {
    let operand = |id: &BufferId| (program.buffers[id.0].elements, program.buffers[id.0].storage);
    some.iter().map(operand).eq(others.iter().map(operand))
}

/// Returns the precision of the kernel of a step that is no pass of a layer: that of the buffer
/// that it writes. An optimiser step writes the parameters first.
pub(super) fn precision_without_layer(program: &RankProgram, step: &Step) -> Precision {
    match step.writes.first().map(|id| program.buffers[id.0].storage) {
        Some(Storage::Bf16) => Precision::Bf16,
        _ => Precision::F32,
    }
}

/// Returns the precision in which the kernel of a step is prepared. `precision` is that of the
/// program.
#[must_use]
pub fn kernel_precision(
    program: &RankProgram,
    step: &Step,
    spec: &KernelSpec<'_>,
    precision: Precision,
) -> Precision {
    match spec {
        KernelSpec::Layer { .. } => precision,
        _ => precision_without_layer(program, step),
    }
}

/// Returns the steps with a kernel of several programs of a network, grouped by kernels that do the
/// same work, in the order of their first steps. Names of layers and positions of samples in the
/// batch make no difference.
#[must_use]
pub fn kernel_groups<'p>(
    network: &LayerGraph,
    programs: impl IntoIterator<Item = &'p RankProgram>,
) -> Vec<Vec<(&'p RankProgram, &'p Step)>> {
    let mut groups: Vec<Vec<(&RankProgram, &Step)>> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for (program, step) in
        programs.into_iter().flat_map(|program| program.steps.iter().map(move |step| (program, step)))
    {
        let Some(spec) = kernel_spec(network, program, step) else { continue };
        let group = *known.entry(work_of(program, step, &spec)).or_insert(groups.len());
        match groups.get_mut(group) {
            Some(steps) => steps.push((program, step)),
            None => groups.push(vec![(program, step)]),
        }
    }
    groups
}

/// Returns a text that is equal for kernels of a network and a precision that do the same work.
pub(crate) fn work_of(program: &RankProgram, step: &Step, spec: &KernelSpec<'_>) -> String {
    match spec {
        KernelSpec::Layer { layer, pass, shard } => {
            format!("{:?} {:?} {pass:?} {}", layer.kind(), layer.input_shapes(), shard.samples)
        }
        other => format!("{other:?} {:?}", precision_without_layer(program, step)),
    }
}

/// Returns the specification of a step's kernel; `None` for loading samples and collectives. The
/// operands of the kernel are the `reads` and `writes` of the step.
#[must_use]
pub fn kernel_spec<'a>(
    network: &'a LayerGraph,
    program: &'a RankProgram,
    step: &Step,
) -> Option<KernelSpec<'a>> {
    let elements = |id: &BufferId| program.buffers[id.0].elements;
    Some(match &step.op {
        Op::Forward { layer, pass, shard } | Op::Backward { layer, pass, shard } => {
            KernelSpec::Layer { layer: program.layer(network, *layer), pass: *pass, shard: *shard }
        }
        Op::SumGradients => KernelSpec::Sum { terms: step.reads.len(), elements: elements(&step.writes[0]) },
        Op::SumAddends { terms } => {
            KernelSpec::SumParts { terms: *terms, elements: elements(&step.writes[0]) }
        }
        Op::AddGradient => KernelSpec::Add { elements: elements(&step.writes[0]) },
        Op::ScaleGradient { sample_elements, factors, .. } => {
            KernelSpec::Scale { sample_elements: *sample_elements, factors: factors.clone() }
        }
        Op::SquaredNorm => KernelSpec::SquaredNorm { elements: step.reads.iter().map(elements).collect() },
        Op::OptimizerStep { rule, .. } => {
            KernelSpec::Sgd { elements: vec![elements(&step.writes[0])], rule: *rule }
        }
        Op::LoadBatch { .. } | Op::Collective(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use layer_graph::zoo;

    use super::*;
    use crate::program::{LowerOptions, Placement, lower_training};

    #[test]
    fn kernels_of_equal_shape_are_one_group() {
        let network = zoo::model("resnet-18").unwrap();
        let placement = Placement::first_ranks(&network, 2, &vec![2; network.layers().count() - 1]).unwrap();
        let lowered = lower_training(&network, &placement, 8, &LowerOptions::default()).unwrap();
        let program = lowered.of_rank(0).unwrap();
        let groups = kernel_groups(&network, [program]);
        let with_kernel = |step: &&Step| kernel_spec(&network, program, step).is_some();
        let steps = program.steps.iter().filter(with_kernel).count();
        assert_eq!(groups.iter().map(Vec::len).sum::<usize>(), steps);
        let labels: HashSet<&str> = groups.iter().flatten().map(|(_, step)| step.label.as_str()).collect();
        assert_eq!(labels.len(), steps);
        let group_of = |label: &str| {
            groups.iter().position(|steps| steps.iter().any(|(_, step)| step.label == label)).unwrap()
        };
        assert_eq!(group_of("forward layer1.0.conv1"), group_of("forward layer1.1.conv2"));
        assert_ne!(group_of("forward layer1.0.conv1"), group_of("backward layer1.0.conv1"));
        assert_ne!(group_of("forward layer2.0.conv1"), group_of("forward layer2.0.conv2"), "strides differ");
        for steps in &groups {
            let lengths = |step: &Step| {
                [&step.reads, &step.writes]
                    .map(|ids| ids.iter().map(|id| program.buffers[id.0].elements).collect::<Vec<_>>())
            };
            let label = &steps[0].1.label;
            assert!(steps.iter().all(|(_, step)| lengths(step) == lengths(steps[0].1)), "{label}");
        }
        // The other rank has as many samples.
        let both = kernel_groups(&network, &lowered.ranks);
        assert_eq!(both.len(), groups.len());
        assert!(both.iter().zip(&groups).all(|(both, one)| both.len() == 2 * one.len()));
    }
}
