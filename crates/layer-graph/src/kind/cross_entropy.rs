//! Softmax with cross entropy, and the JSON format of kinds, in which its options may be omitted.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::LayerKind;

/// Hyper-parameters of a softmax with cross entropy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SoftmaxCrossEntropy {
    /// Share of the target that is spread evenly over all classes, from 0 to 1 (Szegedy et al.,
    /// "Rethinking the Inception architecture for computer vision", 2016). With label smoothing
    /// `s`, the loss of a label is `(1 - s)` times its cross entropy plus `s` times the mean of
    /// `-log p` over the classes, as in PyTorch.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub label_smoothing: f64,
    /// Label of positions without a target, such as padding. They have no loss and no gradient, and
    /// the mean loss of a batch is over all other positions of the batch, as in PyTorch. Its
    /// magnitude is at most 2^24.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored_label: Option<i32>,
}

impl SoftmaxCrossEntropy {
    /// Creates a cross entropy with label smoothing.
    #[must_use]
    pub fn smoothed(label_smoothing: f64) -> Self {
        Self { label_smoothing, ignored_label: None }
    }

    /// Creates a cross entropy with an ignored label.
    #[must_use]
    pub fn ignoring(label: i32) -> Self {
        Self { label_smoothing: 0.0, ignored_label: Some(label) }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

/// Name of a softmax with cross entropy without options.
const PLAIN: &str = "softmax_cross_entropy";

impl Serialize for LayerKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if *self == Self::CROSS_ENTROPY {
            serializer.serialize_str(PLAIN)
        } else {
            Self::serialize(self, serializer)
        }
    }
}

impl<'de> Deserialize<'de> for LayerKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KindVisitor)
    }
}

/// Visitor of a kind: a name, or an object with the name and the hyper-parameters.
struct KindVisitor;

impl<'de> Visitor<'de> for KindVisitor {
    type Value = LayerKind;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name of a kind of layer, or an object with it and its hyper-parameters")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<LayerKind, E> {
        if name == PLAIN {
            return Ok(LayerKind::CROSS_ENTROPY);
        }
        LayerKind::deserialize(StrDeserializer::new(name))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LayerKind, A::Error> {
        LayerKind::deserialize(MapAccessDeserializer::new(map))
    }
}
