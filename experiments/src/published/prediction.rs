//! Predictions: data-parallel training steps, simulated with layer times of a device model.
//!
//! With gradient accumulation, an optimizer step is the simulated step of one micro-batch and the
//! forward and backward passes of the others before it: gradients are reduced in the last
//! micro-batch.

use std::time::Duration;

use collectives::LinkModel;
use deeppool::costs::Costs;
use deeppool::program::{LowerOptions, Placement, lower_for_simulation};
use deeppool::simulate::{SimulateOptions, simulate, undisturbed};
use layer_graph::LayerGraph;
use layer_profile::{DeviceModel, LayerProfile, NetworkFamily, Optimizer, ProfileTable};

use super::question::{Question, QuestionSet};

/// Number of simulated steps. The first one is warm-up, and the others are equal.
const STEPS: usize = 3;

/// Time in seconds that a framework adds to the passes of a layer, forward and backward together,
/// where it launches their kernels one by one and waits for the last one. Fitted to ResNet-50 with
/// 12 samples on an A100: 93 us in TF32 and 126 us in FP16.
const DISPATCH_S_PER_LAYER: f64 = 110e-6;

/// Returns the time in seconds in which the host of a question launches kernels and the GPU waits:
/// in iterations that are passes only, which have few samples. It is hidden behind the kernels of
/// larger batches, and behind other work of the host in whole steps.
pub(super) fn dispatch_s(question: &Question, network: &LayerGraph) -> f64 {
    match question.set {
        QuestionSet::Passes => (network.computing_layers().len()) as f64 * DISPATCH_S_PER_LAYER,
        _ => 0.0,
    }
}

/// Returns the optimizer of a question: Adam for transformers, and momentum for other networks.
pub(super) fn optimizer_of(question: &Question) -> Optimizer {
    match (question.set, question.network.family()) {
        (QuestionSet::Passes, _) => Optimizer::Omitted,
        (_, NetworkFamily::Transformer) => Optimizer::Adam,
        _ => Optimizer::Momentum,
    }
}

/// Predicted times of a micro-batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StepTime {
    /// Time in seconds of a step with one micro-batch: passes, all-reduces and optimizer.
    step_s: f64,
    /// Time in seconds of the forward and backward passes alone, without all-reduces.
    passes_s: f64,
}

impl StepTime {
    /// Adds time in which the GPU waits for its host.
    pub(super) fn with_dispatch(self, seconds: f64) -> Self {
        Self { step_s: self.step_s + seconds, ..self }
    }

    /// Returns the time in seconds of a step of `accumulation` micro-batches.
    pub(super) fn of(self, accumulation: usize) -> f64 {
        self.step_s + accumulation.saturating_sub(1) as f64 * self.passes_s
    }
}

/// Simulates data-parallel training with `batch` samples on each of `gpus` GPUs. All-reduces
/// overlap the backward pass. There is no memory limit.
///
/// # Errors
/// If the links connect fewer GPUs, or if the simulation fails.
pub(super) fn step_time(
    network: &LayerGraph,
    device: &DeviceModel,
    optimizer: Optimizer,
    link: &LinkModel,
    (batch, gpus): (usize, usize),
) -> anyhow::Result<StepTime> {
    let profile = with_update(&device.profile(network, &[batch])?, optimizer.traffic())?;
    let costs = Costs::new(network, &profile, link);
    let placement = Placement::first_ranks(network, gpus, &vec![gpus; network.computing_layers().len()])?;
    let program = lower_for_simulation(network, &placement, batch * gpus, &LowerOptions::default())?;
    let options = SimulateOptions::default().with_device(undisturbed()).with_iterations(STEPS);
    let simulation = simulate(&program, &costs, &options)?;
    let layers = profile.sum_of_layers(batch)?;
    Ok(StepTime {
        step_s: simulation.iteration.as_secs_f64(),
        passes_s: (layers.forward + layers.backward).as_secs_f64(),
    })
}

/// Returns the table with the times of all updates multiplied by `factor`.
fn with_update(table: &ProfileTable, factor: f64) -> anyhow::Result<ProfileTable> {
    let scaled = |time: Duration| time.mul_f64(factor);
    let layer = |layer: &LayerProfile| LayerProfile { update: layer.update.map(scaled), ..layer.clone() };
    let layers = table.layers().iter().map(layer).collect();
    Ok(ProfileTable::new(table.model(), table.device(), table.origin(), layers, Vec::new())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    use layer_graph::zoo;

    /// A step of three micro-batches has the time of the lowered program with micro-batches, whose
    /// gradients are reduced once.
    #[test]
    fn accumulation_adds_passes() -> anyhow::Result<()> {
        let (network, device, link) =
            (zoo::model("resnet-18")?, DeviceModel::named("a100")?, LinkModel::dgx_a100());
        let (batch, gpus, accumulation) = (8, 4, 3);
        let time = step_time(&network, &device, Optimizer::Momentum, &link, (batch, gpus))?;
        let profile = device.profile(&network, &[batch])?;
        let placement =
            Placement::first_ranks(&network, gpus, &vec![gpus; network.computing_layers().len()])?;
        let lowering = LowerOptions::default().with_micro_batches(accumulation);
        let program = lower_for_simulation(&network, &placement, batch * gpus * accumulation, &lowering)?;
        let options = SimulateOptions::default().with_device(undisturbed()).with_iterations(STEPS);
        let simulation = simulate(&program, &Costs::new(&network, &profile, &link), &options)?;
        let (simulated, added) = (simulation.iteration.as_secs_f64(), time.of(accumulation));
        assert!((simulated / added - 1.0).abs() < 1e-6, "simulated {simulated} s, added {added} s");
        assert!(added > 2.0 * time.of(1), "{time:?}");
        Ok(())
    }

    #[test]
    fn optimizers_scale_the_update_only() -> anyhow::Result<()> {
        let (network, device, link) =
            (zoo::model("vgg16")?, DeviceModel::named("a100")?, LinkModel::dgx_a100());
        let time = |optimizer| step_time(&network, &device, optimizer, &link, (1, 1)).map(|time| time.of(1));
        let [none, momentum, adam] =
            [time(Optimizer::Omitted)?, time(Optimizer::Momentum)?, time(Optimizer::Adam)?];
        let update = device.profile(&network, &[1])?.sum_of_layers(1)?.update.as_secs_f64();
        assert!((momentum - none - update).abs() < 1e-6, "{none} s, {momentum} s, {update} s");
        assert!((adam - none - 1.8 * update).abs() < 1e-6, "{none} s, {adam} s, {update} s");
        Ok(())
    }
}
