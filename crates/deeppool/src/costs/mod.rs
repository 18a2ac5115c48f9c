//! The costs of layers and collectives: times from a profile and a link model, and the occupation
//! of a device by kernels. A *pass* is one kernel call of a layer's forward or backward step. Batch
//! normalisation has two passes per step, all other layers have one.

mod kernels;
mod links;
#[cfg(feature = "train")]
mod measurement;

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use collectives::{ClusterLinks, CollectiveKind, Flow, LinkModel};
use layer_engine::{Pass, Precision};
use layer_graph::{Layer, LayerGraph, LayerId};
use layer_profile::{DataSheet, DeviceModel, LayerProfile, LayerTime, NumberFormat, ProfileTable};

use crate::Error;
use crate::program::{Collective, CollectiveOp, ELEMENT_BYTES, Op, Program, RankProgram, Step};
use kernels::Footprint;

pub(crate) use kernels::{KernelCost, LayerKernels};
pub use links::default_link;
#[cfg(feature = "train")]
pub use measurement::measure_profile;

/// The costs of a network's layers on one kind of device, and of the links between devices.
///
/// Loading samples, accumulating and scaling gradients, and computing the gradient norm cost
/// nothing, both for the planner and for the simulator.
#[derive(Debug, Clone)]
pub struct Costs<'a> {
    network: &'a LayerGraph,
    profile: &'a ProfileTable,
    link: &'a LinkModel,
    /// Data sheet of the profile's device, if it is a known GPU.
    sheet: Option<DataSheet>,
    /// The profile's times of each layer, by layer id; `None` for a layer without times.
    rows: Vec<Option<&'a LayerProfile>>,
    /// Times of each layer while several ranks compute at once, by layer id; `None` if they are not
    /// known.
    contended_rows: Vec<Option<&'a LayerProfile>>,
    /// Whether each layer needs a gradient, by layer id.
    needs_gradient: Vec<bool>,
    /// Model of the profile's device, or of a processor core if it has none: see
    /// [`part_ratios`](Self::part_ratios).
    model: OnceLock<DeviceModel>,
}

/// Ratios of the times of the steps of a part of a layer to those of the whole layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartRatios {
    forward: f64,
    backward: f64,
    update: f64,
}

impl PartRatios {
    /// Returns the ratios of the times of a part to those of the whole layer.
    fn new(part: &LayerTime, whole: &LayerTime) -> Self {
        let ratio = |of: fn(&LayerTime) -> Duration| {
            let (part, whole) = (of(part), of(whole));
            if whole.is_zero() { 0.0 } else { part.as_secs_f64() / whole.as_secs_f64() }
        };
        Self {
            forward: ratio(|time| time.forward),
            backward: ratio(|time| time.backward),
            update: ratio(|time| time.update),
        }
    }

    /// Returns the times of the part, if those of the whole layer are `whole`.
    pub(crate) fn of(&self, whole: &LayerTime) -> LayerTime {
        LayerTime {
            forward: whole.forward.mul_f64(self.forward),
            backward: whole.backward.mul_f64(self.backward),
            update: whole.update.mul_f64(self.update),
        }
    }
}

impl<'a> Costs<'a> {
    /// Creates the costs of a network from a profile and a link model. The profile is that of one
    /// device, by layer name.
    #[must_use]
    pub fn new(network: &'a LayerGraph, profile: &'a ProfileTable, link: &'a LinkModel) -> Self {
        let sheet = DataSheet::of_device(profile.device());
        let rows = network.layers().map(|(_, layer)| profile.layer(layer.name())).collect();
        let contended: HashMap<&str, &LayerProfile> = profile
            .contended()
            .into_iter()
            .flat_map(|times| times.layers().iter().map(|row| (row.name.as_str(), row)))
            .collect();
        let contended_rows =
            network.layers().map(|(_, layer)| contended.get(layer.name()).copied()).collect();
        let needs_gradient = network.needs_gradient();
        Self { network, profile, link, sheet, rows, contended_rows, needs_gradient, model: OnceLock::new() }
    }

    /// Returns the times of a layer's steps for `samples` samples on one device, while no other
    /// rank computes. The update time is zero for a layer that owns no parameters.
    ///
    /// # Errors
    /// [`Error::Profile`] if the profile lacks the time.
    pub(crate) fn layer_time(&self, layer: LayerId, samples: usize) -> Result<LayerTime, Error> {
        self.layer_time_among(layer, samples, 1.0)
    }

