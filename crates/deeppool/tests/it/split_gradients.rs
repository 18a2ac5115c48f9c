//! Gradients of split layers in double precision: the programs of all ranks, interpreted one
//! collective after another, against those of one rank.

use std::collections::BTreeMap;

use deeppool::layer_engine::{
    CpuEngine, Engine, LaunchContext, Precision, Role, initial_parameters, initial_statistics,
};
use deeppool::program::{
    BatchPart, Collective, CollectiveOp, Contents, Op, Program, RankProgram, Step, lower_training,
};
use deeppool::runtime::kernel_spec;
use deeppool::train::gradients;
use layer_graph::{LayerGraph, LayerId, LayerTensor, TensorBox, zoo};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::random_splits::{below, cases, random_options, random_placement, small_resnet, tied_transformer};

/// Dimensions and elements of the parameters of a network, by name.
type Parameters = BTreeMap<String, (Vec<usize>, Vec<f64>)>;

/// Returns the parameters or statistics of a whole layer, each with the box that a rank has of it.
fn boxes(
    program: &RankProgram,
    network: &LayerGraph,
    id: LayerId,
    role: Role,
) -> Vec<(LayerTensor, TensorBox)> {
    let layer = network.layer(id);
    let is_statistics = role == Role::Statistics;
    let tensors = if is_statistics { layer.statistics() } else { layer.parameters() };
    let whole = tensors.iter().map(|tensor| TensorBox::whole(tensor.dims.clone())).collect();
    let held = program
        .parts
        .get(&id)
        .map_or(whole, |part| if is_statistics { part.statistics.clone() } else { part.parameters.clone() });
    tensors.into_iter().zip(held).collect()
}

/// The samples of a batch.
struct Batch {
    samples: usize,
    features: Vec<f64>,
    labels: Vec<f64>,
}

/// The ranks of a program, with all buffers in double precision.
struct Ranks<'p> {
    network: &'p LayerGraph,
    program: &'p Program,
    batch: &'p Batch,
    /// Number of labels divided by that of labels that are not ignored, if the loss ignores one.
    weight: Option<f64>,
    buffers: Vec<Vec<Vec<f64>>>,
    /// Number of steps that each rank has run.
    ran: Vec<usize>,
    /// The gradients that each rank's optimiser steps read.
    gradients: Vec<(usize, LayerId, Vec<f64>)>,
}

impl<'p> Ranks<'p> {
    fn new(network: &'p LayerGraph, program: &'p Program, batch: &'p Batch) -> Self {
        let initial = |rank: &RankProgram, contents: Contents, elements: usize| {
            let cut = |id, role, whole: Vec<f64>| {
                let mut rest = whole.as_slice();
                let mut own = Vec::new();
                for (tensor, held) in boxes(rank, network, id, role) {
                    let (values, others) = rest.split_at(tensor.elements());
                    rest = others;
                    held.runs().into_iter().for_each(|run| own.extend_from_slice(&values[run]));
                }
                own
            };
            match contents {
                Contents::Operand(id, Role::Parameters) => {
                    cut(id, Role::Parameters, initial_parameters(network.layer(id), 0))
                }
                Contents::Operand(id, Role::Statistics) => {
                    cut(id, Role::Statistics, initial_statistics(network.layer(id)))
                }
                Contents::Constant(value) => vec![value; elements],
                _ => vec![0.0; elements],
            }
        };
        let of_rank = |rank: &RankProgram| {
            rank.buffers.iter().map(|spec| initial(rank, spec.contents, spec.elements)).collect()
        };
        let buffers = program.ranks.iter().map(of_rank).collect();
        let ran = vec![0; program.ranks.len()];
        let ignored = network.layers().find_map(|(_, layer)| layer.ignored_label());
        let counted = |ignored| batch.labels.iter().filter(|&&label| label as i32 != ignored).count() as f64;
        let weight = ignored.map(|ignored| batch.labels.len() as f64 / counted(ignored));
        Self { network, program, batch, weight, buffers, ran, gradients: Vec::new() }
    }

