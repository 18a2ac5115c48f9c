//! Dropout. The function returns the computation of a pass.

use std::ops::Range;

use layer_graph::Dropout;
use tch::{Kind, Tensor};

use super::Failure;
use super::dtypes::DTypes;
use super::ffi::copy_from_host;
use super::launch::{LaunchFunction, LayerOperands};
use super::library_error;
use crate::random::{Purpose, RandomStream};
use crate::{Role, Shard};

/// Generator of a layer's dropout factors: 0 or `1 / (1 - probability)` for each element.
pub(super) struct Mask {
    /// Name of the layer, part of the key of its random stream.
    pub(super) layer: String,
    /// Probability that an element becomes zero, and whether all of a sample do.
    pub(super) rule: Dropout,
    /// Samples of the batch, whose indices key the random numbers.
    pub(super) shard: Shard,
    /// Indices, in a sample of the whole layer, of the elements of a sample: consecutive ranges.
    /// The indices are those of the random numbers.
    pub(super) runs: Vec<Range<usize>>,
}

impl Mask {
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

/// Returns the pass that multiplies each element of `source` by its factor and puts the results
/// into `target`: the forward pass, and the backward pass with the gradients. The factors of an
/// iteration are drawn at its first launch, so that they exist when a graph captures a later
/// launch.
pub(super) fn multiply(
    operands: LayerOperands,
    [source, target]: [Role; 2],
    mask: Mask,
    dtypes: DTypes,
) -> LaunchFunction {
    let mut drawn: Option<((u64, u64), Tensor)> = None;
    Box::new(move |launch| {
        let key = (launch.context.seed, launch.context.iteration);
        if drawn.as_ref().is_none_or(|(known, _)| *known != key) {
            drawn = Some((key, mask.draw(key.0, key.1, dtypes)?));
        }
        let (_, factors) =
            drawn.as_ref().ok_or_else(|| library_error("the mask of a dropout was not drawn"))?;
        let product = operands.source(launch, source)?.flat()?.f_mul(factors)?;
        operands.put(launch, target, &product)
    })
}
