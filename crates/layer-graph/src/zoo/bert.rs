//! BERT (Devlin et al., 2019): a transformer encoder over sequences of word pieces.
//!
//! The embedding of segments and the pooler of the first position are left out: they have 1,536 and
//! 590,592 parameters in BERT-base, and hardly any work.

use crate::{
    Dropout, Embedding, GraphError, LayerGraph, LayerId, LayerKind, LayerNorm, Linear, MultiHeadAttention,
    Opaque, OpaquePass, Permute, PositionEmbedding, Shape,
};

const VOCABULARY: usize = 30_522;
/// Number of positions of BERT's position embedding.
pub(super) const POSITIONS: usize = 512;
const DROPOUT: f64 = 0.1;
const NORM: LayerNorm = LayerNorm { epsilon: 1e-12 };

/// Size of a BERT network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BertSize {
    /// 12 blocks of 768 features and 12 heads.
    Base,
    /// 24 blocks of 1024 features and 16 heads.
    Large,
}

/// Task of a BERT network, which determines its last layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BertTask {
    /// Question answering: the first and the last position of the answer, as in fine-tuning on
    /// SQuAD.
    QuestionAnswering,
    /// Prediction of masked word pieces, as in pretraining.
    MaskedTokens {
        /// Number of masked positions of a sequence, at most its number of positions.
        predictions: usize,
    },
}

struct Block {
    features: usize,
    heads: usize,
}

/// Builds a BERT network under the given name, over sequences of `positions` word pieces.
///
/// # Errors
/// [`GraphError::Shape`] if `positions` is 0, or less than the number of predictions.
pub(super) fn bert(
    name: &str,
    size: BertSize,
    positions: usize,
    task: BertTask,
) -> Result<LayerGraph, GraphError> {
    let (blocks, features, heads) = match size {
        BertSize::Base => (12, 768, 12),
        BertSize::Large => (24, 1024, 16),
    };
    let mut net = LayerGraph::new(name, Shape::features(positions))?;
    let input = net.input();
    let words = net.add("embeddings.word", Embedding::new(VOCABULARY, features), [input])?;
    let mut x = net.add("embeddings.position", PositionEmbedding::new(positions), [words])?;
    x = net.add("embeddings.norm", NORM, [x])?;
    x = net.add("embeddings.dropout", Dropout::new(DROPOUT), [x])?;
    let block = Block { features, heads };
    for index in 0..blocks {
        x = block.add(&mut net, &format!("layer.{index}"), x)?;
    }
    match task {
        BertTask::QuestionAnswering => {
            x = net.add("qa_outputs", Linear::new(2), [x])?;
            x = net.add("qa_outputs.permute", Permute { order: vec![1, 0] }, [x])?;
        }
        BertTask::MaskedTokens { predictions } => {
            if predictions > positions {
                let problem = format!("{predictions} predictions in {positions} positions");
                return Err(GraphError::Shape { layer: "predictions.gather".into(), problem });
            }
            let gathered = Shape::sequence(predictions, features);
            let bytes = 2 * 4 * gathered.elements() as u64;
            let pass = OpaquePass { flops: 0, bytes, kernels: 1 };
            let mut gather = Opaque::new("gather of masked positions", gathered);
            (gather.forward, gather.backward) = (pass, pass);
            x = net.add("predictions.gather", gather, [x])?;
            x = net.add("predictions.dense", Linear::new(features), [x])?;
            x = net.add("predictions.gelu", LayerKind::Gelu, [x])?;
            x = net.add("predictions.norm", NORM, [x])?;
            x = net.add_tied("predictions.decoder", Linear::new(VOCABULARY).without_bias(), [x], words)?;
        }
    }
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    Ok(net)
}

impl Block {
    /// Adds a block with normalisation after each sublayer, and returns its last layer.
    fn add(&self, net: &mut LayerGraph, label: &str, input: LayerId) -> Result<LayerId, GraphError> {
        let attention = MultiHeadAttention::new(self.heads, false);
        let mut x = net.add(format!("{label}.attention.in_proj"), Linear::new(3 * self.features), [input])?;
        x = net.add(format!("{label}.attention"), attention, [x])?;
        x = net.add(format!("{label}.attention.out_proj"), Linear::new(self.features), [x])?;
        let middle = Self::join(net, &format!("{label}.attention"), x, input)?;
        x = net.add(format!("{label}.intermediate"), Linear::new(4 * self.features), [middle])?;
        x = net.add(format!("{label}.intermediate.gelu"), LayerKind::Gelu, [x])?;
        x = net.add(format!("{label}.output"), Linear::new(self.features), [x])?;
        Self::join(net, &format!("{label}.output"), x, middle)
    }

    /// Adds the dropout, the residual sum and the normalisation that end a sublayer.
    fn join(net: &mut LayerGraph, label: &str, x: LayerId, around: LayerId) -> Result<LayerId, GraphError> {
        let x = net.add(format!("{label}.dropout"), Dropout::new(DROPOUT), [x])?;
        let x = net.add(format!("{label}.add"), LayerKind::Add, [x, around])?;
        net.add(format!("{label}.norm"), NORM, [x])
    }
}