    /// Returns the times of a layer's steps for `samples` samples on one device, while `computing`
    /// ranks compute at once. They are those of [`layer_time`](Self::layer_time), unless the
    /// profile has [times of several ranks](ProfileTable::contended).
    ///
    /// # Errors
    /// [`Error::Profile`] if the profile lacks the time.
    pub(crate) fn layer_time_among(
        &self,
        layer: LayerId,
        samples: usize,
        computing: f64,
    ) -> Result<LayerTime, Error> {
        let alone = match self.rows[layer.index()] {
            Some(row) => row.time(samples)?,
            // Returns the error with the layer's name.
            None => self.profile.time(self.network.layer(layer).name(), samples)?,
        };
        let time = match (self.profile.contended(), self.contended_rows[layer.index()]) {
            (Some(times), Some(row)) => times.interpolate(alone, row.time(samples)?, computing),
            _ => alone,
        };
        let updates = self.network.own_parameter_count(layer) > 0;
        Ok(if updates { time } else { LayerTime { update: Duration::ZERO, ..time } })
    }

    /// Returns the times of the steps of a part of a layer: those of the whole layer, scaled by
    /// [`part_ratios`](Self::part_ratios). Without a part it is
    /// [`layer_time_among`](Self::layer_time_among).
    ///
    /// # Errors
    /// [`Error::Profile`] if the profile lacks the time of the whole layer.
    pub(crate) fn part_time_among(
        &self,
        (layer, part): (LayerId, Option<&Layer>),
        samples: usize,
        computing: f64,
    ) -> Result<LayerTime, Error> {
        let whole = self.layer_time_among(layer, samples, computing)?;
        let Some(part) = part else { return Ok(whole) };
        Ok(self.part_ratios((layer, part), samples)?.of(&whole))
    }

    /// Returns the ratios of the times of a part of a layer to those of the whole layer, on one
    /// rank alone: by the profile if it has [times of the part](ProfileTable::part) for this number
    /// of samples, and otherwise by the model of the profile's device. They are the same for layers
    /// of the same kind and shapes unless the profile has times of parts.
    ///
    /// # Errors
    /// [`Error::Profile`] if the profile lacks the time of the whole layer, and those of the
    /// built-in model of a processor core.
    pub(crate) fn part_ratios(
        &self,
        (layer, part): (LayerId, &Layer),
        samples: usize,
    ) -> Result<PartRatios, Error> {
        let profiled = self.profile.part(part).and_then(|row| row.time(samples).ok());
        if let (Some(of_part), Some(row)) = (profiled, self.rows[layer.index()]) {
            return Ok(PartRatios::new(&of_part, &row.time(samples)?));
        }
        let model = if let Some(known) = self.model.get() {
            known
        } else {
            let of_device = DeviceModel::named(self.profile.device());
            let model = of_device.or_else(|_| DeviceModel::named("cpu-core"))?;
            self.model.get_or_init(|| model)
        };
        let [part, whole] = [part, self.network.layer(layer)].map(|layer| model.layer_time(layer, samples));
        Ok(PartRatios::new(&part, &whole))
    }

    /// Returns the time of a compute step of a rank; zero for a collective.
    ///
    /// A profile has one time for a layer's whole forward or backward step. It is charged to the
    /// last forward pass and to the first backward pass.
    ///
    /// # Errors
    /// [`Error::Profile`] if the profile lacks the time.
    pub fn compute_time(&self, rank: &RankProgram, op: &Op) -> Result<Duration, Error> {
        self.compute_time_among(rank, op, 1.0)
    }

    /// Returns the time of a compute step of a rank while `computing` ranks compute at once; see
    /// [`compute_time`](Self::compute_time).
    ///
    /// # Errors
    /// [`Error::Profile`] if the profile lacks the time.
    pub(crate) fn compute_time_among(
        &self,
        rank: &RankProgram,
        op: &Op,
        computing: f64,
    ) -> Result<Duration, Error> {
        let time = |layer: LayerId, samples| {
            let part = rank.parts.get(&layer).map(|part| &part.layer);
            self.part_time_among((layer, part), samples, computing)
        };
        Ok(match op {
            Op::Forward {
                layer,
                pass: Pass::Forward | Pass::ForwardInPlace | Pass::Recompute | Pass::Infer,
                shard,
            } => time(*layer, shard.samples)?.forward,
            // The first pass of batch normalisation includes the gradient of its parameters.
            Op::Backward { layer, pass: Pass::Backward, .. } if self.is_normalisation(*layer) => {
                Duration::ZERO
            }
            Op::Backward { layer, shard, .. } => time(*layer, shard.samples)?.backward,
            // The update does not depend on the number of samples.
            Op::OptimizerStep { layer, .. } => time(*layer, 0)?.update,
            Op::Forward { .. }
            | Op::LoadBatch { .. }
            | Op::SumGradients
            | Op::SumAddends { .. }
            | Op::AddGradient
            | Op::ScaleGradient { .. }
            | Op::SquaredNorm
            | Op::Collective(_) => Duration::ZERO,
        })
    }

