//! Lowering: the translation of a network and a placement to the programs of all ranks. A
//! *placement* has the ranks of each layer and the order in which the layers run, as a plan's
//! arrangement does.

mod backward;
mod classes;
mod forward;
mod layout;
mod options;
mod partial;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use collectives::Redistribution;
use layer_engine::{Pass, Precision, Role, Shard, Signature, Storage};
use layer_graph::{
    LayerGraph, LayerId, LayerKind, LayerPart, NetworkSplits, SplitValues, TensorView, Values,
};

use super::builder::{Bucket, Operands, ProgramBuilder, RotationForm};
use super::recompute::Recomputation;
use super::{BufferId, CollectiveOp, Contents, Op, PartialBackpropagation, Placement, Program, checkpoints};
use crate::Error;
use crate::batch::check_batch;
use classes::classes_of_ranks;
use layout::{Layouts, Lowered, SharedLayout, TensorLayout, by_part};
pub(crate) use layout::{tensor_boxes, view_of_scalars};
pub use options::LowerOptions;
use partial::Partial;

/// Lowers one training iteration to a program: forward pass, loss, backward pass, all-reduce of
/// gradients, and optimiser steps. `batch` is the number of samples of the global batch.
///
/// The loss is the mean over the global batch of the weighted sum of all loss layers, and gradients
/// are summed with that scale, so the result does not depend on the placement or on the number of
/// micro-batches. With [partial
/// backpropagation](LowerOptions::partial) it is the first iteration of [`lower_rotation`].
///
/// # Errors
/// [`Error::NoLoss`] if the network has no loss layer, [`Error::UnusedLayer`] if no loss depends on
/// a layer, and [`Error::ReadLoss`] if a layer reads a loss. [`Error::EmptyBatch`] for an empty
/// batch. [`Error::Setting`] if the batch has fewer samples than micro-batches or parts, or a layer
/// cannot be a checkpoint. In `bf16`, [`Error::Tokens`] if tokens are read by another layer than an
/// embedding, and [`Error::OddSample`] if samples of an odd number of elements move between ranks.
pub fn lower_training(
    network: &LayerGraph,
    placement: &Placement,
    batch: usize,
    options: &LowerOptions,
) -> Result<Program, Error> {
    Ok(lower_rotation(network, placement, batch, options)?.swap_remove(0))
}

/// Lowers the training iterations in which each part of the batch has each role of [partial
/// backpropagation](LowerOptions::partial) once, to one program each. Iteration `i` of a run
/// executes program `i` modulo their number. Without partial backpropagation there is one program.
///
/// All programs have the same buffers, so that they can share memory.
///
/// # Errors
/// As [`lower_training`].
pub fn lower_rotation(
    network: &LayerGraph,
    placement: &Placement,
    batch: usize,
    options: &LowerOptions,
) -> Result<Vec<Program>, Error> {
    training(network, placement, batch, options, every_rank(placement), RotationForm::Separate)
}

/// Lowers one training iteration as [`lower_training`] does, with one program per class of ranks
/// instead of one per rank. The ranks of a class run the same steps for the same numbers of
/// samples, with the same parts in the same collectives.
///
/// Its simulation gives the same results as that of all ranks, in a time that depends on the number
/// of classes instead of the number of ranks. It cannot be executed. In `bf16`, samples may have an
/// odd number of elements, and tokens any readers.
///
/// With [partial backpropagation](LowerOptions::partial), ranks are not grouped into classes. The
/// result is a single program with the steps of all ranks, for all iterations of [`lower_rotation`]
/// one after another. Each rank ends an iteration before it begins the next one.
///
/// # Errors
/// As [`lower_training`].
pub fn lower_for_simulation(
    network: &LayerGraph,
    placement: &Placement,
    batch: usize,
    options: &LowerOptions,
) -> Result<Program, Error> {
    options.check(network, batch)?;
    let classes = match options.partial {
        None => classes_of_ranks(network, placement, batch, options)?,
        Some(_) => every_rank(placement),
    };
    Ok(training(network, placement, batch, options, classes, RotationForm::Single)?.swap_remove(0))
}

