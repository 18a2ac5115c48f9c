//! How iterations are lowered.

use layer_engine::Sgd;
use layer_graph::LayerGraph;

use super::super::PartialBackpropagation;
use crate::Error;

/// How a training iteration is lowered.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LowerOptions {
    /// The optimiser.
    pub optimizer: Sgd,
    /// Whether gradients are all-reduced while the backward pass goes on, or after it.
    pub overlap_all_reduce: bool,
    /// Gradients of layers with the same ranks travel together until they are this many bytes.
    pub bucket_bytes: u64,
    /// Whether batch normalisation normalises over the global batch instead of each rank's shard.
    pub sync_batch_norm: bool,
    /// Into how many micro-batches the batch is cut, from 1 to its samples. They run one after another, their gradients
    /// are added up, and the optimiser steps once, so that what is learned is the same to rounding, in steps that are
    /// that much shorter. Batch normalisation is the exception: it normalises over a micro-batch, and its running
    /// statistics move with each.
    pub micro_batches: usize,
    /// Activation checkpoints, by the names of their layers, in the network's order. Outputs between two of them that are read only
    /// between them, on the ranks that computed them, and once by each layer that reads them, are dropped after the forward pass and
    /// computed again in the backward pass; all others are kept. Dropped outputs and their gradients share memory, so that a rank
    /// holds less and computes more; what is learned is the same to the last bit. After the last checkpoint nothing is
    /// computed again; without checkpoints nothing is. Which layers can be one:
    /// [`possible_checkpoints`](crate::program::possible_checkpoints).
    ///
    /// "Training Deep Nets with Sublinear Memory Cost" (Chen et al., 2016). Copies that came from other ranks are kept, so that
    /// nothing is communicated again.
    pub checkpoints: Vec<String>,
    /// Whether parts of the batch backpropagate through a part of the network only, in turn.
    pub partial: Option<PartialBackpropagation>,
}

impl Default for LowerOptions {
    /// SGD with momentum 0.9, overlap, buckets of 25 MiB (as PyTorch's `DistributedDataParallel`), and batch
    /// normalisation by shard; the batch is not cut, and all activations are kept.
    fn default() -> Self {
        Self {
            optimizer: Sgd { momentum: 0.9, weight_decay: 0.0, clip_norm: None },
            overlap_all_reduce: true,
            bucket_bytes: 25 << 20,
            sync_batch_norm: false,
            micro_batches: 1,
            checkpoints: Vec::new(),
            partial: None,
        }
    }
}

impl LowerOptions {
    /// This with another optimiser.
    #[must_use]
    pub fn with_optimizer(self, optimizer: Sgd) -> Self {
        Self { optimizer, ..self }
    }

    /// This with gradients all-reduced while the backward pass goes on, or after it.
    #[must_use]
    pub fn with_overlap_all_reduce(self, overlap_all_reduce: bool) -> Self {
        Self { overlap_all_reduce, ..self }
    }

    /// This with buckets of this size.
    #[must_use]
    pub fn with_bucket_bytes(self, bucket_bytes: u64) -> Self {
        Self { bucket_bytes, ..self }
    }

    /// This with batch normalisation over the global batch, or by shard.
    #[must_use]
    pub fn with_sync_batch_norm(self, sync_batch_norm: bool) -> Self {
        Self { sync_batch_norm, ..self }
    }

    /// This with the batch cut into so many micro-batches.
    #[must_use]
    pub fn with_micro_batches(self, micro_batches: usize) -> Self {
        Self { micro_batches, ..self }
    }

    /// This with these activation checkpoints.
    #[must_use]
    pub fn with_checkpoints(self, checkpoints: Vec<String>) -> Self {
        Self { checkpoints, ..self }
    }

    /// This with partial backpropagation, or without.
    #[must_use]
    pub fn with_partial(self, partial: Option<PartialBackpropagation>) -> Self {
        Self { partial, ..self }
    }
}

impl LowerOptions {
    /// Whether they go together, and with a batch of a network.
    pub(super) fn check(&self, network: &LayerGraph, batch: usize) -> Result<(), Error> {
        let count = self.micro_batches;
        if batch == 0 {
            return Err(Error::EmptyBatch);
        }
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
