//! BERT (Devlin et al., 2019).

use serde::Deserialize;

use super::{Configured, Field, Labels, activation, add_dropout, check, padding, tenth, yes};
use crate::{
    Embedding, GraphError, LayerGraph, LayerId, LayerKind, LayerNorm, LayerTensor, Linear,
    MultiHeadAttention, Opaque, OpaquePass, PositionEmbedding, Select, Shape,
};

/// Classes of `transformers` whose last layers are known.
pub(super) const CLASSES: [&str; 3] = [SEQUENCES, TOKENS, MASKED];
const SEQUENCES: &str = "BertForSequenceClassification";
const TOKENS: &str = "BertForTokenClassification";
const MASKED: &str = "BertForMaskedLM";

/// Fields of the configuration that determine the layers.
#[derive(Deserialize)]
pub(super) struct Config {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    #[serde(default = "gelu")]
    hidden_act: String,
    #[serde(default = "tenth")]
    hidden_dropout_prob: f64,
    #[serde(default = "tenth")]
    attention_probs_dropout_prob: f64,
    classifier_dropout: Option<f64>,
    max_position_embeddings: usize,
    #[serde(default = "two")]
    type_vocab_size: usize,
    #[serde(default = "epsilon")]
    layer_norm_eps: f64,
    #[serde(default)]
    pad_token_id: Field<i64>,
    #[serde(default)]
    is_decoder: bool,
    #[serde(default)]
    add_cross_attention: bool,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    position_embedding_type: Option<String>,
}

fn gelu() -> String {
    "gelu".into()
}

fn two() -> usize {
    2
}

fn epsilon() -> f64 {
    1e-12
}

impl Config {
    fn norm(&self) -> LayerKind {
        LayerNorm { epsilon: self.layer_norm_eps }.into()
    }

    /// Returns what the network lacks.
    fn left_out(&self) -> Vec<String> {
        let positions = self.position_embedding_type.as_deref().filter(|&positions| positions != "absolute");
        let positions = positions.map(|positions| format!("position embeddings of type {positions}"));
        let cross_attention = self.add_cross_attention.then(|| "cross attention".into());
        positions.into_iter().chain(cross_attention).collect()
    }
}

/// Builds the network with the last layers of a class: those that classify sequences if the class
/// is none of [`CLASSES`].
pub(super) fn build(
    name: &str,
    config: &Config,
    positions: usize,
    class: Option<&str>,
    labels: &Labels,
) -> Result<Configured, GraphError> {
    check(positions, Some(config.max_position_embeddings), config.num_hidden_layers)?;
    let padding = padding(config.pad_token_id.or(Some(0)), config.vocab_size)?;
    let mut net = LayerGraph::new(name, Shape::features(positions))?;
    let words = Embedding { padding, ..Embedding::new(config.vocab_size, config.hidden_size) };
    let words = net.add("bert.embeddings.word_embeddings", words, [net.input()])?;
    let types = PositionEmbedding { repeated: true, ..PositionEmbedding::new(config.type_vocab_size) };
    let mut x = net.add("bert.embeddings.token_type_embeddings.weight", types, [words])?;
    let table = PositionEmbedding::new(config.max_position_embeddings);
    x = net.add("bert.embeddings.position_embeddings.weight", table, [x])?;
    x = net.add("bert.embeddings.LayerNorm", config.norm(), [x])?;
    x = add_dropout(&mut net, "bert.embeddings.dropout", config.hidden_dropout_prob, x)?;
    for block in 0..config.num_hidden_layers {
        x = add_block(&mut net, config, &format!("bert.encoder.layer.{block}"), x)?;
    }
    x = match class {
        Some(MASKED) => masked_words(&mut net, config, words, x)?,
        _ => classes(&mut net, config, class == Some(TOKENS), labels.count(), x)?,
    };
    net.add("loss", LayerKind::SoftmaxCrossEntropy, [x])?;
    let of_loss = if class == Some(MASKED) { None } else { labels.other_loss() };
    let left_out = config.left_out().into_iter().chain(of_loss).collect();
    Ok(Configured { network: net, left_out })
}