fn training(
    network: &LayerGraph,
    placement: &Placement,
    batch: usize,
    options: &LowerOptions,
    classes: Vec<Vec<usize>>,
    rotation: RotationForm,
) -> Result<Vec<Program>, Error> {
    options.check(network, batch)?;
    if options.partial.is_some() && placement.is_split() {
        let (setting, expected) = ("partial backpropagation", "layers that are not split");
        return Err(Error::Setting { setting, expected, got: "split layers".into() });
    }
    let count = options.micro_batches;
    let checkpoints = checkpoints(network, &options.checkpoints)?;
    let mut lowering = Lowering::new(network, placement, (batch, options.precision), classes, &checkpoints)?;
    lowering.is_simulated = rotation == RotationForm::Single;
    lowering.check_tokens()?;
    let iterations = options.partial.as_ref().map_or(1, PartialBackpropagation::parts);
    for iteration in 0..iterations {
        if iteration > 0 {
            lowering.program.end_iteration(rotation);
        }
        lowering.partial = Partial::new(network, batch, options.partial.as_ref(), iteration)?;
        for index in 0..count {
            lowering.begin(index * batch / count..(index + 1) * batch / count)?;
            for &id in placement.order() {
                lowering.forward(id, options.sync_batch_norm)?;
            }
            for loss in lowering.losses() {
                lowering.accumulate(loss, Role::Metrics);
            }
            lowering.backward(options)?;
        }
        lowering.reduce_metrics();
    }
    Ok(lowering.program.finish())
}

/// Lowers the evaluation of a batch of `batch` samples to a program: the forward pass without
/// dropout and with running statistics. It has the same state buffers as training, and ends with
/// the loss and the number of correctly classified samples of each loss layer, summed over the
/// batch. `precision` is that of the layers.
///
/// # Errors
/// As [`lower_training`].
pub fn lower_evaluation(
    network: &LayerGraph,
    placement: &Placement,
    batch: usize,
    precision: Precision,
) -> Result<Program, Error> {
    let mut lowering = Lowering::new(network, placement, (batch, precision), every_rank(placement), &[])?;
    lowering.check_tokens()?;
    lowering.begin(0..batch)?;
    lowering.share_statistics();
    for &id in placement.order() {
        lowering.infer(id)?;
    }
    lowering.reduce_metrics();
    Ok(lowering.program.finish().swap_remove(0))
}

fn every_rank(placement: &Placement) -> Vec<Vec<usize>> {
    (0..placement.world()).map(|rank| vec![rank]).collect()
}

/// A value that is distributed over ranks in a layout.
#[derive(Clone)]
struct DistributedValue {
    layout: TensorLayout,
    /// The buffers of the layout's lowered ranks that have a part of it, in the layout's order,
    /// with their places.
    buffers: Vec<PlacedBuffer>,
}

/// A buffer with the place of its rank.
type PlacedBuffer = (usize, BufferId);

/// The ranks that hold the parameters of a layer.
struct Holders {
    /// The ranks of each group that sums its gradients, one group after another.
    ranks: Vec<usize>,
    /// Number of groups: one for each part of the parameters.
    groups: usize,
    /// Places of the lowered ranks.
    places: Vec<usize>,
}

