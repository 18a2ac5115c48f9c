//! The choice of activation checkpoints for a memory limit.
//!
//! The possible checkpoints divide the network into *segments*, from one checkpoint to the next.
//! Before the backward pass reaches a segment that ends at a checkpoint, the segment is recomputed,
//! which takes time. Memory is that of the outputs kept before the segment, of the activations
//! within the segment, and of the gradients so far. Both are sums and maxima over segments, so the
//! fastest checkpoints within a limit are a shortest path through the possible checkpoints with the
//! memory of kept outputs as its resource. It is found by dynamic programming with labels, as in
//! M. Desrochers and F. Soumis, "A generalized permanent labelling algorithm for the shortest path
//! problem with time windows", INFOR 26 (1988), section 3.

use burst_planner::{CostModel, NodeMemory, ShardSize};
use layer_engine::Pass;
use layer_graph::LayerId;

use crate::Error;
use crate::costs::micros;
use crate::job::{Job, JobCosts, PlannerNodes};
use crate::program::{ELEMENT_BYTES, backward_passes, backward_reads, is_read_once, possible_checkpoints};

/// Maximum number of labels of a checkpoint. Of more, labels at equal distances in memory are kept.
const MAX_LABELS: usize = 48;

/// A segment of the network.
#[derive(Debug, Clone, Copy, Default)]
struct Segment {
    /// Time of its recomputation, microseconds.
    recomputed_us: f64,
    /// Maximum memory during its backward pass besides the outputs kept before it, bytes.
    peak_bytes: f64,
    /// Memory that is kept from its forward to its backward pass, bytes.
    kept_bytes: f64,
}

/// The checkpoints before a segment.
#[derive(Debug, Clone, Copy)]
struct Label {
    kept_bytes: f64,
    recomputed_us: f64,
    /// The place of the checkpoint before this one, and the index of its label.
    previous: (usize, usize),
}

/// The possible checkpoints of a job, with the time and memory of the segments between each two of
/// them. Memory is estimated for a rank that has all layers, without its parameters.
pub(super) struct Segments {
    possible: Vec<LayerId>,
    /// Segment by the places of its start and its end. Place 0 is the input, place i + 1 the
    /// possible checkpoint i, and the last place the loss.
    segments: Vec<Vec<Segment>>,
}

impl Segments {
    /// Computes the segments of a job with each layer on `ranks` ranks. Times that the profile
    /// lacks are zero. O(layers x possible checkpoints).
    pub(super) fn new(job: &Job<'_>, ranks: usize) -> Result<Self, Error> {
        let network = job.costs().network();
        let possible = possible_checkpoints(network);
        let layers = LayerValues::new(job, ranks)?;
        let place_after = {
            let mut places = vec![None; network.len()];
            places[network.inputs().len() - 1] = Some(0);
            for (index, id) in possible.iter().enumerate() {
                places[id.index()] = Some(index + 1);
            }
            places
        };
        let last = LayerId::index(network.layers().last().map_or(network.input(), |(id, _)| id));
        let ends = possible.iter().map(|id| id.index()).chain([last]);
        let mut segments = vec![vec![Segment::default(); possible.len() + 2]; possible.len() + 1];
        for (place, end) in ends.enumerate() {
            let place = place + 1;
            layers.for_each_segment_to(end, place <= possible.len(), |before, segment| {
                if let Some(from) = place_after[before] {
                    segments[from][place] = segment;
                }
            });
        }
        Ok(Self { possible, segments })
    }

