//! Zoo of published networks.
//!
//! Each network ends in a softmax cross entropy, so that it can be trained. Parameter counts are
//! those of the published implementations (torchvision's, `OpenAI`'s of GPT-2 and Meta's of Llama;
//! of `lstm`, with PyTorch's two biases).
//! Layers are named as torchvision's modules if it has the network, so that
//! [`Layer::tensor_name`](crate::Layer::tensor_name) is a key of its `state_dict`.
//!
//! The LSTM layers of the recurrent networks `gnmt-in-chunks` and `big-lstm`, which are cut into
//! chunks, and the attention of `swin-t` within windows, are opaque: these networks can be planned
//! and simulated only. `gnmt` has the same layers as `gnmt-in-chunks`, not cut, and can be trained.

mod alexnet;
mod bert;
mod big_lstm;
mod convnext;
mod digits;
mod efficientnet;
mod gnmt;
mod gnmt_in_chunks;
mod gpt2;
mod inception;
mod language_model;
mod llama;
mod lstm;
mod resnet;
mod swin;
mod transformer;
mod vgg;
mod vit;

pub use bert::{BertSize, BertTask};
pub use gnmt::GnmtSize;

use crate::{GraphError, LayerGraph};

/// Constructor of a model, which takes the model's name.
type Build = fn(&str) -> Result<LayerGraph, GraphError>;

/// Models by name, in the order of [`names`].
const MODELS: &[(&str, Build)] = &[
    ("alexnet", alexnet::alexnet),
    ("vgg11", |name| vgg::vgg(name, &vgg::VGG11)),
    ("vgg13", |name| vgg::vgg(name, &vgg::VGG13)),
    ("vgg16", |name| vgg::vgg(name, &vgg::VGG16)),
    ("vgg19", |name| vgg::vgg(name, &vgg::VGG19)),
    ("resnet-18", |name| resnet::resnet(name, &resnet::RESNET18)),
    ("resnet-34", |name| resnet::resnet(name, &resnet::RESNET34)),
    ("resnet-50", |name| resnet::resnet(name, &resnet::RESNET50)),
    ("resnet-101", |name| resnet::resnet(name, &resnet::RESNET101)),
    ("resnet-152", |name| resnet::resnet(name, &resnet::RESNET152)),
    ("resnext-101-32x4d", |name| resnet::resnet(name, &resnet::RESNEXT101_32X4D)),
    ("wrn-101-2", |name| resnet::resnet(name, &resnet::WRN101_2)),
    ("inception-v3", inception::inception_v3),
    ("efficientnet-b0", efficientnet::efficientnet_b0),
    ("convnext-t", convnext::convnext_t),
    ("vit-b-16", vit::vit_b_16),
    ("swin-t", swin::swin_t),
    ("gpt2", |name| gpt2::gpt2(name, gpt2::SMALL)),
    ("gpt2-xl", |name| gpt2::gpt2(name, gpt2::XL)),
    ("llama-3-8b", llama::llama_3_8b),
    ("bert-base", |name| bert::bert(name, BertSize::Base, bert::POSITIONS, BertTask::QuestionAnswering)),
    ("bert-large", |name| bert::bert(name, BertSize::Large, bert::POSITIONS, BertTask::QuestionAnswering)),
    ("lstm", language_model::lstm),
    ("gnmt", |name| gnmt::gnmt(name, gnmt::SIZE)),
    ("gnmt-in-chunks", gnmt_in_chunks::gnmt),
    ("big-lstm", big_lstm::big_lstm),
    ("digits-cnn", digits::digits_cnn),
];

/// Returns the names of all models of the zoo, the names that [`model`] accepts.
#[must_use]
pub fn names() -> Vec<&'static str> {
    MODELS.iter().map(|(name, _)| *name).collect()
}

/// Builds the model of this name.
///
/// # Errors
/// [`GraphError::UnknownModel`], which lists the existing names, if there is no model of this name.
pub fn model(name: &str) -> Result<LayerGraph, GraphError> {
    match MODELS.iter().find(|(known, _)| *known == name) {
        Some((known, build)) => build(known),
        None => Err(GraphError::UnknownModel { name: name.into(), known: names() }),
    }
}

