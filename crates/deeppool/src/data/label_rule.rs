//! Labels of one loss: their number, and the values that they may have.

use layer_graph::{Layer, LayerGraph, LayerKind};

/// Labels that one loss reads of each sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LabelRule {
    /// Number of labels of a sample, at least one.
    pub count: usize,
    /// Number of classes, which are numbered from 0; `None` if labels are any numbers.
    pub classes: Option<usize>,
    /// Label of positions without a target, if there may be such positions.
    pub ignored: Option<i32>,
}

impl LabelRule {
    /// Creates a rule for `count` labels a sample, each one of `classes` classes, or any number for
    /// `None`.
    #[must_use]
    pub fn new(count: usize, classes: impl Into<Option<usize>>) -> Self {
        Self { count, classes: classes.into(), ignored: None }
    }

    /// Allows a label for positions without a target.
    #[must_use]
    pub fn with_ignored(mut self, label: Option<i32>) -> Self {
        self.ignored = label;
        self
    }

    /// Returns whether a label is a class or the ignored label, or, without classes, finite.
    pub(super) fn allows(&self, label: f32) -> bool {
        match self.classes {
            Some(_) if label.fract() == 0.0 && Some(label as i32) == self.ignored => true,
            Some(classes) => label.fract() == 0.0 && label >= 0.0 && (label as usize) < classes,
            None => label.is_finite(),
        }
    }
}

/// Returns the network's loss layers that read labels, in the network's order, each with the rule
/// for its labels.
pub(super) fn losses(network: &LayerGraph) -> Vec<(&Layer, LabelRule)> {
    let of_layer = |id| {
        let layer: &Layer = network.layer(id);
        let classes = match (layer.kind(), layer.input_shapes()) {
            (LayerKind::SoftmaxCrossEntropy(_), [scores]) => Some(scores.innermost()),
            (LayerKind::ElementwiseLoss(_), _) => None,
            _ => return None,
        };
        let rule = LabelRule::new(layer.label_count(), classes);
        Some((layer, rule.with_ignored(layer.ignored_label())))
    };
    network.losses().filter_map(of_layer).collect()
}
