//! Structured partial backpropagation: the parts of the batch that reach each layer. A part
//! *reaches* a layer if it is backpropagated at least down to this layer.

use std::ops::Range;

use layer_graph::{LayerGraph, LayerId};
use serde::{Deserialize, Serialize};

use super::IterationSchedule;
use crate::Error;

/// Settings of structured partial backpropagation: each part of the global batch is backpropagated
/// through a part of the network only, in turn.
///
/// The batch is split into `K` parts of consecutive samples, as evenly as possible. In an iteration
/// each part has another *role*, from 1 to `K`, and in `K` iterations every role once. Role `r`
/// backpropagates from the loss down to some layer; role `K` goes through the whole network. So a
/// layer has the gradients of `n` of the `K` parts, where `n` decreases towards the input. They are
/// weighted by `K / n`: with the same parameters and samples, the mean gradient of `K` iterations
/// is that of the whole batch (without gradient clipping, and if batch normalisation does not mix
/// samples of several parts).
///
/// - No rank computes longer with `m K` parts than with `K`, for any placement, if no prime factor
///   of `m` is below the largest of `K`: from 1 to any number, from 2 to 4 and 6, from 3 to 9, but
///   not from 2 to 3. No choice of roles can guarantee it for all numbers.
/// - A rank without a contributing sample in its shard skips the backward step of the layer.
///   Otherwise the step is that of the whole shard, with zero gradients for samples that do not
///   contribute.
/// - Only ranks with contributing samples reduce the parameters' gradient. The result is broadcast
///   to the other ranks that hold the parameters.
/// - The optimiser updates all parameters in every iteration. Momentum, weight decay and clipping
///   use the weighted gradients. (If all parts have the [same role](Self::together), it updates
///   only the parameters that the role reaches.)
/// - Shared parameters: the gradient of each use has the weight of the layer that uses them.
/// - Batch normalisation by shard: through the statistics, gradients reach samples of the shard
///   that do not contribute. They are propagated until fewer parts contribute.
///   [Synchronised](super::LowerOptions::sync_batch_norm) normalisation drops them, so that the
///   result does not depend on the placement; its backward means are over all samples. Running
///   statistics are those of all samples.
/// - Layers that no part reaches ([`frozen_below`](Self::frozen_below)) are not updated.
///
/// After "Doing More by Doing Less: How Structured Partial Backpropagation Improves Deep Learning
/// Clusters" (A. Kumar et al., 2021). Only its abstract was available: the rule is our own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartialBackpropagation {
    /// Number of parts of the batch: `K`.
    parts: usize,
    /// The first layer, in the network's order, that each role reaches, from role 1 on. The last
    /// role is omitted if it reaches all layers.
    lowest: Vec<String>,
    /// Whether all parts have the same role in an iteration.
    #[serde(default, skip_serializing_if = "is_false")]
    together: bool,
    /// Whether the iteration of the rotation is drawn at random.
    #[serde(default, skip_serializing_if = "is_false")]
    at_random: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Rule that gives the depth of each role of a [`PartialBackpropagation`]. Role `r` of `K`, from 1,
/// is the `r`-th shallowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartialDepth<'t> {
    /// By number of layers: role `r` reaches the last `ceil(r L / K)` of the `L` layers with
    /// parameters.
    Layers,
    /// By backward time: role `r` reaches down to the layer with parameters at which at least `r /
    /// K` of the total backward time is done. The times are by layer id, the input included, in any
    /// unit.
    Time(&'t [u64]),
}

impl PartialBackpropagation {
    /// Creates settings with `parts` parts of the batch and as many roles, with depths by the given
    /// rule.
    ///
    /// # Errors
    /// [`Error::Setting`] if there are fewer than two parts, the network has no parameters, or the
    /// times are not one per layer.
    pub fn new(network: &LayerGraph, parts: usize, depth: PartialDepth<'_>) -> Result<Self, Error> {
        let with_parameters: Vec<LayerId> =
            network.layers().filter(|(_, layer)| layer.parameter_count() > 0).map(|(id, _)| id).collect();
        let layers = with_parameters.len();
        if parts < 2 || layers == 0 {
            return Err(Error::Setting {
                setting: "the number of parts of partial backpropagation",
                expected: "at least 2, of a network with parameters",
                got: format!("{parts} for {layers} layers with parameters"),
            });
        }
        if let PartialDepth::Time(times) = depth {
            if times.len() != network.len() || times.iter().all(|&time| time == 0) {
                return Err(Error::Setting {
                    setting: "backward times for partial backpropagation",
                    expected: "one for each layer, not all of them zero",
                    got: format!("{} for {} layers", times.len(), network.len()),
                });
            }
        }
        let needs_gradient = network.needs_gradient();
        let lowest = (1..parts).map(|role| match depth {
            PartialDepth::Layers => with_parameters[layers - (role * layers).div_ceil(parts)],
            PartialDepth::Time(times) => {
                let time = |id: LayerId| {
                    if needs_gradient[id.index()] { u128::from(times[id.index()]) } else { 0 }
                };
                let all: u128 = network.layers().map(|(id, _)| time(id)).sum();
                let after = |first: LayerId| -> u128 {
                    network.layers().map(|(id, _)| id).filter(|id| *id >= first).map(time).sum()
                };
                let is_enough = |id: &&LayerId| after(**id) * parts as u128 >= all * role as u128;
                with_parameters.iter().rev().find(is_enough).copied().unwrap_or(with_parameters[0])
            }
        });
        let lowest = lowest.map(|id| network.layer(id).name().to_owned()).collect();
        Ok(Self { parts, lowest, together: false, at_random: false })
    }