    /// Runs the steps of all ranks. All ranks issue collectives in the order of their ids.
    fn run(&mut self) {
        for (index, collective) in self.program.collectives.iter().enumerate() {
            for &rank in &collective.ranks {
                let reached = self.run_to_collective(rank);
                let Some(Step { op: Op::Collective(id), .. }) = reached else { panic!("no collective") };
                assert_eq!(id.0, index, "rank {rank}, {}", collective.label);
            }
            self.communicate(collective);
            collective.ranks.iter().for_each(|&rank| self.ran[rank] += 1);
        }
        for rank in 0..self.ran.len() {
            assert!(self.run_to_collective(rank).is_none());
        }
    }

    fn run_to_collective(&mut self, rank: usize) -> Option<&'p Step> {
        let program = &self.program.ranks[rank];
        while let Some(step) = program.steps.get(self.ran[rank]) {
            if matches!(step.op, Op::Collective(_)) {
                return Some(step);
            }
            self.compute(rank, step);
            self.ran[rank] += 1;
        }
        None
    }

    fn compute(&mut self, rank: usize, step: &Step) {
        let (program, buffers) = (&self.program.ranks[rank], &mut self.buffers[rank]);
        match &step.op {
            Op::LoadBatch { part, shard, elements } => {
                let Batch { samples, features, labels } = self.batch;
                let all = if *part == BatchPart::Features { features } else { labels };
                let each = all.len() / samples;
                let loaded = all[shard.first * each..][..shard.samples * each].chunks(each);
                // The weight of a sample follows its labels.
                let weight = self.weight.filter(|_| *part == BatchPart::Labels);
                let of_sample = |sample: &[f64]| [&sample[elements.clone()], weight.as_slice()].concat();
                buffers[step.writes[0].0] = loaded.flat_map(of_sample).collect();
            }
            Op::OptimizerStep { layer, .. } => {
                self.gradients.push((rank, *layer, buffers[step.reads[0].0].clone()));
            }
            _ => {
                let spec = kernel_spec(self.network, program, step).expect("the step has a kernel");
                let engine = CpuEngine::<f64>::new();
                let mut kernel = engine.prepare(&spec, Precision::F64).unwrap();
                let mut written: Vec<Vec<f64>> =
                    step.writes.iter().map(|id| std::mem::take(&mut buffers[id.0])).collect();
                let reads: Vec<&Vec<f64>> = step.reads.iter().map(|id| &buffers[id.0]).collect();
                let mut writes: Vec<&mut Vec<f64>> = written.iter_mut().collect();
                let context = LaunchContext { seed: 0, iteration: 0, learning_rate: 0.0 };
                engine.enqueue(&mut kernel, &reads, &mut writes, &context, &mut ()).unwrap();
                step.writes.iter().zip(written).for_each(|(id, values)| buffers[id.0] = values);
            }
        }
    }

    fn communicate(&mut self, collective: &Collective) {
        let step_of = |rank: usize| &self.program.ranks[rank].steps[self.ran[rank]];
        match &collective.op {
            CollectiveOp::AllReduce { .. } | CollectiveOp::Broadcast { .. } => {
                let is_sum = matches!(collective.op, CollectiveOp::AllReduce { .. });
                for group in collective.groups() {
                    for index in 0..step_of(group[0]).writes.len() {
                        let id = |rank: usize| step_of(rank).writes[index].0;
                        let mut result = self.buffers[group[0]][id(group[0])].clone();
                        for &rank in group[1..].iter().filter(|_| is_sum) {
                            let terms = &self.buffers[rank][id(rank)];
                            assert_eq!(terms.len(), result.len(), "{}", collective.label);
                            result.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
                        }
                        let targets: Vec<_> = group.iter().map(|&rank| (rank, id(rank))).collect();
                        for (rank, id) in targets {
                            self.buffers[rank][id].clone_from(&result);
                        }
                    }
                }
            }
            CollectiveOp::Redistribute { redistribution, item_elements, .. } => {
                let extents = redistribution.source().extents().to_vec();
                let mut whole = vec![f64::NAN; extents.iter().product::<usize>() * item_elements];
                let dims: Vec<usize> = extents.into_iter().chain([*item_elements]).collect();
                let runs = |region: Option<collectives::Region>| {
                    let ranges = region.map(|region| region.ranges().to_vec()).unwrap_or_default();
                    let ranges = ranges.into_iter().chain(std::iter::once(0..*item_elements)).collect();
                    let held = TensorBox { dims: dims.clone(), ranges };
                    if held.ranges.len() == dims.len() { held.runs() } else { Vec::new() }
                };
                for &rank in &collective.ranks {
                    let mut at = 0;
                    for run in runs(redistribution.source().region(rank)) {
                        let held = &self.buffers[rank][step_of(rank).reads[0].0];
                        let len = run.len();
                        whole[run].copy_from_slice(&held[at..at + len]);
                        at += len;
                    }
                }
                let received: Vec<_> = collective
                    .ranks
                    .iter()
                    .filter_map(|&rank| {
                        let runs = runs(redistribution.target().region(rank)).into_iter();
                        let values: Vec<f64> = runs.flat_map(|run| whole[run].to_vec()).collect();
                        (!values.is_empty()).then(|| (rank, step_of(rank).writes[0].0, values))
                    })
                    .collect();
                for (rank, id, values) in received {
                    assert_eq!(values.len(), self.buffers[rank][id].len(), "{}", collective.label);
                    self.buffers[rank][id] = values;
                }
            }
        }
    }
}

