//! Dropout. The function returns the computation of a pass.

use std::ops::Range;

use layer_graph::{Dropout, Layer};
use tch::{Kind, Tensor};

use super::Failure;
use super::dtypes::DTypes;
use super::ffi::copy_from_host;
use super::launch::{Launch, LaunchFunction, LayerOperands};
use super::library_error;
use crate::random::{Purpose, RandomStream};
use crate::{Role, Shard};

/// Generator of a layer's dropout factors: 0 or `1 / (1 - probability)` for each of its random
/// numbers.
pub(super) struct Mask {
    /// Name of the layer, part of the key of its random stream.
    layer: String,
    /// Probability that a factor is zero, and whether a sample has one number.
    rule: Dropout,
    /// Samples of the batch, whose indices key the random numbers.
    shard: Shard,
    /// Indices of the numbers of a sample in the whole layer: consecutive ranges.
    runs: Vec<Range<usize>>,
    /// Factors, and the seed and iteration that they were drawn for.
    drawn: Option<((u64, u64), Tensor)>,
}

impl Mask {
    /// Creates the mask of a layer.
    pub(super) fn new(layer: &Layer, rule: Dropout, shard: Shard) -> Self {
        let runs = layer.random_box().runs();
        Self { layer: layer.name().into(), rule, shard, runs, drawn: None }
    }

    /// Returns the factors for a launch. Those of an iteration are drawn at its first launch, so
    /// that they exist when a graph captures a later launch.
    pub(super) fn factors(&mut self, launch: &Launch<'_, '_>, dtypes: DTypes) -> Result<&Tensor, Failure> {
        let key = (launch.context.seed, launch.context.iteration);
        if self.drawn.as_ref().is_none_or(|(known, _)| *known != key) {
            self.drawn = Some((key, self.draw(key.0, key.1, dtypes)?));
        }
        let drawn = self.drawn.as_ref().map(|(_, factors)| factors);
        drawn.ok_or_else(|| library_error("the mask of a dropout was not drawn"))
    }

    fn draw(&self, seed: u64, iteration: u64, dtypes: DTypes) -> Result<Tensor, Failure> {
        let Dropout { probability, of_samples } = self.rule;
        let elements = self.runs.iter().map(Range::len).sum::<usize>();
        let mut factors = Vec::with_capacity(self.shard.samples * elements);
        let scale = 1.0 / (1.0 - probability);
        for sample in 0..self.shard.samples {
            let global = (self.shard.first + sample) as u64;
            let mut stream = RandomStream::new(seed, Purpose::Dropout, iteration, &self.layer, global);
            if of_samples {
                let factor = if stream.uniform() < probability { 0.0 } else { scale };
                factors.extend(std::iter::repeat_n(factor, elements));
                continue;
            }
            for run in &self.runs {
                stream.seek(run.start as u64);
                let factor = |_| if stream.uniform() < probability { 0.0 } else { scale };
                factors.extend(run.clone().map(factor));
            }
        }
        let mask = Tensor::f_zeros([factors.len() as i64], (dtypes.kind, dtypes.device))?;
        copy_from_host(&factors, Kind::Double, &mask)?;
        Ok(mask)
    }
}

/// Returns the pass that multiplies each element by its factor: the forward pass, or the backward
/// pass with the gradients.
pub(super) fn multiply(
    operands: LayerOperands,
    backward: bool,
    mut mask: Mask,
    dtypes: DTypes,
) -> LaunchFunction {
    let forward = [Role::Input(0), Role::Output];
    let [source, target] = if backward { [Role::OutputGradient, Role::InputGradient(0)] } else { forward };
    Box::new(move |launch| {
        let product = operands.source(launch, source)?.flat()?.f_mul(mask.factors(launch, dtypes)?)?;
        operands.put(launch, target, &product)
    })
}
