//! Batches cut into micro-batches.

use layer_engine::Role;

use super::Job;
use crate::Error;
use crate::program::LowerOptions;

impl Job<'_> {
    /// The same job with its batch cut into 2, 4, 8 or more micro-batches, as far as they are all of the same size. None where that
    /// would change what is learned, as it does with batch normalisation, or the batch is cut already.
    pub(super) fn cuts(&self) -> impl Iterator<Item = Self> + '_ {
        let most = if self.can_be_cut() { self.batch } else { 1 };
        let counts = std::iter::successors(Some(2), |&count: &usize| count.checked_mul(2));
        let counts = counts.take_while(move |&count| count <= most && self.batch % count == 0);
        counts.map(|micro_batches| self.lowered(LowerOptions { micro_batches, ..self.lowering.clone() }))
    }

    /// The same job with iterations lowered in another way.
    pub(super) fn lowered(&self, lowering: LowerOptions) -> Self {
        Self { lowering, ..self.clone() }
    }

    fn can_be_cut(&self) -> bool {
        let mut layers = self.costs.network().layers();
        self.lowering.micro_batches == 1 && layers.all(|(_, layer)| Role::Statistics.elements(layer, 0) == 0)
    }

    /// Samples of a micro-batch.
    ///
    /// # Errors
    /// When micro-batches would differ in size: a plan's costs are those of one for all.
    pub(super) fn micro_batch(&self) -> Result<usize, Error> {
        let count = self.lowering.micro_batches;
        if count > 0 && self.batch % count == 0 {
            return Ok(self.batch / count);
        }
        Err(Error::Setting {
            setting: "the number of micro-batches of a job that is planned",
            expected: "a divisor of its batch",
            got: format!("{count} for {}", self.batch),
        })
    }

    /// The same job with its batch as a whole, all its activations kept, and nothing partial.
    pub(super) fn uncut(&self) -> Self {
        let (checkpoints, partial) = (Vec::new(), None);
        self.lowered(LowerOptions { micro_batches: 1, checkpoints, partial, ..self.lowering.clone() })
    }
}