/// Returns the initial parameters of a run with seed 0.
fn parameters(network: &LayerGraph) -> Parameters {
    let mut all = Parameters::new();
    for (id, layer) in network.layers().filter(|&(id, _)| network.own_parameter_count(id) > 0) {
        let values = initial_parameters(network.layer(id), 0);
        let mut rest = values.as_slice();
        for tensor in layer.parameters() {
            let (own, others) = rest.split_at(tensor.elements());
            rest = others;
            all.insert(layer.tensor_name(&tensor), (tensor.dims, own.to_vec()));
        }
    }
    all
}

/// Compares the gradients on every rank of random placements with those of one rank.
fn check_gradients(network: &LayerGraph, samples: usize, features: impl Fn(usize) -> f64, classes: usize) {
    let sample = network.layer(network.input()).output_shape().elements();
    let label_count: usize = network.layers().map(|(_, layer)| layer.label_count()).sum();
    let features = (0..samples * sample).map(features).collect();
    let labels = (0..samples * label_count).map(|i| (i * 7 % classes) as f64).collect();
    let batch = Batch { samples, features, labels };
    let expected = gradients(network, &parameters(network), &batch.features, &batch.labels).unwrap();
    for case in 0..cases(5) {
        let mut random = ChaCha8Rng::seed_from_u64(case as u64);
        let world = 1 + below(&mut random, 8);
        let placement = random_placement(network, world, &mut random);
        let mut options = random_options(network, &mut random);
        let normalises = network.layers().any(|(_, layer)| !layer.statistics().is_empty());
        if normalises {
            options = options.with_micro_batches(1);
        }
        let program = lower_training(network, &placement, samples, &options).unwrap();
        let mut ranks = Ranks::new(network, &program, &batch);
        ranks.run();
        assert!(!ranks.gradients.is_empty());
        let mut largest: f64 = 0.0;
        for (rank, id, gradient) in &ranks.gradients {
            let mut rest = gradient.as_slice();
            for (tensor, held) in boxes(&program.ranks[*rank], network, *id, Role::Parameters) {
                let (_, whole) = &expected.of_parameters[&network.layer(*id).tensor_name(&tensor)];
                for run in held.runs() {
                    let (own, others) = rest.split_at(run.len());
                    rest = others;
                    for (own, expected) in own.iter().zip(&whole[run]) {
                        largest = largest.max((own - expected).abs());
                        assert!(
                            (own - expected).abs() <= 1e-10,
                            "case {case}: {own} {expected} {placement:?}"
                        );
                    }
                }
            }
            assert!(rest.is_empty());
        }
        println!("{} case {case}, {world} ranks: {largest:.1e}", network.name());
    }
}

#[test]
fn gradients_of_a_split_digits_cnn_are_those_of_one_rank() {
    check_gradients(&zoo::model("digits-cnn").unwrap(), 7, |i| (i as f64 * 0.7).sin(), 10);
}

#[test]
fn gradients_of_a_split_residual_network_are_those_of_one_rank() {
    check_gradients(&small_resnet(), 6, |i| (i as f64 * 0.7).sin(), 10);
}

#[test]
fn gradients_of_a_split_transformer_are_those_of_one_rank() {
    check_gradients(&tied_transformer(), 5, |i| (i * 5 % 11) as f64, 11);
}