struct Lowering<'a> {
    network: &'a LayerGraph,
    placement: &'a Placement,
    /// The possible splits, if any layer is split.
    splits: Option<NetworkSplits<'a>>,
    /// The parts of split layers.
    parts: BTreeMap<LayerId, Vec<Arc<LayerPart>>>,
    batch: usize,
    precision: Precision,
    /// Whether the program is only simulated. It may then have what no kernel computes and no
    /// collective moves.
    is_simulated: bool,
    recomputation: Recomputation,
    /// Position of each layer in the order in which layers run, by layer id.
    place_in_order: Vec<usize>,
    lowered: Lowered,
    layouts: Layouts,
    /// The samples of the batch that are being lowered.
    micro_batch: Range<usize>,
    /// Layout of each layer in the micro-batch, by layer id. That of the input layer is not used.
    layout: Vec<Rc<SharedLayout>>,
    /// The ranks that hold each layer's own parameters, by layer id.
    holders: Vec<Holders>,
    /// Outputs of each layer: first in its own layout, then in those of its consumers.
    outputs: Vec<Vec<DistributedValue>>,
    /// Parts of the gradient of each layer's output, with the consumers that computed them.
    gradients: Vec<Vec<(LayerId, DistributedValue)>>,
    partial: Option<Partial>,
    program: ProgramBuilder,
}

impl<'a> Lowering<'a> {
    /// Creates a lowering of the first rank of each class.
    fn new(
        network: &'a LayerGraph,
        placement: &'a Placement,
        (batch, precision): (usize, Precision),
        classes: Vec<Vec<usize>>,
        checkpoints: &[LayerId],
    ) -> Result<Self, Error> {
        check_batch(batch)?;
        check_losses(network)?;
        let mut place_in_order = vec![0; network.len()];
        for (at, id) in placement.order().iter().enumerate() {
            place_in_order[id.index()] = at;
        }
        let first_ranks = classes.iter().filter_map(|class| class.first().copied());
        let lowered = Lowered::new(placement.world(), first_ranks);
        let splits = placement.is_split().then(|| NetworkSplits::new(network));
        let holders = network.layers().map(|(id, _)| {
            let groups = placement.sum_groups(splits.as_ref(), id);
            let ranks = by_part(&placement.parameter_ranks(network, id), groups);
            Holders { places: lowered.places(&ranks), ranks, groups }
        });
        let holders: Vec<Holders> = holders.collect();
        let mut program = ProgramBuilder::new(batch, precision, classes);
        let parts = match &splits {
            Some(splits) => placement.parts(splits)?,
            None => BTreeMap::new(),
        };
        program.add_parts(placement, &parts, |rank| lowered.places(&[rank]).first().copied());
        program.add_state(
            network,
            |id| holders[id.index()].places.clone(),
            |id| lowered.places(placement.ranks(id)),
        );
        Ok(Self {
            network,
            placement,
            splits,
            parts,
            batch,
            precision,
            is_simulated: false,
            recomputation: Recomputation::new(network, placement, checkpoints),
            place_in_order,
            lowered,
            layouts: Layouts::default(),
            micro_batch: 0..0,
            layout: Vec::new(),
            holders,
            outputs: Vec::new(),
            gradients: Vec::new(),
            partial: None,
            program,
        })
    }

    /// Checks that tokens, which 16 bits cannot represent, are read by embeddings only.
    fn check_tokens(&self) -> Result<(), Error> {
        let network = self.network;
        if self.precision != Precision::Bf16 || self.is_simulated {
            return Ok(());
        }
        let is_embedding = |id: LayerId| matches!(network.layer(id).kind(), LayerKind::Embedding(_));
        let embeddings = network.layers().map(|(id, _)| id).filter(|&id| is_embedding(id));
        let sources: BTreeSet<LayerId> = embeddings.flat_map(|id| network.producers(id)).collect();
        for source in sources {
            let readers = network.consumers(source).into_iter().map(|(reader, _)| reader);
            let other = if network.is_input(source) {
                readers.into_iter().find(|&id| !is_embedding(id))
            } else {
                Some(source)
            };
            if let Some(other) = other {
                return Err(Error::Tokens { layer: network.layer(other).name().into() });
            }
        }
        Ok(())
    }

