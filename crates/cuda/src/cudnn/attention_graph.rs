//! Graphs of scaled dot-product attention and its gradients, in the form for which cuDNN has
//! engines: that of NVIDIA's cudnn-frontend.

use std::sync::Arc;

use cudarc::cudnn::sys::{
    cudnnDataType_t as Data, cudnnPointwiseMode_t as Mode, cudnnReduceTensorOp_t as Reduction,
};

use super::attention_shape::{AttentionPass, AttentionShape, Sums};
use super::descriptor::{Descriptor, Owner};
use super::graph::Graph;
use super::operations::{Operations, Part};
use super::tensor::{Place, Tensor};
use crate::Result;

const BF16: Data = Data::CUDNN_DATA_BFLOAT16;
const F32: Data = Data::CUDNN_DATA_FLOAT;

/// Identifiers of tensors.
pub(super) mod identifiers {
    pub(in super::super) const QUERIES: i64 = 1;
    pub(in super::super) const KEYS: i64 = 2;
    pub(in super::super) const VALUES: i64 = 3;
    pub(in super::super) const OUTPUT: i64 = 4;
    pub(in super::super) const STATISTICS: i64 = 5;
    pub(in super::super) const OUTPUT_GRADIENT: i64 = 6;
    pub(in super::super) const QUERY_GRADIENT: i64 = 7;
    pub(in super::super) const KEY_GRADIENT: i64 = 8;
    pub(in super::super) const VALUE_GRADIENT: i64 = 9;
    pub(in super::super) const MEANS: i64 = 10;
    pub(in super::super) const QUERY_GRADIENT_SUMS: i64 = 11;
    pub(in super::super) const SCALE: i64 = 12;
    pub(in super::super) const MASKED: i64 = 13;
    pub(in super::super) const ONE: i64 = 14;
}

/// Dimensions and strides.
type Layout = ([i64; 4], [i64; 4]);

/// Returns the layout of a matrix for each sample and head without gaps.
fn contiguous([samples, heads, rows, columns]: [i64; 4]) -> Layout {
    ([samples, heads, rows, columns], [heads * rows * columns, rows * columns, columns, 1])
}

/// Returns the layout of the transposed matrices in the same memory.
fn transposed(([samples, heads, rows, columns], [a, b, c, d]): Layout) -> Layout {
    ([samples, heads, columns, rows], [a, b, d, c])
}

/// Graph under construction.
struct Attention<'o> {
    operations: Operations<'o>,
    is_causal: bool,
    /// Layout of queries, keys, values and their gradients, in the packed input.
    packed: Layout,
    /// Layout of the output and its gradient.
    output: Layout,
    /// Layout of numbers for each pair of positions.
    pairs: Layout,
    /// Layout of numbers for each position.
    rows: Layout,
}

/// Returns the finalized graph of a pass.
pub(super) fn graph(
    owner: &Arc<Owner>,
    shape: &AttentionShape,
    sums: Sums,
    properties: Option<Descriptor>,
) -> Result<Graph> {
    let [samples, positions, heads, width] = shape.dimensions()?;
    let (dimensions, features) = ([samples, heads, positions, width], heads * width);
    let mut attention = Attention {
        operations: Operations::new(owner),
        is_causal: shape.causal,
        packed: (dimensions, [positions * 3 * features, width, 3 * features, 1]),
        output: (dimensions, [positions * features, width, features, 1]),
        pairs: contiguous([samples, heads, positions, positions]),
        rows: contiguous([samples, heads, positions, 1]),
    };
    match shape.pass {
        AttentionPass::Forward => attention.add_forward()?,
        AttentionPass::Backward => attention.add_backward(sums)?,
    }
    attention.operations.finish(properties)
}

