//! Published networks, with the parameter counts of their published implementations (torchvision's, and `OpenAI`'s of
//! GPT-2), each ending in a softmax cross entropy so that it can be trained as it is; and two recurrent ones, `gnmt` and `big-lstm`, whose
//! LSTM layers are opaque, so that they can be planned and simulated only. Layers are named as torchvision's modules
//! where it has the network, so that [`Layer::tensor_name`](crate::Layer::tensor_name) is a key of its `state_dict`.

mod big_lstm;
mod digits;
mod gnmt;
mod gpt2;
mod inception;
mod lstm;
mod resnet;
mod transformer;
mod vgg;
mod vit;

use crate::{GraphError, LayerGraph};

/// How a model of the zoo is built.
type Build = fn(&str) -> Result<LayerGraph, GraphError>;

/// The models by name. The order is the order of [`names`].
const MODELS: &[(&str, Build)] = &[
    ("vgg11", |name| vgg::vgg(name, &vgg::VGG11)),
    ("vgg13", |name| vgg::vgg(name, &vgg::VGG13)),
    ("vgg16", |name| vgg::vgg(name, &vgg::VGG16)),
    ("vgg19", |name| vgg::vgg(name, &vgg::VGG19)),
    ("resnet-18", |name| resnet::resnet(name, &resnet::RESNET18)),
    ("resnet-34", |name| resnet::resnet(name, &resnet::RESNET34)),
    ("resnet-50", |name| resnet::resnet(name, &resnet::RESNET50)),
    ("wrn-101-2", |name| resnet::resnet(name, &resnet::WRN101_2)),
    ("inception-v3", inception::inception_v3),
    ("vit-b-16", vit::vit_b_16),
    ("gpt2", gpt2::gpt2),
    ("gnmt", gnmt::gnmt),
    ("big-lstm", big_lstm::big_lstm),
    ("digits-cnn", digits::digits_cnn),
];

/// The names of all models.
#[must_use]
pub fn names() -> Vec<&'static str> {
    MODELS.iter().map(|(name, _)| *name).collect()
}

/// Builds the model of this name; case and hyphens do not matter.
///
/// # Errors
/// [`GraphError::UnknownModel`], which lists the names that exist.
pub fn model(name: &str) -> Result<LayerGraph, GraphError> {
    let found = known_names::find(name, names());
    match MODELS.iter().find(|(known, _)| Some(*known) == found) {
        Some((known, build)) => build(known),
        None => Err(GraphError::UnknownModel { name: name.into(), known: names() }),
    }
}

/// GNMT v2 as [`model`] builds it, but with its sentences of 50 tokens cut into chunks of so many steps instead of 10. Shorter chunks keep
/// more GPUs busy at once, and each has its own launches and reads all parameters again.
///
/// ```
/// use layer_graph::zoo;
///
/// assert_eq!(zoo::gnmt_in_chunks(10)?, zoo::model("gnmt")?);
/// assert_eq!(zoo::gnmt_in_chunks(5)?.parameter_count(), zoo::model("gnmt")?.parameter_count());
/// assert!(zoo::gnmt_in_chunks(7).is_err());
/// # Ok::<(), layer_graph::GraphError>(())
/// ```
///
/// # Errors
/// [`GraphError::Shape`] when the steps do not divide the tokens.
pub fn gnmt_in_chunks(steps: usize) -> Result<LayerGraph, GraphError> {
    gnmt::gnmt_in_chunks("gnmt", steps)
}

/// LSTM-8192-1024 as [`model`] builds `big-lstm`, but with its 20 steps cut into chunks of so many instead of 4.
///
/// # Errors
/// [`GraphError::Shape`] when they do not divide the 20.
pub fn big_lstm_in_chunks(steps: usize) -> Result<LayerGraph, GraphError> {
    big_lstm::big_lstm_in_chunks("big-lstm", steps)
}