    /// Begins a micro-batch, in the memory of the previous one.
    fn begin(&mut self, micro_batch: Range<usize>) -> Result<(), Error> {
        self.layout.clear();
        for (id, _) in self.network.layers() {
            let ranks = if self.network.is_input(id) { &[0][..] } else { self.placement.ranks(id) };
            let ranks = (ranks, self.placement.division(id).parts);
            self.layout.push(self.layouts.even(micro_batch.len(), ranks, &self.lowered)?);
        }
        self.outputs = vec![Vec::new(); self.network.len()];
        self.gradients = vec![Vec::new(); self.network.len()];
        self.micro_batch = micro_batch;
        self.program.reuse_buffers();
        // The buffers that collectives write may be in use until the end of the previous
        // micro-batch.
        self.program.collectives_wait();
        Ok(())
    }

    /// Returns the layout of a layer.
    fn layout(&self, id: LayerId) -> Rc<SharedLayout> {
        Rc::clone(&self.layout[id.index()])
    }

    /// Returns how the parts of a layer hold its tensors.
    fn values(&self, id: LayerId) -> SplitValues {
        self.placement.values(self.splits.as_ref(), id)
    }

    /// Returns the layout in which a layer reads its inputs.
    fn input_layout(&self, id: LayerId) -> TensorLayout {
        TensorLayout::new(self.layout(id), self.values(id).input)
    }

    /// Returns the layout in which a layer computes its output.
    fn output_layout(&self, id: LayerId) -> TensorLayout {
        TensorLayout::new(self.layout(id), self.values(id).output)
    }

    /// Returns the view of a sample of a layer's output that its parts divide.
    fn view(&self, id: LayerId) -> TensorView {
        match &self.splits {
            Some(splits) => splits.view(id),
            None => TensorView::undivided(self.network.layer(id).output_shape().elements()),
        }
    }

    /// Adds the micro-batch's value of an operand to the sum over previous ones, on every rank that
    /// has it.
    fn accumulate(&mut self, id: LayerId, role: Role) {
        let places = match role {
            Role::ParameterGradient => self.lowered.places(&self.contributors(id)),
            _ => self.layout[id.index()].places().collect(),
        };
        for place in places {
            self.program.rank(place).accumulate(id, self.network, role);
        }
    }

    /// Moves a layer's output, or its gradient, to another layout. Addends become their sum: in
    /// place on the ranks that hold them, which then no longer have the addends, or else after all
    /// of them have arrived.
    fn redistribute(
        &mut self,
        id: LayerId,
        source: &DistributedValue,
        to: &TensorLayout,
        what: &str,
    ) -> Result<DistributedValue, Error> {
        let layer = self.network.layer(id);
        let storage = Role::Output.storage(layer, self.precision);
        let terms = source.layout.terms();
        let is_in_place = to.of == source.layout.of && to.values == Values::Copies;
        if terms > 1 && is_in_place && storage == Storage::Scalar {
            return Ok(self.reduce_addends(id, source, what));
        }
        let view = self.view(id);
        let sides = [&source.layout, to].map(|side| (side.of.parts, side.values));
        let moved_view = view_of_scalars(view, storage, sides);
        let (redistribution, item_elements) = self.layouts.redistribution(&source.layout, to, moved_view)?;
        let held: Vec<(usize, usize)> = to.elements(view).collect();
        let moved = held.iter().map(|&(place, elements)| {
            (place, self.program.rank(place).buffer(terms * elements, storage, Contents::Moved(id)))
        });
        let mut target = DistributedValue { buffers: moved.collect(), layout: to.clone() };
        self.move_items(id, (redistribution, item_elements), (&source.buffers, &target.buffers), what)?;
        if terms > 1 {
            let label = format!("sum {what} of {}", layer.name());
            for ((place, buffer), (_, elements)) in target.buffers.iter_mut().zip(held) {
                let program = self.program.rank(*place);
                let sum = program.buffer(elements, storage, Contents::Moved(id));
                program.step(Op::SumAddends { terms }, label.clone(), vec![*buffer], vec![sum]);
                *buffer = sum;
            }
        }
        Ok(target)
    }