    /// Returns the places of the checkpoints with the minimum time of recomputation within a memory
    /// limit by the estimate, and that time in microseconds. `None` if none are within the limit.
    /// O(possible checkpoints squared).
    pub(super) fn fastest_within(&self, limit_bytes: f64) -> Option<(Vec<usize>, f64)> {
        let end = self.possible.len() + 1;
        let start = Label { kept_bytes: 0.0, recomputed_us: 0.0, previous: (0, 0) };
        let mut labels: Vec<Vec<Label>> = vec![vec![start]];
        for to in 1..=end {
            let mut of_place = Vec::new();
            // At least one checkpoint is before the last segment.
            for (from, of_from) in labels.iter().enumerate().skip(usize::from(to == end)) {
                let segment = self.segments[from][to];
                let fitting =
                    of_from.iter().take_while(|label| label.kept_bytes + segment.peak_bytes <= limit_bytes);
                of_place.extend(fitting.enumerate().map(|(index, label)| Label {
                    kept_bytes: label.kept_bytes + segment.kept_bytes,
                    recomputed_us: label.recomputed_us + segment.recomputed_us,
                    previous: (from, index),
                }));
            }
            labels.push(thinned(pareto_optimal(of_place)));
        }
        // The last is the fastest, with the most memory.
        let fastest = *labels[end].last()?;
        let mut checkpoints = Vec::new();
        let (mut place, mut index) = fastest.previous;
        while place > 0 {
            checkpoints.push(place - 1);
            (place, index) = labels[place][index].previous;
        }
        checkpoints.reverse();
        Some((checkpoints, fastest.recomputed_us))
    }

    /// Returns for each k the places of every k-th possible checkpoint.
    pub(super) fn evenly_spaced(&self) -> impl Iterator<Item = Vec<usize>> + '_ {
        let count = self.possible.len();
        (1..=count).map(move |distance| (distance - 1..count).step_by(distance).collect())
    }

    /// Returns the time of recomputation in microseconds, and the estimated memory in bytes, with
    /// checkpoints at the given places.
    pub(super) fn estimate(&self, checkpoints: &[usize]) -> (f64, f64) {
        let (mut from, mut kept_bytes) = (0, 0.0);
        let (mut recomputed_us, mut peak_bytes) = (0.0, 0.0_f64);
        for to in checkpoints.iter().map(|place| place + 1).chain([self.possible.len() + 1]) {
            let segment = self.segments[from][to];
            peak_bytes = peak_bytes.max(kept_bytes + segment.peak_bytes);
            kept_bytes += segment.kept_bytes;
            recomputed_us += segment.recomputed_us;
            from = to;
        }
        (recomputed_us, peak_bytes)
    }

    /// Returns the estimated memory without checkpoints.
    pub(super) fn bytes_without(&self) -> f64 {
        self.segments[0][self.possible.len() + 1].peak_bytes
    }

    /// Returns the names of the layers at the given places.
    pub(super) fn names(&self, job: &Job<'_>, checkpoints: &[usize]) -> Vec<String> {
        let name = |&place: &usize| job.costs().network().layer(self.possible[place]).name().to_owned();
        checkpoints.iter().map(name).collect()
    }
}

/// Returns the labels that no other one beats in both memory and time, by ascending memory and
/// descending time.
fn pareto_optimal(mut labels: Vec<Label>) -> Vec<Label> {
    labels.sort_by(|a, b| {
        a.kept_bytes.total_cmp(&b.kept_bytes).then(a.recomputed_us.total_cmp(&b.recomputed_us))
    });
    let mut min_us = f64::INFINITY;
    labels.retain(|label| {
        let is_faster = label.recomputed_us < min_us;
        min_us = min_us.min(label.recomputed_us);
        is_faster
    });
    labels
}

/// Returns at most [`MAX_LABELS`] of the labels: the first, the last, and the first one in each of
/// equal ranges of memory.
fn thinned(labels: Vec<Label>) -> Vec<Label> {
    let (Some(&first), Some(&last)) = (labels.first(), labels.last()) else { return labels };
    if labels.len() <= MAX_LABELS {
        return labels;
    }
    let range_bytes = (last.kept_bytes - first.kept_bytes) / (MAX_LABELS - 2) as f64;
    let mut next_bytes = first.kept_bytes;
    let mut kept = Vec::with_capacity(MAX_LABELS);
    let (last_index, all) = (labels.len() - 1, labels.into_iter().enumerate());
    for (index, label) in all {
        if label.kept_bytes >= next_bytes || index == last_index {
            kept.push(label);
            let ranges = ((label.kept_bytes - first.kept_bytes) / range_bytes).floor() + 1.0;
            next_bytes = first.kept_bytes + ranges * range_bytes;
        }
    }
    kept
}

