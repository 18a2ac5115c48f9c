//! Published networks, with the parameter counts of their published implementations (torchvision's, and `OpenAI`'s of
//! GPT-2), each ending in a softmax cross entropy so that it can be trained as it is. Layers are named as torchvision's modules
//! where it has the network, so that [`Layer::tensor_name`](crate::Layer::tensor_name) is a key of its `state_dict`.

mod digits;
mod gpt2;
mod inception;
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