    /// Creates a baseline for comparisons: the whole batch is backpropagated down to the layer with
    /// the given name, and the layers before it are not trained.
    ///
    /// # Errors
    /// [`Error::Setting`] if the network has no layer with this name.
    pub fn frozen_below(network: &LayerGraph, layer: &str) -> Result<Self, Error> {
        let frozen = Self { parts: 1, lowest: vec![layer.into()], together: false, at_random: false };
        frozen.check(network)?;
        Ok(frozen)
    }

    /// Returns the same roles, with one role for all parts in each iteration. This is a baseline
    /// for comparisons at equal cost.
    #[must_use]
    pub fn together(self) -> Self {
        Self { together: true, ..self }
    }

    /// Returns the same roles in random order: in each iteration of a run, one of the `K`
    /// iterations of the rotation is drawn, by the seed of the run. With all parts
    /// [together](Self::together) this is random skipping: the depth of the whole batch is drawn in
    /// each iteration. The expected gradient is that of the whole batch. Plans and simulations
    /// execute the iterations in order, which take equally long on average.
    #[must_use]
    pub fn at_random(self) -> Self {
        Self { at_random: true, ..self }
    }

    /// Returns the order in which a run with this seed executes the `K` iterations of the rotation.
    #[must_use]
    pub fn schedule(&self, seed: u64) -> IterationSchedule {
        if self.at_random {
            IterationSchedule::random(self.parts, seed)
        } else {
            IterationSchedule::round_robin(self.parts)
        }
    }

    /// Number of parts of the batch, which is also the number of iterations until the roles repeat.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// Name of the first layer, in the network's order, that each role reaches, from role 1 on. If
    /// there is one name fewer than parts, the last role reaches all layers.
    #[must_use]
    pub fn lowest(&self) -> &[String] {
        &self.lowest
    }

    /// Checks that the roles fit this network.
    ///
    /// # Errors
    /// As [`reach`](Self::reach).
    pub(crate) fn check(&self, network: &LayerGraph) -> Result<(), Error> {
        self.reach(network).map(|_| ())
    }

    /// Returns the number of parts that reach each layer in an iteration, by layer id.
    ///
    /// # Errors
    /// [`Error::Setting`] if a layer is unknown, a deeper role reaches less, or the number of roles
    /// does not fit the number of parts.
    pub(crate) fn reach(&self, network: &LayerGraph) -> Result<Vec<usize>, Error> {
        let wrong = |expected, got: String| {
            Err(Error::Setting { setting: "the roles of partial backpropagation", expected, got })
        };
        let lowest = self.lowest.len();
        if lowest == 0 || !(lowest..=lowest + 1).contains(&self.parts) {
            let got = format!("{lowest} layers for {} parts", self.parts);
            return wrong("the lowest layer of each role, but for one that reaches all", got);
        }
        let mut lowest = Vec::with_capacity(self.parts);
        for name in &self.lowest {
            match network.find(name) {
                Some(id) if lowest.last().is_none_or(|&before| id <= before) => lowest.push(id),
                Some(_) => return wrong("each role to reach as far as the one before", format!("`{name}`")),
                None => return wrong("layers of the network", format!("`{name}`")),
            }
        }
        // The roles that go down to the layer, and one that reaches all.
        let all = self.parts - lowest.len();
        let reaches = |id: LayerId| all + lowest.iter().filter(|&&lowest| lowest <= id).count();
        Ok(network.layers().map(|(id, _)| reaches(id)).collect())
    }
}