    /// Adds an all-reduce of addends, whose buffers then hold their sum, among the parts of each
    /// range of samples.
    fn reduce_addends(&mut self, id: LayerId, source: &DistributedValue, what: &str) -> DistributedValue {
        let of = &source.layout.of;
        let ranks = of.layout.ranks();
        let mut bucket = Bucket::new((ranks, ranks.len() / of.parts), []);
        bucket.labels.push(format!("{what} of {}", self.network.layer(id).name()));
        bucket.buffers = source.buffers.iter().map(|&(place, buffer)| (place, vec![buffer])).collect();
        let samples = of.layout.shards().map(|(_, samples)| samples.len()).max().unwrap_or(0);
        bucket.elements = samples * self.view(id).elements();
        self.program.all_reduce(bucket);
        let layout = TensorLayout::new(Rc::clone(of), Values::Copies);
        DistributedValue { layout, buffers: source.buffers.clone() }
    }

    /// Adds a redistribution between buffers, which are given with the places of their ranks. An
    /// item has `item_elements` elements.
    ///
    /// # Errors
    /// [`Error::OddSample`] if an item does not consist of whole scalars.
    fn move_items(
        &mut self,
        id: LayerId,
        (redistribution, item_elements): (Arc<Redistribution>, usize),
        (from, to): (&[PlacedBuffer], &[PlacedBuffer]),
        what: &str,
    ) -> Result<(), Error> {
        let layer = self.network.layer(id);
        let storage = Role::Output.storage(layer, self.precision);
        if !self.is_simulated && storage == Storage::Bf16 && item_elements % 2 > 0 {
            return Err(Error::OddSample { layer: layer.name().into(), elements: item_elements });
        }
        let mut operands: BTreeMap<usize, Operands> = BTreeMap::new();
        for &(place, buffer) in from {
            operands.entry(place).or_default().reads.push(buffer);
        }
        for &(place, buffer) in to {
            operands.entry(place).or_default().writes.push(buffer);
        }
        self.add_packed_buffers(id, (&redistribution, item_elements), &mut operands)?;
        let ranks = redistribution.ranks().to_vec();
        let label = format!("redistribute {what} of {}", layer.name());
        let op = CollectiveOp::Redistribute { redistribution, item_elements, storage };
        self.program.collective(op, (&ranks, 1), label, operands);
        Ok(())
    }

    /// Adds the buffers in which ranks gather what they send, and receive what they scatter, after
    /// the other written buffers.
    fn add_packed_buffers(
        &mut self,
        id: LayerId,
        (redistribution, item_elements): (&Redistribution, usize),
        operands: &mut BTreeMap<usize, Operands>,
    ) -> Result<(), Error> {
        let storage = Role::Output.storage(self.network.layer(id), self.precision);
        for (&place, operands) in operands {
            let program = self.program.rank(place);
            for elements in redistribution.packed_len(program.rank(), item_elements)? {
                if elements > 0 {
                    operands.writes.push(program.buffer(elements, storage, Contents::Packed(id)));
                }
            }
        }
        Ok(())
    }

    /// Adds a pass of a layer on all its ranks.
    fn passes(&mut self, id: LayerId, pass: Pass, op: impl Fn(Pass, LayerId, Shard) -> Op) {
        let shards: Vec<_> = self.layout[id.index()].shards(self.micro_batch.start).collect();
        self.passes_on(id, &shards, pass, op);
    }