/// Builds `gpt2` as [`model`] does, but with `blocks` blocks instead of 12, and with a name such as
/// `gpt2-96-blocks`.
///
/// ```
/// use layer_graph::zoo;
///
/// assert_eq!(zoo::gpt2_of_blocks(12)?.parameter_count(), zoo::model("gpt2")?.parameter_count());
/// # Ok::<(), layer_graph::GraphError>(())
/// ```
///
/// # Errors
/// None: the layers of any number of blocks fit their inputs.
pub fn gpt2_of_blocks(blocks: usize) -> Result<LayerGraph, GraphError> {
    gpt2::gpt2(&format!("gpt2-{blocks}-blocks"), gpt2::Size { blocks, ..gpt2::SMALL })
}

/// Builds BERT over sequences of `positions` word pieces, for a task, with a name such as
/// `bert-large-128-mlm20`. The models `bert-base` and `bert-large` answer questions on 512
/// positions.
///
/// The masked positions of a pretraining are gathered by an opaque layer, so that a network with
/// [`BertTask::MaskedTokens`] can be planned and simulated only.
///
/// ```
/// use layer_graph::zoo::{self, BertSize, BertTask};
///
/// let pretraining = BertTask::MaskedTokens { predictions: 20 };
/// let bert = zoo::bert(BertSize::Base, 128, pretraining)?;
/// assert_eq!(bert.name(), "bert-base-128-mlm20");
/// # Ok::<(), layer_graph::GraphError>(())
/// ```
///
/// # Errors
/// [`GraphError::Shape`] if `positions` or the number of predictions is 0, or if there are more
/// predictions than positions.
pub fn bert(size: BertSize, positions: usize, task: BertTask) -> Result<LayerGraph, GraphError> {
    let size_name = match size {
        BertSize::Base => "base",
        BertSize::Large => "large",
    };
    let task_name = match task {
        BertTask::QuestionAnswering => "qa".into(),
        BertTask::MaskedTokens { predictions } => format!("mlm{predictions}"),
    };
    bert::bert(&format!("bert-{size_name}-{positions}-{task_name}"), size, positions, task)
}

/// Builds `gnmt` as [`model`] does, but of another size, with a name such as `gnmt-64x10` for 64
/// features and sentences of 10 tokens.
///
/// ```
/// use layer_graph::zoo::{self, GnmtSize};
///
/// let size = GnmtSize { vocabulary: 32_320, features: 1024, positions: 50 };
/// let network = zoo::gnmt_of_size(size)?;
/// assert_eq!(network.parameter_count(), zoo::model("gnmt")?.parameter_count());
/// assert_eq!(network.name(), "gnmt-1024x50");
/// # Ok::<(), layer_graph::GraphError>(())
/// ```
///
/// # Errors
/// [`GraphError::Shape`] if a size is 0 or too large.
pub fn gnmt_of_size(size: GnmtSize) -> Result<LayerGraph, GraphError> {
    gnmt::gnmt(&format!("gnmt-{}x{}", size.features, size.positions), size)
}

/// Builds `gnmt-in-chunks` as [`model`] does, but with its sentences of 50 tokens split into chunks
/// of `steps` tokens instead of 10. Each LSTM layer becomes one opaque layer for each chunk.
///
/// Shorter chunks keep more GPUs busy at the same time, but each chunk has its own kernel launches
/// and reads all parameters again.
///
/// ```
/// use layer_graph::zoo;
///
/// assert_eq!(zoo::gnmt_in_chunks(10)?, zoo::model("gnmt-in-chunks")?);
/// assert_eq!(zoo::gnmt_in_chunks(5)?.parameter_count(), zoo::model("gnmt")?.parameter_count());
/// assert!(zoo::gnmt_in_chunks(7).is_err());
/// # Ok::<(), layer_graph::GraphError>(())
/// ```
///
/// # Errors
/// [`GraphError::Shape`] if `steps` does not divide 50.
pub fn gnmt_in_chunks(steps: usize) -> Result<LayerGraph, GraphError> {
    gnmt_in_chunks::gnmt_in_chunks("gnmt-in-chunks", steps)
}

/// Builds `big-lstm` as [`model`] does, but with its sequences of 20 words split into chunks of
/// `steps` words instead of 4. Each LSTM layer becomes one opaque layer for each chunk.
///
/// # Errors
/// [`GraphError::Shape`] if `steps` does not divide 20.
pub fn big_lstm_in_chunks(steps: usize) -> Result<LayerGraph, GraphError> {
    big_lstm::big_lstm_in_chunks("big-lstm", steps)
}
