//! BERT (Devlin et al., 2019) and `RoBERTa` (Liu et al., 2019).

use serde::Deserialize;

use super::{Configured, Field, Labels, activation, add_dropout, check, invalid, padding, tenth, yes};
use crate::{
    Embedding, GraphError, LayerGraph, LayerId, LayerKind, LayerNorm, Linear, MultiHeadAttention,
    PositionEmbedding, Select, Shape,
};

/// Family of networks with these layers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Bert,
    /// Positions are counted from the padding token's number on. Padding tokens have no position of
    /// their own, so the network is that of sequences without padding.
    Roberta,
}

impl Family {
    /// Returns the name of the module that has all but the last layers.
    fn path(self) -> &'static str {
        match self {
            Self::Bert => "bert",
            Self::Roberta => "roberta",
        }
    }

    /// Returns the last layers of a class of `transformers`, if they are known.
    fn head(self, class: &str) -> Option<Head> {
        let prefix = if self == Self::Bert { "Bert" } else { "Roberta" };
        match class.strip_prefix(prefix)? {
            "ForSequenceClassification" | "Model" => Some(Head::Sequences),
            "ForTokenClassification" => Some(Head::Tokens),
            "ForMaskedLM" => Some(Head::Masked),
            _ => None,
        }
    }

    /// Returns whether the last layers of a class are known. Networks without them end as those
    /// that classify sequences.
    pub(super) fn knows(self, class: &str) -> bool {
        self.head(class).is_some()
    }
}

/// Last layers of a network.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Head {
    /// Scores of the classes of a sequence.
    Sequences,
    /// Scores of the classes of each token.
    Tokens,
    /// Scores of the words at each position.
    Masked,
}

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
/// is not known.
pub(super) fn build(
    name: &str,
    config: &Config,
    positions: usize,
    (family, class): (Family, Option<&str>),
    labels: &Labels,
) -> Result<Configured, GraphError> {
    let default = i64::from(family == Family::Roberta);
    let padding = padding(config.pad_token_id.or(Some(default)), config.vocab_size)?;
    let first = match (family, padding) {
        (Family::Bert, _) => 0,
        (Family::Roberta, Some(padding)) => padding + 1,
        (Family::Roberta, None) => return Err(invalid("`roberta` needs a pad_token_id")),
    };
    let max_positions = config.max_position_embeddings.saturating_sub(first);
    check(positions, Some(max_positions), config.num_hidden_layers)?;
    let path = family.path();
    let mut net = LayerGraph::new(name, Shape::features(positions))?;
    let words = Embedding { padding, ..Embedding::new(config.vocab_size, config.hidden_size) };
    let words = net.add(format!("{path}.embeddings.word_embeddings"), words, [net.input()])?;
    let types = PositionEmbedding { repeated: true, ..PositionEmbedding::new(config.type_vocab_size) };
    let mut x = net.add(format!("{path}.embeddings.token_type_embeddings.weight"), types, [words])?;
    let table = PositionEmbedding { first, ..PositionEmbedding::new(config.max_position_embeddings) };
    x = net.add(format!("{path}.embeddings.position_embeddings.weight"), table, [x])?;
    x = net.add(format!("{path}.embeddings.LayerNorm"), config.norm(), [x])?;
    x = add_dropout(&mut net, format!("{path}.embeddings.dropout"), config.hidden_dropout_prob, x)?;
    for block in 0..config.num_hidden_layers {
        x = add_block(&mut net, config, &format!("{path}.encoder.layer.{block}"), x)?;
    }
    let head = class.and_then(|class| family.head(class)).unwrap_or(Head::Sequences);
    x = match (head, family) {
        (Head::Masked, _) => masked_words(&mut net, config, (family, words), x)?,
        (Head::Sequences, Family::Roberta) => classes_of_roberta(&mut net, config, labels.count(), x)?,
        _ => classes(&mut net, config, head == Head::Tokens, labels.count(), x)?,
    };
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    let of_loss = if head == Head::Masked { None } else { labels.other_loss() };
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

/// Adds the scores of the classes of a whole sequence, as in `RoBERTa`.
fn classes_of_roberta(
    net: &mut LayerGraph,
    config: &Config,
    classes: usize,
    input: LayerId,
) -> Result<LayerId, GraphError> {
    let probability = config.classifier_dropout.unwrap_or(config.hidden_dropout_prob);
    let mut x = net.add("classifier.select", Select { index: 0 }, [input])?;
    x = add_dropout(net, "classifier.dropout", probability, x)?;
    x = net.add("classifier.dense", Linear::new(config.hidden_size), [x])?;
    x = net.add("classifier.tanh", LayerKind::Tanh, [x])?;
    x = add_dropout(net, "classifier.dropout.2", probability, x)?;
    net.add("classifier.out_proj", Linear::new(classes), [x])
}

/// Adds the scores of the words at each position. The bias of a product with the words' embedding
/// is a vector added to all positions.
fn masked_words(
    net: &mut LayerGraph,
    config: &Config,
    (family, words): (Family, LayerId),
    input: LayerId,
) -> Result<LayerId, GraphError> {
    let (path, function, norm, decoder) = match family {
        Family::Bert => {
            ("cls.predictions.transform", "transform_act_fn", "LayerNorm", "cls.predictions.decoder")
        }
        Family::Roberta => ("lm_head", "gelu", "layer_norm", "lm_head.decoder"),
    };
    let activation = match family {
        Family::Bert => activation(&config.hidden_act)?,
        Family::Roberta => LayerKind::Gelu,
    };
    let mut x = net.add(format!("{path}.dense"), Linear::new(config.hidden_size), [input])?;
    x = net.add(format!("{path}.{function}"), activation, [x])?;
    x = net.add(format!("{path}.{norm}"), config.norm(), [x])?;
    let scores = Linear::new(config.vocab_size);
    if !config.tie_word_embeddings {
        return net.add(decoder, scores, [x]);
    }
    x = net.add_tied(decoder, scores.without_bias(), [x], words)?;
    let bias = PositionEmbedding { repeated: true, ..PositionEmbedding::new(1) };
    net.add(format!("{decoder}.bias"), bias, [x])
}