    /// Returns the kernels of a compute step that takes `duration`, to which their times add up. A
    /// step that takes no time has none.
    ///
    /// A forward step and an optimiser step are one kernel. A backward step is one or two: the
    /// gradients of the input and of the parameters, with half of the time each.
    ///
    /// The occupation of the device is modelled. A thread block of a matrix product, a convolution
    /// or an attention computes 128 x 128 values, and a block of any other kernel 1,024 elements. A
    /// kernel moves each of its tensors once: its share of the memory bandwidth is the size of the
    /// tensors, divided by its duration and the bandwidth of the device. Without a [data
    /// sheet](DataSheet), as for a processor core, a kernel fills the device.
    pub(crate) fn kernels(&self, rank: &RankProgram, op: &Op, duration: Duration) -> Vec<KernelCost> {
        let part = |id: LayerId| rank.layer(self.network, id);
        let footprints = match op {
            Op::Forward { layer, shard, .. } => self.forward_footprints(part(*layer), shard.samples),
            Op::Backward { layer, shard, .. } => {
                self.backward_footprints((*layer, part(*layer)), shard.samples)
            }
            Op::OptimizerStep { layer, .. } => Footprint::of_update(part(*layer).parameter_count()),
            Op::LoadBatch { .. }
            | Op::SumGradients
            | Op::SumAddends { .. }
            | Op::AddGradient
            | Op::ScaleGradient { .. }
            | Op::SquaredNorm
            | Op::Collective(_) => Vec::new(),
        };
        Footprint::kernels(&footprints, duration, self.sheet.as_ref())
    }

    /// Returns the kernels of all steps of a layer for the given number of samples on one device,
    /// while all ranks of the machine compute.
    ///
    /// # Errors
    /// [`Error::Profile`] if the profile lacks the time.
    pub(crate) fn layer_kernels(&self, layer: LayerId, samples: usize) -> Result<LayerKernels, Error> {
        let LayerTime { forward, backward, update } = self.layer_time_among(layer, samples, f64::INFINITY)?;
        let sheet = self.sheet.as_ref();
        let whole = self.network.layer(layer);
        let of_forward = self.forward_footprints(whole, samples);
        let of_update = Footprint::of_update(self.network.own_parameter_count(layer));
        Ok(LayerKernels {
            forward: Footprint::kernels(&of_forward, forward, sheet),
            backward: Footprint::kernels(&self.backward_footprints((layer, whole), samples), backward, sheet),
            update: Footprint::kernels(&of_update, update, sheet),
        })
    }

    fn forward_footprints(&self, part: &Layer, samples: usize) -> Vec<Footprint> {
        self.in_precision(Footprint::of_forward(part, samples))
    }

    /// Returns the footprints of the backward step of a layer, or of a part of it.
    fn backward_footprints(&self, (layer, part): (LayerId, &Layer), samples: usize) -> Vec<Footprint> {
        let input_gradient = self.has_input_gradient(layer);
        self.in_precision(Footprint::of_backward(part, samples, input_gradient))
    }

    /// Returns the footprints in the precision of the times: 16 bits are half the bytes.
    fn in_precision(&self, footprints: Vec<Footprint>) -> Vec<Footprint> {
        match self.precision() {
            Precision::Bf16 => footprints.into_iter().map(Footprint::in_16_bits).collect(),
            _ => footprints,
        }
    }

    /// Returns the precision of programs that take these times: [`Bf16`](Precision::Bf16) if the
    /// matrix products of the profile have 16 bits, and otherwise [`F32`](Precision::F32), whose
    /// programs are also those of TF32.
    #[must_use]
    pub fn precision(&self) -> Precision {
        match self.profile.number_format() {
            Some(NumberFormat::Half) => Precision::Bf16,
            Some(NumberFormat::Fp32 | NumberFormat::Tf32) | None => Precision::F32,
        }
    }

    fn is_normalisation(&self, layer: LayerId) -> bool {
        Pass::backward(self.network.layer(layer), true).contains(&Pass::BackwardMoments)
    }

    /// Returns whether the gradient of a layer's inputs is needed.
    fn has_input_gradient(&self, layer: LayerId) -> bool {
        self.network.producers(layer).iter().any(|producer| self.needs_gradient[producer.index()])
    }

