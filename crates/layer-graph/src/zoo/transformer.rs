//! Transformer block (Vaswani et al., 2017) with layer normalisation before each sublayer, as in
//! GPT-2 and the vision transformers.

use crate::{Dropout, GraphError, LayerGraph, LayerId, LayerKind, LayerNorm, Linear, MultiHeadAttention};

/// Transformer block: `x + attention(norm(x))`, followed by `x + perceptron(norm(x))`.
pub(super) struct Block {
    /// Number of features of each position, in the input and the output.
    pub(super) features: usize,
    /// Number of attention heads. Divides `features`.
    pub(super) heads: usize,
    /// Whether each position attends only to itself and earlier positions.
    pub(super) causal: bool,
    /// Term added to the variance in a layer normalisation.
    pub(super) epsilon: f64,
    /// Activation between the two layers of the perceptron, whose hidden layer has `4 * features`
    /// units.
    pub(super) activation: LayerKind,
    /// Probability of the dropout before each residual sum; `None` adds no dropout layers.
    pub(super) dropout: Option<f64>,
}

impl Block {
    /// Adds the layers of the block after the layer `input`, a sequence of `features` features, and
    /// returns the last one. Their names start with `label` and follow torchvision's vision
    /// transformers.
    ///
    /// # Errors
    /// That of the first layer that does not fit, such as an attention whose heads do not divide
    /// `features`.
    pub(super) fn add(
        &self,
        net: &mut LayerGraph,
        label: &str,
        input: LayerId,
    ) -> Result<LayerId, GraphError> {
        let attention = MultiHeadAttention::new(self.heads, self.causal);
        let mut x = net.add(format!("{label}.ln_1"), self.norm(), [input])?;
        x = net.add(format!("{label}.self_attention.in_proj"), Linear::new(3 * self.features), [x])?;
        x = net.add(format!("{label}.self_attention"), attention, [x])?;
        x = net.add(format!("{label}.self_attention.out_proj"), Linear::new(self.features), [x])?;
        let middle = self.join(net, label, 1, x, input)?;

        x = net.add(format!("{label}.ln_2"), self.norm(), [middle])?;
        x = net.add(format!("{label}.mlp.0"), Linear::new(4 * self.features), [x])?;
        x = net.add(format!("{label}.mlp.1"), self.activation.clone(), [x])?;
        x = net.add(format!("{label}.mlp.3"), Linear::new(self.features), [x])?;
        self.join(net, label, 2, x, middle)
    }

    /// Returns the layer normalisation with the block's epsilon, for use in the block and at the
    /// end of the network.
    pub(super) fn norm(&self) -> LayerNorm {
        LayerNorm { epsilon: self.epsilon }
    }

    /// Adds the dropout, if any, and the residual sum.
    fn join(
        &self,
        net: &mut LayerGraph,
        label: &str,
        index: usize,
        mut x: LayerId,
        around: LayerId,
    ) -> Result<LayerId, GraphError> {
        if let Some(probability) = self.dropout {
            x = net.add(format!("{label}.dropout{index}"), Dropout::new(probability), [x])?;
        }
        net.add(format!("{label}.add{index}"), LayerKind::Add, [x, around])
    }
}
