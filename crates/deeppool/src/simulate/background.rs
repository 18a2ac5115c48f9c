//! The background job of a simulation, by the times of its kernels.

use std::time::Duration;

use gpu_mux::{Iteration, StepWork, WorkloadStep};
use layer_graph::LayerId;

use super::steps::kernels;
use crate::Error;
use crate::batch::check_batch;
use crate::costs::{Costs, LayerKernels};
use crate::job::{Job, single_gpu_memory_bytes};
use crate::program::LowerOptions;

/// The kernels of one training iteration of a background job on one device, with their times.
#[derive(Debug, Clone, PartialEq)]
pub struct BackgroundCosts {
    name: String,
    iteration: Iteration,
    /// Name of the layer of each step of the iteration.
    layers: Vec<String>,
    memory_bytes: u64,
}

impl BackgroundCosts {
    /// Computes the kernels of an iteration of the costs' network with `batch` samples on one
    /// device: the forward steps of its layers, their backward steps, and their optimiser steps.
    ///
    /// # Errors
    /// [`Error::EmptyBatch`] for an empty batch, and [`Error::Setting`] for more than 2^20 samples.
    /// [`Error::Profile`] if the profile lacks a time.
    pub fn new(costs: &Costs<'_>, batch: usize) -> Result<Self, Error> {
        check_batch(batch)?;
        let layers: Vec<LayerId> = costs.network().computing_layers().map(|(id, _)| id).collect();
        let of_layers: Result<Vec<LayerKernels>, Error> =
            layers.iter().map(|&layer| costs.layer_kernels(layer, batch)).collect();
        let of_layers = of_layers?;
        let forward = layers.iter().zip(&of_layers).map(|(layer, of)| ("forward", layer, &of.forward));
        let backward =
            layers.iter().zip(&of_layers).rev().map(|(layer, of)| ("backward", layer, &of.backward));
        let update = layers.iter().zip(&of_layers).map(|(layer, of)| ("update", layer, &of.update));
        let (mut steps, mut layers_of_steps) = (Vec::new(), Vec::new());
        for (what, &layer, costs_of_kernels) in forward.chain(backward).chain(update) {
            if !costs_of_kernels.is_empty() {
                let layer = costs.network().layer(layer).name();
                layers_of_steps.push(layer.to_owned());
                steps.push(WorkloadStep {
                    name: format!("{what} {layer}"),
                    work: StepWork::Compute(kernels(costs_of_kernels)?),
                    after: None,
                });
            }
        }
        let job = Job::new(costs.clone(), batch, LowerOptions::default());
        let memory_bytes = single_gpu_memory_bytes(&job)?;
        Ok(Self {
            name: costs.network().name().into(),
            iteration: Iteration { samples: batch, steps },
            layers: layers_of_steps,
            memory_bytes,
        })
    }

    /// Returns the name of the network.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the memory that the job needs on its device, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Returns the memory that remains for a foreground job on the same device, in bytes, if the
    /// device has `limit_bytes`. Returns `None` if `limit_bytes` is `None`: there is no limit.
    ///
    /// # Errors
    /// [`Error::Setting`] if the background job alone does not fit.
    pub fn memory_beside(&self, limit_bytes: Option<u64>) -> Result<Option<u64>, Error> {
        let Some(limit) = limit_bytes else { return Ok(None) };
        let room = limit.checked_sub(self.memory_bytes).ok_or_else(|| Error::Setting {
            setting: "the memory of a background job",
            expected: "at most the memory of a GPU: give the job a smaller batch",
            got: format!("{} of {limit} bytes", self.memory_bytes),
        })?;
        Ok(Some(room))
    }

    /// Returns the number of samples of an iteration.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.iteration.samples
    }

    /// Returns the duration of an iteration on a device without a foreground: the sum of its kernel
    /// times.
    #[must_use]
    pub fn iteration_time(&self) -> Duration {
        self.iteration.compute_time()
    }

    /// Returns the samples per second on a device without a foreground.
    #[must_use]
    pub fn samples_per_s(&self) -> f64 {
        self.batch() as f64 / self.iteration_time().as_secs_f64()
    }

    /// Returns the layer name of each step of the [iteration](Self::iteration), by index of the
    /// step.
    #[must_use]
    pub fn step_layers(&self) -> &[String] {
        &self.layers
    }

    /// Returns the steps of an iteration, in the order in which they run.
    #[must_use]
    pub fn iteration(&self) -> &Iteration {
        &self.iteration
    }
}