    /// Adds a pass of a layer on some of its ranks, given by place and shard.
    fn passes_on(
        &mut self,
        id: LayerId,
        shards: &[(usize, Shard)],
        pass: Pass,
        op: impl Fn(Pass, LayerId, Shard) -> Op,
    ) {
        let (network, layer) = (self.network, self.network.layer(id));
        let Some(signature) = Signature::of(layer, pass) else { return };
        let label = format!("{} {}", verb(pass), layer.name());
        for &(place, shard) in shards {
            let program = self.program.rank(place);
            let mut operands = |roles: &[Role]| -> Vec<BufferId> {
                roles.iter().map(|&role| program.operand(id, network, role, shard.samples)).collect()
            };
            let (reads, writes) = (operands(&signature.reads), operands(&signature.writes));
            program.step(op(pass, id, shard), label.clone(), reads, writes);
        }
    }

    /// Returns an operand of a layer on its ranks.
    fn operand_buffers(&mut self, id: LayerId, role: Role) -> Vec<PlacedBuffer> {
        let (network, layout) = (self.network, self.layout(id));
        let shards = layout.shards(self.micro_batch.start);
        let operand = |(place, shard): (usize, Shard)| {
            (place, self.program.rank(place).operand(id, network, role, shard.samples))
        };
        shards.map(operand).collect()
    }

    /// Sums an operand over the ranks of a layer, or over those of each part.
    fn reduce_operand(&mut self, id: LayerId, role: Role, label: &str) {
        let layout = self.layout(id);
        let groups = self.placement.sum_groups(self.splits.as_ref(), id);
        let ranks = by_part(layout.layout.ranks(), groups);
        let mut bucket = Bucket::new((&ranks, groups), layout.places());
        self.add_to_bucket(&mut bucket, id, role, label);
        self.program.all_reduce(bucket);
    }

    /// Adds an operand whose length does not depend on the number of samples.
    fn add_to_bucket(&mut self, bucket: &mut Bucket, id: LayerId, role: Role, label: &str) {
        for (place, buffers) in &mut bucket.buffers {
            buffers.push(self.program.rank(*place).operand(id, self.network, role, 0));
        }
        bucket.elements += self.largest_part(id, role);
        bucket.labels.push(label.into());
    }

    /// Returns the number of elements of an operand whose length does not depend on the number of
    /// samples, of the first part of a layer: no other part has more.
    fn largest_part(&self, id: LayerId, role: Role) -> usize {
        let part = self.parts.get(&id).and_then(|parts| parts.first());
        role.elements(part.map_or(self.network.layer(id), |part| &part.layer), 0)
    }

    /// Returns whether a layer is a loss.
    fn is_loss(&self, id: LayerId) -> bool {
        self.network.layer(id).kind().is_loss()
    }

    /// Returns the loss layers in the order in which layers run.
    fn losses(&self) -> Vec<LayerId> {
        self.placement.order().iter().copied().filter(|&id| self.is_loss(id)).collect()
    }

    fn reduce_metrics(&mut self) {
        for loss in self.losses() {
            self.reduce_operand(loss, Role::Metrics, "metrics");
        }
    }
}

fn verb(pass: Pass) -> &'static str {
    match pass {
        Pass::ForwardMoments => "forward moments",
        Pass::Forward | Pass::ForwardInPlace => "forward",
        Pass::Recompute => "recompute",
        Pass::Infer => "infer",
        Pass::BackwardMoments => "backward moments",
        Pass::Backward | Pass::BackwardInPlace | Pass::BackwardParameters => "backward",
    }
}

/// Checks that the network has a loss, that no layer reads one, and that a loss depends on each
/// layer.
fn check_losses(network: &LayerGraph) -> Result<(), Error> {
    let name = |id: LayerId| network.layer(id).name().to_owned();
    if network.losses().next().is_none() {
        return Err(Error::NoLoss { network: network.name().into() });
    }
    for loss in network.losses() {
        if let Some((reader, _)) = network.consumers(loss).first() {
            let (network, loss, layer) = (network.name().into(), name(loss), name(*reader));
            return Err(Error::ReadLoss { network, loss, layer });
        }
    }
    match network.unused_layers().first() {
        None => Ok(()),
        Some(&unused) => Err(Error::UnusedLayer { network: network.name().into(), layer: name(unused) }),
    }
}
