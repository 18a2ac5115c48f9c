//! Networks of published measurements.

use std::fmt;

use layer_graph::zoo::{self, BertSize, BertTask};
use layer_graph::{GraphError, LayerGraph};
use layer_profile::NetworkFamily;

/// Number of masked positions of a sequence of 128 word pieces in BERT's pretraining.
const PREDICTIONS_OF_128: usize = 20;
/// Number of masked positions of a longer sequence.
const PREDICTIONS_OF_512: usize = 80;

/// A network whose training has been measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Network {
    /// A convolutional network of the zoo, by its name.
    Convolutional(&'static str),
    /// BERT over sequences of `positions` word pieces. `is_large` tells BERT-large from BERT-base,
    /// `is_pretraining` the prediction of masked word pieces from question answering.
    Bert { is_large: bool, positions: usize, is_pretraining: bool },
    /// GPT-2 with 124 million parameters, over sequences of 1,024 tokens.
    Gpt2,
}

impl Network {
    /// Returns the network with a name of the published tables, such as `resnet50_v1.5`. `None` if
    /// the zoo does not have it.
    pub(super) fn convolutional(name: &str) -> Option<Self> {
        Some(Self::Convolutional(match name {
            "resnet50" | "resnet50_v1.5" | "resnet50_v1b" | "resnet50 (Keras)" => "resnet-50",
            "resnet18" => "resnet-18",
            "resnet34" => "resnet-34",
            "resnet101" => "resnet-101",
            "resnet152" => "resnet-152",
            "resnext101_32x4d" => "resnext-101-32x4d",
            "inception3" => "inception-v3",
            "vgg11" => "vgg11",
            "vgg16" => "vgg16",
            "alexnet" => "alexnet",
            _ => return None,
        }))
    }

    /// Returns the family of the network.
    pub(super) fn family(self) -> NetworkFamily {
        match self {
            Self::Convolutional(_) => NetworkFamily::Convolutional,
            Self::Bert { .. } | Self::Gpt2 => NetworkFamily::Transformer,
        }
    }

    /// Builds the network.
    ///
    /// # Errors
    /// If the zoo cannot build it.
    pub(super) fn graph(self) -> Result<LayerGraph, GraphError> {
        match self {
            Self::Convolutional(name) => zoo::model(name),
            Self::Bert { is_large, positions, is_pretraining } => {
                let size = if is_large { BertSize::Large } else { BertSize::Base };
                let predictions = if positions > 128 { PREDICTIONS_OF_512 } else { PREDICTIONS_OF_128 };
                let task = if is_pretraining {
                    BertTask::MaskedTokens { predictions }
                } else {
                    BertTask::QuestionAnswering
                };
                zoo::bert(size, positions, task)
            }
            Self::Gpt2 => zoo::model("gpt2"),
        }
    }
}

/// The name, such as `resnet-50` or `bert-large-384-qa`.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Convolutional(name) => f.write_str(name),
            Self::Bert { is_large, positions, is_pretraining } => {
                let (size, task) =
                    (if is_large { "large" } else { "base" }, if is_pretraining { "mlm" } else { "qa" });
                write!(f, "bert-{size}-{positions}-{task}")
            }
            Self::Gpt2 => f.write_str("gpt2"),
        }
    }
}

/// Returns the name of a family in tables.
pub(super) fn family_name(family: NetworkFamily) -> &'static str {
    match family {
        NetworkFamily::Convolutional => "convolutional",
        NetworkFamily::Transformer => "transformer",
        NetworkFamily::Other => "other",
    }
}