impl Attention<'_> {
    fn tensor(&mut self, data: Data, layout: Layout, identifier: i64) -> Result<Part> {
        let (dimensions, strides) = layout;
        self.operations.tensor(&Tensor { data, dimensions, strides, identifier, place: Place::Device })
    }

    /// Adds a number in host memory.
    fn number(&mut self, identifier: i64) -> Result<Part> {
        let (dimensions, strides) = contiguous([1; 4]);
        self.operations.tensor(&Tensor { data: F32, dimensions, strides, identifier, place: Place::Host })
    }

    /// Adds a function whose result is a virtual tensor.
    fn map(&mut self, mode: Mode, inputs: &[Part], layout: Layout) -> Result<Part> {
        let to = self.operations.virtual_tensor(F32, layout)?;
        self.operations.pointwise(mode, F32, inputs, to)
    }

    /// Adds products whose result is a virtual tensor of pairs.
    fn scores(&mut self, factors: [Part; 2]) -> Result<Part> {
        let to = self.operations.virtual_tensor(F32, self.pairs)?;
        self.operations.product(factors, to)
    }

    /// Replaces the scores of keys after the query by minus infinity, if attention is causal.
    fn mask(&mut self, scores: Part) -> Result<Part> {
        if !self.is_causal {
            return Ok(scores);
        }
        let mut index = |axis| {
            let to = self.operations.virtual_tensor(Data::CUDNN_DATA_INT32, self.pairs)?;
            self.operations.index(axis, scores, to)
        };
        let (query, key) = (index(2)?, index(3)?);
        let boolean = Data::CUDNN_DATA_BOOLEAN;
        let seen = self.operations.virtual_tensor(boolean, self.pairs)?;
        self.operations.pointwise(Mode::CUDNN_POINTWISE_CMP_GE, boolean, &[query, key], seen)?;
        let masked = self.number(identifiers::MASKED)?;
        self.map(Mode::CUDNN_POINTWISE_BINARY_SELECT, &[scores, masked, seen], self.pairs)
    }

    /// Adds the softmax of scaled products of queries and keys, its statistics, and the products
    /// with the values.
    fn add_forward(&mut self) -> Result<()> {
        let (pairs, rows) = (self.pairs, self.rows);
        let queries = self.tensor(BF16, self.packed, identifiers::QUERIES)?;
        let keys = self.tensor(BF16, transposed(self.packed), identifiers::KEYS)?;
        let products = self.scores([queries, keys])?;
        let scale = self.number(identifiers::SCALE)?;
        let scaled = self.map(Mode::CUDNN_POINTWISE_MUL, &[products, scale], pairs)?;
        let scores = self.mask(scaled)?;
        let largest = self.operations.virtual_tensor(F32, rows)?;
        self.operations.reduction(Reduction::CUDNN_REDUCE_TENSOR_MAX, scores, largest)?;
        let differences = self.map(Mode::CUDNN_POINTWISE_SUB, &[scores, largest], pairs)?;
        let exponentials = self.map(Mode::CUDNN_POINTWISE_EXP, &[differences], pairs)?;
        let sum = self.operations.virtual_tensor(F32, rows)?;
        self.operations.reduction(Reduction::CUDNN_REDUCE_TENSOR_ADD, exponentials, sum)?;
        let logarithm = self.map(Mode::CUDNN_POINTWISE_LOG, &[sum], rows)?;
        let statistics = self.tensor(F32, rows, identifiers::STATISTICS)?;
        self.operations.pointwise(Mode::CUDNN_POINTWISE_ADD, F32, &[largest, logarithm], statistics)?;
        let weights = self.operations.virtual_tensor(BF16, pairs)?;
        self.operations.pointwise(Mode::CUDNN_POINTWISE_DIV, F32, &[exponentials, sum], weights)?;
        let values = self.tensor(BF16, self.packed, identifiers::VALUES)?;
        let output = self.tensor(BF16, self.output, identifiers::OUTPUT)?;
        self.operations.product([weights, values], output).map(drop)
    }

    /// Adds the gradients. Weights are recomputed from the statistics.
    fn add_backward(&mut self, sums: Sums) -> Result<()> {
        let (pairs, rows) = (self.pairs, self.rows);
        let gradient = self.tensor(BF16, self.output, identifiers::OUTPUT_GRADIENT)?;
        let output = self.tensor(BF16, self.output, identifiers::OUTPUT)?;
        let ([samples, heads, positions, width], _) = self.output;
        let layout = (
            [samples, heads, positions, width],
            [heads * positions * width, positions * width, heads * width, 1],
        );
        let products = self.map(Mode::CUDNN_POINTWISE_MUL, &[gradient, output], layout)?;
        let sum = self.operations.virtual_tensor(F32, rows)?;
        self.operations.reduction(Reduction::CUDNN_REDUCE_TENSOR_ADD, products, sum)?;
        let one = self.number(identifiers::ONE)?;
        let means = self.tensor(F32, rows, identifiers::MEANS)?;
        self.operations.pointwise(Mode::CUDNN_POINTWISE_MUL, F32, &[sum, one], means)?;

        let queries = self.tensor(BF16, self.packed, identifiers::QUERIES)?;
        let keys = self.tensor(BF16, transposed(self.packed), identifiers::KEYS)?;
        let products = self.scores([queries, keys])?;
        let scale = self.number(identifiers::SCALE)?;
        let scaled = self.map(Mode::CUDNN_POINTWISE_MUL, &[products, scale], pairs)?;
        let statistics = self.tensor(F32, rows, identifiers::STATISTICS)?;
        let logarithms = self.map(Mode::CUDNN_POINTWISE_SUB, &[scaled, statistics], pairs)?;
        let logarithms = self.mask(logarithms)?;
        let weights = self.map(Mode::CUDNN_POINTWISE_EXP, &[logarithms], pairs)?;
        let to = self.operations.virtual_tensor(BF16, transposed(pairs))?;
        let by_key = self.operations.reshape(weights, to)?;
        let value_gradient = self.tensor(BF16, self.packed, identifiers::VALUE_GRADIENT)?;
        self.operations.product([by_key, gradient], value_gradient)?;

        let values = self.tensor(BF16, transposed(self.packed), identifiers::VALUES)?;
        let slopes = self.scores([gradient, values])?;
        let slopes = self.map(Mode::CUDNN_POINTWISE_SUB, &[slopes, means], pairs)?;
        let slopes = self.map(Mode::CUDNN_POINTWISE_MUL, &[slopes, weights], pairs)?;
        let slopes = self.map(Mode::CUDNN_POINTWISE_MUL, &[slopes, scale], pairs)?;
        let to = self.operations.virtual_tensor(BF16, transposed(pairs))?;
        let by_key = self.operations.reshape(slopes, to)?;
        let key_gradient = self.tensor(BF16, self.packed, identifiers::KEY_GRADIENT)?;
        self.operations.product([by_key, queries], key_gradient)?;

        let to = self.operations.virtual_tensor(F32, self.packed)?;
        let keys = self.operations.reshape(keys, to)?;
        let query_gradient = self.tensor(BF16, self.packed, identifiers::QUERY_GRADIENT)?;
        match sums {
            Sums::Ordered => self.operations.product([slopes, keys], query_gradient).map(drop),
            Sums::Atomic => {
                let sums = self.tensor(F32, contiguous(self.output.0), identifiers::QUERY_GRADIENT_SUMS)?;
                self.operations.product([slopes, keys], sums)?;
                let mode = Mode::CUDNN_POINTWISE_IDENTITY;
                self.operations.pointwise(mode, F32, &[sums], query_gradient).map(drop)
            }
        }
    }
}