/// Values of the layers of a job, by layer index.
struct LayerValues {
    /// Number of input layers, which are the first ones.
    inputs: usize,
    consumers: Vec<Vec<usize>>,
    forward_us: Vec<f64>,
    output_bytes: Vec<f64>,
    /// Other values for the backward pass.
    saved_bytes: Vec<f64>,
    /// Whether the backward step reads the layer's input, and its output.
    reads_input: Vec<bool>,
    reads_output: Vec<bool>,
    reads_saved: Vec<bool>,
    is_read_once: Vec<bool>,
    /// Gradients that exist during the backward step of the layer: those of activations, and those
    /// of the parameters so far.
    gradient_bytes: Vec<f64>,
    /// Gradients of the parameters of later layers.
    later_gradient_bytes: Vec<f64>,
    /// Outputs during the forward step of the layer that no backward step reads.
    passing_bytes: Vec<f64>,
}

impl LayerValues {
    fn new(job: &Job<'_>, ranks: usize) -> Result<Self, Error> {
        let samples = job.micro_batch()?.div_ceil(ranks);
        let network = job.costs().network();
        let needs_gradient = network.needs_gradient();
        let ids: Vec<LayerId> = network.layers().map(|(id, _)| id).collect();
        let costs = JobCosts::new(job);
        let nodes = PlannerNodes::new(network);
        let of_node = |&id: &LayerId| costs.memory(nodes.node(id), ranks, ShardSize::Larger);
        let (inputs, computing) = ids.split_at(network.inputs().len());
        let of_inputs = inputs.iter().map(|_| NodeMemory::default());
        let memory: Vec<NodeMemory> = of_inputs.chain(computing.iter().map(of_node)).collect();
        let reads: Vec<_> = ids.iter().map(|&id| backward_reads(network, id, &needs_gradient)).collect();
        let consumers: Vec<Vec<usize>> = ids
            .iter()
            .map(|&id| network.consumers(id).into_iter().map(|(id, _)| id.index()).collect())
            .collect();
        let mut forward_us = vec![0.0; ids.len()];
        for &id in computing {
            let time = job.costs().layer_time(id, samples);
            forward_us[id.index()] = time.map_or(0.0, |time| micros(time.forward));
        }
        // The gradient of an output exists from the backward step of the last consumer to the
        // layer's own one.
        let mut changes = vec![0.0; ids.len() + 1];
        for &id in computing.iter().filter(|id| needs_gradient[id.index()]) {
            // In place, the gradient has the memory of the output.
            let is_in_place = |&consumer: &usize| {
                backward_passes(network, ids[consumer], true).contains(&Pass::BackwardInPlace)
            };
            let of_layer = &consumers[id.index()];
            if let Some(&last) = of_layer.iter().max().filter(|_| !of_layer.iter().any(is_in_place)) {
                let bytes = memory[id.index()].output_bytes as f64;
                changes[id.index()] += bytes;
                changes[last + 1] -= bytes;
            }
        }
        let mut now = 0.0;
        let mut gradient_bytes: Vec<f64> = Vec::with_capacity(ids.len());
        let mut later_gradient_bytes = vec![0.0; ids.len()];
        for (change, memory) in changes.iter().zip(&memory) {
            now += change;
            gradient_bytes.push(now + memory.step_bytes as f64);
        }
        // With several micro-batches, the sum of all gradients exists all the time.
        if job.lowering().micro_batches == 1 {
            let mut of_parameters = 0.0;
            for &id in ids.iter().rev() {
                later_gradient_bytes[id.index()] = of_parameters;
                of_parameters += (network.own_parameter_count(id) as u64 * ELEMENT_BYTES) as f64;
                gradient_bytes[id.index()] += of_parameters;
            }
        }
        let mut values = Self {
            inputs: inputs.len(),
            consumers,
            forward_us,
            output_bytes: memory.iter().map(|memory| memory.output_bytes as f64).collect(),
            saved_bytes: memory.iter().map(|memory| memory.saved_bytes as f64).collect(),
            reads_input: reads.iter().map(|reads| reads.input).collect(),
            reads_output: reads.iter().map(|reads| reads.output).collect(),
            reads_saved: reads.iter().map(|reads| reads.saved).collect(),
            is_read_once: ids.iter().map(|&id| is_read_once(network, id)).collect(),
            gradient_bytes,
            later_gradient_bytes,
            passing_bytes: Vec::new(),
        };
        let mut changes = vec![0.0; ids.len() + 1];
        for layer in (inputs.len()..ids.len()).filter(|&layer| !values.is_read(layer)) {
            let last = values.consumers[layer].iter().max().copied().unwrap_or(layer);
            changes[layer] += values.output_bytes[layer];
            changes[last + 1] -= values.output_bytes[layer];
        }
        let mut now = 0.0;
        values.passing_bytes = changes
            .into_iter()
            .map(|change| {
                now += change;
                now
            })
            .collect();
        Ok(values)
    }

