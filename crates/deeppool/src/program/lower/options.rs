//! Options of lowering.

use layer_engine::{Precision, Sgd};
use layer_graph::LayerGraph;

use super::super::PartialBackpropagation;
use crate::Error;
use crate::batch::check_batch;

/// Options with which a training iteration is lowered to programs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LowerOptions {
    /// The optimiser: stochastic gradient descent with its constants. The learning rate is set at
    /// run time.
    pub optimizer: Sgd,
    /// Whether gradients are all-reduced during the backward pass instead of after it.
    pub overlap_all_reduce: bool,
    /// Minimum size of a full bucket of gradients on each rank, bytes. Gradients of layers with the
    /// same ranks are added to a bucket until it has this size. Without overlap there is one bucket
    /// for each list of ranks.
    pub bucket_bytes: u64,
    /// Whether batch normalisation uses the statistics of the whole micro-batch instead of each
    /// rank's shard of it.
    pub sync_batch_norm: bool,
    /// Number of micro-batches, from 1 to the number of samples of the global batch. They run one
    /// after another, their gradients are summed, and the optimiser steps once: the result is the
    /// same up to rounding, and steps are shorter. Batch normalisation is the exception: it
    /// normalises over a micro-batch, and each one updates the running statistics.
    pub micro_batches: usize,
    /// Names of the activation checkpoints, in the network's order. See
    /// [`possible_checkpoints`](crate::program::possible_checkpoints).
    ///
    /// A segment is the layers after one checkpoint, up to and including the next one. An output is
    /// dropped after the forward pass, and recomputed in the backward pass, if all layers that read
    /// it are in the same segment, run on the same ranks and read it once each. All other outputs
    /// are kept. A rank needs less memory and computes more, with bit-identical results. Nothing is
    /// recomputed after the last checkpoint, or without checkpoints.
    ///
    /// "Training Deep Nets with Sublinear Memory Cost" (Chen et al., 2016). Copies from other ranks
    /// are kept, so that nothing is communicated twice.
    pub checkpoints: Vec<String>,
    /// Partial backpropagation; `None` if all samples are backpropagated through the whole network.
    pub partial: Option<PartialBackpropagation>,
    /// Precision of the layers. In `bf16`, outputs of layers and their gradients take half the
    /// memory and half the bytes of a redistribution, and each layer has master parameters. In
    /// `tf32`, programs are those of `f32`.
    pub precision: Precision,
}

impl Default for LowerOptions {
    /// Returns SGD with momentum 0.9, overlap, buckets of 25 MiB (as PyTorch's
    /// `DistributedDataParallel`), batch normalisation by shard, and single precision, without
    /// micro-batches, recomputation and partial backpropagation.
    fn default() -> Self {
        Self {
            optimizer: Sgd { momentum: 0.9, weight_decay: 0.0, clip_norm: None },
            overlap_all_reduce: true,
            bucket_bytes: 25 << 20,
            sync_batch_norm: false,
            micro_batches: 1,
            checkpoints: Vec::new(),
            partial: None,
            precision: Precision::F32,
        }
    }
}

impl LowerOptions {
    /// Sets the optimiser.
    #[must_use]
    pub fn with_optimizer(self, optimizer: Sgd) -> Self {
        Self { optimizer, ..self }
    }

    /// Sets whether gradients are all-reduced during the backward pass instead of after it.
    #[must_use]
    pub fn with_overlap_all_reduce(self, overlap_all_reduce: bool) -> Self {
        Self { overlap_all_reduce, ..self }
    }

    /// Sets the minimum size of a full bucket of gradients on each rank, in bytes.
    #[must_use]
    pub fn with_bucket_bytes(self, bucket_bytes: u64) -> Self {
        Self { bucket_bytes, ..self }
    }

    /// Sets whether batch normalisation uses the statistics of the whole micro-batch.
    #[must_use]
    pub fn with_sync_batch_norm(self, sync_batch_norm: bool) -> Self {
        Self { sync_batch_norm, ..self }
    }

    /// Sets the number of micro-batches of the global batch.
    #[must_use]
    pub fn with_micro_batches(self, micro_batches: usize) -> Self {
        Self { micro_batches, ..self }
    }

    /// Sets the names of the activation checkpoints; empty to keep all activations.
    #[must_use]
    pub fn with_checkpoints(self, checkpoints: Vec<String>) -> Self {
        Self { checkpoints, ..self }
    }

    /// Sets partial backpropagation; `None` to backpropagate all samples through the whole network.
    #[must_use]
    pub fn with_partial(self, partial: Option<PartialBackpropagation>) -> Self {
        Self { partial, ..self }
    }

    /// Sets the precision of the layers.
    #[must_use]
    pub fn with_precision(self, precision: Precision) -> Self {
        Self { precision, ..self }
    }
}

impl LowerOptions {
    /// Checks that the options fit together, and fit the network and a batch of `batch` samples.
    /// Names of checkpoints are not checked.
    ///
    /// # Errors
    /// [`Error::EmptyBatch`] for an empty batch. [`Error::Setting`] if it has fewer samples than
    /// micro-batches or parts, or the roles of partial backpropagation do not fit the network.
    pub(super) fn check(&self, network: &LayerGraph, batch: usize) -> Result<(), Error> {
        let count = self.micro_batches;
        check_batch(batch)?;
        if count == 0 || count > batch {
            let (setting, expected) = ("the number of micro-batches", "from 1 to the samples of the batch");
            return Err(Error::Setting { setting, expected, got: format!("{count} for {batch}") });
        }
        let Some(partial) = &self.partial else { return Ok(()) };
        if partial.parts() > batch {
            let (setting, expected) =
                ("the number of parts of partial backpropagation", "at most the samples of the batch");
            return Err(Error::Setting {
                setting,
                expected,
                got: format!("{} for {batch}", partial.parts()),
            });
        }
        partial.check(network)
    }
}