    /// Returns the time of a collective, from the arrival of its last rank to its end.
    #[must_use]
    pub fn collective_time(&self, collective: &Collective) -> Duration {
        let bytes = |elements: usize| elements as u64 * ELEMENT_BYTES;
        let in_groups = |kind: CollectiveKind, elements: usize| {
            self.link.cost_in_groups(kind, &collective.ranks, collective.groups, bytes(elements))
        };
        match &collective.op {
            CollectiveOp::AllReduce { elements } => in_groups(CollectiveKind::AllReduce, *elements),
            CollectiveOp::Broadcast { elements } => in_groups(CollectiveKind::Broadcast, *elements),
            CollectiveOp::Redistribute { redistribution, item_elements, storage } => {
                self.link.redistribution(redistribution, bytes(storage.scalars(*item_elements)))
            }
        }
    }

    /// Returns the flow of a collective over the links of a cluster, on which rank `i` is GPU
    /// `gpus[i]`. Alone, it takes the [time of the collective](Self::collective_time) by the link
    /// model of the cluster.
    ///
    /// # Errors
    /// [`Error::Collective`] if a number of bytes is out of range.
    pub(crate) fn collective_flow(
        collective: &Collective,
        links: &ClusterLinks,
        gpus: &[usize],
    ) -> Result<Flow, Error> {
        let bytes = |elements: usize| elements as u64 * ELEMENT_BYTES;
        let in_groups = |kind: CollectiveKind, elements: usize| {
            let placed = collective.ranks.iter().map(|&rank| gpus.get(rank).copied().unwrap_or(rank));
            links.collective(kind, &placed.collect::<Vec<_>>(), collective.groups, bytes(elements))
        };
        Ok(match &collective.op {
            CollectiveOp::AllReduce { elements } => in_groups(CollectiveKind::AllReduce, *elements)?,
            CollectiveOp::Broadcast { elements } => in_groups(CollectiveKind::Broadcast, *elements)?,
            CollectiveOp::Redistribute { redistribution, item_elements, storage } => {
                links.redistribution(redistribution, gpus, bytes(storage.scalars(*item_elements)))?
            }
        })
    }

    /// Returns the times of the steps of all programs of ranks: by index in [`Program::ranks`],
    /// then by step. The time of a collective starts when all its ranks have arrived. All ranks of
    /// a layer are assumed to compute at once, and no others.
    ///
    /// # Errors
    /// As [`compute_time`](Self::compute_time).
    pub fn step_times(&self, program: &Program) -> Result<Vec<Vec<Duration>>, Error> {
        let ranks = self.ranks_by_layer(program);
        // Each collective is a step of several ranks.
        let transfers: Vec<Duration> =
            program.collectives.iter().map(|collective| self.collective_time(collective)).collect();
        let of_step = |rank: &RankProgram, step: &Step| match step.op {
            Op::Collective(id) => Ok(transfers[id.0]),
            Op::Forward { layer, .. } | Op::Backward { layer, .. } | Op::OptimizerStep { layer, .. } => {
                self.compute_time_among(rank, &step.op, ranks[layer.index()] as f64)
            }
            _ => self.compute_time(rank, &step.op),
        };
        let of_rank = |rank: &RankProgram| rank.steps.iter().map(|step| of_step(rank, step)).collect();
        program.ranks.iter().map(of_rank).collect()
    }

    /// Returns the number of ranks that run each layer, by layer id.
    fn ranks_by_layer(&self, program: &Program) -> Vec<usize> {
        let mut ranks = vec![0; self.network.len()];
        for rank in &program.ranks {
            let layers = rank.steps.iter().filter_map(|step| match step.op {
                Op::Forward { layer, .. } => Some(layer.index()),
                _ => None,
            });
            let mut layers: Vec<usize> = layers.collect();
            layers.sort_unstable();
            layers.dedup();
            for layer in layers {
                ranks[layer] += rank.represented_ranks.len();
            }
        }
        ranks
    }

    /// The network whose layers have these costs.
    #[must_use]
    pub fn network(&self) -> &'a LayerGraph {
        self.network
    }

    /// The profile with the layer times.
    #[must_use]
    pub fn profile(&self) -> &'a ProfileTable {
        self.profile
    }

    /// The link model, which gives the times of collectives.
    #[must_use]
    pub fn link(&self) -> &'a LinkModel {
        self.link
    }
}

/// Returns the sizes, in samples, of all shards of a batch of `batch` samples on each GPU count up
/// to `gpus`, and 1, in ascending order. These are the batch sizes that a profile needs.
#[must_use]
pub fn shard_sizes(batch: usize, gpus: usize) -> Vec<usize> {
    let of_count = |count: usize| [batch.div_ceil(count), batch / count];
    let mut sizes: Vec<usize> = (1..=gpus.min(batch)).flat_map(of_count).chain([1]).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Returns a duration in microseconds.
pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