/// Adds the layers of a block, and returns the last one.
fn add_block(
    net: &mut LayerGraph,
    config: &Config,
    path: &str,
    input: LayerId,
) -> Result<LayerId, GraphError> {
    let mut then =
        |name: &str, kind: LayerKind, inputs: &[LayerId]| net.add(format!("{path}.{name}"), kind, inputs);
    let features = config.hidden_size;
    let queries = then("attention.self.query", Linear::new(features).into(), &[input])?;
    let keys = then("attention.self.key", Linear::new(features).into(), &[input])?;
    let values = then("attention.self.value", Linear::new(features).into(), &[input])?;
    let attention = MultiHeadAttention::new(config.num_attention_heads, config.is_decoder)
        .with_dropout(config.attention_probs_dropout_prob);
    let x = then("attention.self", attention.into(), &[queries, keys, values])?;
    let middle = add_output(net, config, &format!("{path}.attention.output"), x, input)?;
    let hidden = Linear::new(config.intermediate_size);
    let mut x = net.add(format!("{path}.intermediate.dense"), hidden, [middle])?;
    let activation = activation(&config.hidden_act)?;
    x = net.add(format!("{path}.intermediate.intermediate_act_fn"), activation, [x])?;
    add_output(net, config, &format!("{path}.output"), x, middle)
}

/// Adds the layers that end a sublayer: a linear layer, the dropout, the residual sum and the
/// normalisation.
fn add_output(
    net: &mut LayerGraph,
    config: &Config,
    path: &str,
    x: LayerId,
    around: LayerId,
) -> Result<LayerId, GraphError> {
    let mut x = net.add(format!("{path}.dense"), Linear::new(config.hidden_size), [x])?;
    x = add_dropout(net, format!("{path}.dropout"), config.hidden_dropout_prob, x)?;
    x = net.add(format!("{path}.add"), LayerKind::Add, [x, around])?;
    net.add(format!("{path}.LayerNorm"), config.norm(), [x])
}

/// Adds the scores of the classes of each token, or of the whole sequence.
fn classes(
    net: &mut LayerGraph,
    config: &Config,
    is_of_tokens: bool,
    classes: usize,
    input: LayerId,
) -> Result<LayerId, GraphError> {
    let mut x = input;
    if !is_of_tokens {
        x = net.add("bert.pooler.select", Select { index: 0 }, [x])?;
        x = net.add("bert.pooler.dense", Linear::new(config.hidden_size), [x])?;
        x = net.add("bert.pooler.activation", LayerKind::Tanh, [x])?;
    }
    let probability = config.classifier_dropout.unwrap_or(config.hidden_dropout_prob);
    x = add_dropout(net, "dropout", probability, x)?;
    net.add("classifier", Linear::new(classes), [x])
}

/// Adds the scores of the words at each position. The bias of a product with the words' embedding
/// is an opaque layer.
fn masked_words(
    net: &mut LayerGraph,
    config: &Config,
    words: LayerId,
    input: LayerId,
) -> Result<LayerId, GraphError> {
    let path = "cls.predictions.transform";
    let mut x = net.add(format!("{path}.dense"), Linear::new(config.hidden_size), [input])?;
    x = net.add(format!("{path}.transform_act_fn"), activation(&config.hidden_act)?, [x])?;
    x = net.add(format!("{path}.LayerNorm"), config.norm(), [x])?;
    let (decoder, scores) = ("cls.predictions.decoder", Linear::new(config.vocab_size));
    if !config.tie_word_embeddings {
        return net.add(decoder, scores, [x]);
    }
    x = net.add_tied(decoder, scores.without_bias(), [x], words)?;
    let output = net.layer(x).output_shape().clone();
    let (elements, bytes) = (output.elements() as u64, net.layer(x).output_bytes());
    let bias = Opaque::new("linear", output)
        .parameters([LayerTensor::new("bias", [config.vocab_size])])
        .forward(OpaquePass { flops: elements, bytes: bytes.saturating_mul(2), kernels: 1 })
        .backward(OpaquePass { flops: elements, bytes: bytes.saturating_mul(3), kernels: 2 });
    net.add(format!("{decoder}.bias"), bias, [x])
}