/// The samples of an iteration's batch whose gradients reach a layer, for each number of parts that
/// reach it.
#[derive(Debug, Clone)]
pub(super) struct Contributions {
    batch: usize,
    parts: usize,
    /// Whether all parts have the same role.
    together: bool,
    /// Index of the iteration in the rotation.
    iteration: usize,
}

impl Contributions {
    /// Creates the table for an iteration of the rotation, given by its index. `batch` is the
    /// number of samples of the global batch.
    pub(super) fn new(batch: usize, partial: &PartialBackpropagation, iteration: usize) -> Self {
        Self { batch, parts: partial.parts, together: partial.together, iteration }
    }

    /// Returns those of the given samples whose gradients reach a layer that `reached` parts reach:
    /// ascending ranges that are not adjacent. Samples are numbered within the global batch.
    pub(super) fn within(&self, samples: &Range<usize>, reached: usize) -> Vec<Range<usize>> {
        let border = |part: usize| part * self.batch / self.parts;
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for part in 0..self.parts {
            let role = role(if self.together { 0 } else { part }, self.iteration, self.parts);
            let start = border(part).max(samples.start);
            let end = border(part + 1).min(samples.end);
            if role + reached < self.parts || start >= end {
                continue;
            }
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        ranges
    }
}

/// Returns the role, from 0, of a part in an iteration. Parts and iterations are numbers in a mixed
/// radix, by the prime factors of their count, and are added digit by digit. So the parts with the
/// deepest roles are neighbours, on the smallest possible number of ranks: with twice as many parts
/// they are always among those with half as many.
fn role(part: usize, iteration: usize, parts: usize) -> usize {
    let (mut role, mut block) = (0, parts);
    while block > 1 {
        let base = (2..=block).find(|factor| block % factor == 0).unwrap_or(block);
        block /= base;
        role += (part / block + iteration / block) % base * block;
    }
    role
}

#[cfg(test)]
mod tests {
    use layer_graph::zoo;

    use super::*;

    #[test]
    fn roles_cover_their_number_of_layers() {
        let network = zoo::model("vgg16").unwrap();
        let layers = network.layers().filter(|(_, layer)| layer.parameter_count() > 0).count();
        for parts in 2..=8 {
            let partial = PartialBackpropagation::new(&network, parts, PartialDepth::Layers).unwrap();
            let reach = partial.reach(&network).unwrap();
            for role in 1..=parts {
                let with_parameters = network.layers().filter(|(_, layer)| layer.parameter_count() > 0);
                let reached = with_parameters.filter(|(id, _)| reach[id.index()] + role > parts).count();
                assert_eq!(reached, (role * layers).div_ceil(parts), "role {role} of {parts}");
            }
        }
    }

    #[test]
    fn roles_by_time_have_at_least_their_share() {
        let network = zoo::model("vgg16").unwrap();
        let times: Vec<u64> = (0..network.len() as u64).map(|index| 1 + 37 * index % 101).collect();
        let needs = network.needs_gradient();
        let partial = PartialBackpropagation::new(&network, 4, PartialDepth::Time(&times)).unwrap();
        let reach = partial.reach(&network).unwrap();
        let time = |is_in: &dyn Fn(usize) -> bool| -> u64 {
            (0..network.len()).filter(|&index| needs[index] && is_in(index)).map(|index| times[index]).sum()
        };
        for role in 1..4 {
            let of_role = time(&|index| reach[index] + role > 4);
            assert!(4 * of_role >= role as u64 * time(&|_| true));
        }
    }

    #[test]
    fn roles_cover_parts_and_layers_once() {
        for (batch, parts) in [(8, 2), (10, 3), (13, 4), (9, 9)] {
            for reached in 1..=parts {
                let mut times = vec![0; batch];
                for iteration in 0..parts {
                    let contributions = Contributions { batch, parts, together: false, iteration };
                    let all = contributions.within(&(0..batch), reached);
                    for sample in all.iter().cloned().flatten() {
                        times[sample] += 1;
                    }
                    // The result does not depend on how the range is split.
                    let cut = [0..batch / 3, batch / 3..batch];
                    let of_cut = cut.iter().flat_map(|range| contributions.within(range, reached)).flatten();
                    assert!(of_cut.eq(all.into_iter().flatten()));
                }
                assert_eq!(times, vec![reached; batch]);
            }
        }
    }

    #[test]
    fn roles_of_another_network_are_rejected() {
        let partial =
            PartialBackpropagation::new(&zoo::model("vgg16").unwrap(), 4, PartialDepth::Layers).unwrap();
        let error = partial.reach(&zoo::model("digits-cnn").unwrap()).unwrap_err();
        assert!(error.to_string().contains("layers of the network"), "{error}");
    }
}