    /// Calls `add` for each layer before layer `end`, in reverse order, with the segment from the
    /// layer after it to `end`. `is_checkpoint` is whether `end` is a checkpoint, and not the last
    /// layer. O(layers + edges).
    fn for_each_segment_to(&self, end: usize, is_checkpoint: bool, mut add: impl FnMut(usize, Segment)) {
        let mut is_recomputed = vec![false; end + 1];
        // Of the layers so far, which are those after the current one.
        let (mut alive_bytes, mut kept_bytes, mut recomputed_us) = (0.0, 0.0, 0.0);
        // Maximum of the gradients less the activations of the layers after them.
        let mut excess_bytes = f64::NEG_INFINITY;
        for layer in (self.inputs..=end).rev() {
            excess_bytes = excess_bytes.max(self.gradient_bytes[layer] - alive_bytes);
            let is_again = |&consumer: &usize| is_recomputed.get(consumer).copied().unwrap_or(false);
            let is_later = self.consumers[layer].iter().any(|&consumer| consumer > end);
            // A later segment may recompute a layer that reads the output, except for that of the
            // checkpoint, which is counted there.
            let is_kept = self.is_read(layer) || is_later && layer != end;
            let is_read_again = self.consumers[layer].iter().any(is_again);
            let saved_bytes = if self.reads_saved[layer] { self.saved_bytes[layer] } else { 0.0 };
            let bytes = saved_bytes + if is_kept { self.output_bytes[layer] } else { 0.0 };
            let is_needed = is_kept || is_read_again || self.reads_saved[layer];
            let is_local = self.is_read_once[layer] && !is_later;
            if is_checkpoint && layer != end && is_local && is_needed {
                is_recomputed[layer] = true;
                recomputed_us += self.forward_us[layer];
                let of_step =
                    self.passing_bytes[layer] + self.later_gradient_bytes[end] + self.output_bytes[end];
                excess_bytes = excess_bytes.max(of_step - alive_bytes);
            } else {
                kept_bytes += bytes;
            }
            alive_bytes += bytes;
            // The checkpoint before the segment, if only the repeated forward pass reads it.
            let before = layer - 1;
            let is_again = |&consumer: &usize| is_recomputed.get(consumer).copied().unwrap_or(false);
            let is_read_again = self.consumers[before].iter().any(is_again);
            let start_bytes = if before >= self.inputs && is_read_again && !self.is_read(before) {
                self.output_bytes[before]
            } else {
                0.0
            };
            add(
                before,
                Segment {
                    recomputed_us,
                    peak_bytes: alive_bytes + excess_bytes + start_bytes,
                    kept_bytes: kept_bytes + start_bytes,
                },
            );
        }
    }

    /// Returns whether a backward step reads the output of a layer.
    fn is_read(&self, layer: usize) -> bool {
        self.reads_output[layer] || self.consumers[layer].iter().any(|&consumer| self.reads_input[consumer])
    }
}
