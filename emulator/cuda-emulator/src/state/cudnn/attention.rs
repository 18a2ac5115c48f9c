//! Graphs of scaled dot-product attention: their forms, and the engines for them.

use super::{
    convolution::Tensor,
    nodes::{
        Node,
        NodeKind::{self, Pointwise, Product, Reduction, Reshape},
        mode, reduction,
    },
    rounding::DataType,
};
use std::sync::Arc;

/// Heuristic mode that proposes engines for every graph (`CUDNN_HEUR_MODE_FALLBACK`).
const FALLBACK: i64 = 2;

/// Form of a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// Output and statistics.
    Forward,
    /// Gradients. Those of the weights are stored in the workspace.
    Backward,
    /// Gradients. Those of the queries are added in `f32` in any order.
    BackwardAtomic,
}

/// Graph of attention.
pub(crate) struct Attention {
    form: Form,
    /// The operations, in the order of the graph.
    pub(super) nodes: Vec<Arc<Node>>,
    /// Whether the element types, strides and the width are such that there are engines.
    has_engines: bool,
    /// Sizes of the queries: samples, heads, positions and features.
    sizes: [u64; 4],
}

/// Use of a tensor by an execution.
pub(crate) struct Use {
    /// The tensor.
    pub(crate) tensor: Arc<Tensor>,
    /// Whether it is a result.
    pub(crate) is_written: bool,
}

/// Returns the kinds and functions of the operations of a form, in the order of NVIDIA's
/// cudnn-frontend.
fn signature(form: Form, is_causal: bool) -> Vec<(NodeKind, i64)> {
    let pointwise = |mode| (Pointwise, mode);
    let mask: Vec<_> = [mode::INDEX, mode::INDEX, mode::AT_LEAST, mode::SELECT].map(pointwise).to_vec();
    let mask = if is_causal { mask } else { Vec::new() };
    let (product, reshape) = ((Product, 0), (Reshape, 0));
    let [multiply, subtract, exponential] =
        [mode::MULTIPLY, mode::SUBTRACT, mode::EXPONENTIAL].map(pointwise);
    if form == Form::Forward {
        let [logarithm, add, divide] = [mode::LOGARITHM, mode::ADD, mode::DIVIDE].map(pointwise);
        let (maximum, sum) = ((Reduction, reduction::MAXIMUM), (Reduction, reduction::SUM));
        let softmax = [maximum, subtract, exponential, sum, logarithm, add, divide];
        return [&[product, multiply][..], &mask, &softmax, &[product]].concat();
    }
    let before = [multiply, (Reduction, reduction::SUM), multiply, product, multiply, subtract];
    let after = [
        exponential,
        reshape,
        product,
        product,
        subtract,
        multiply,
        multiply,
        reshape,
        product,
        reshape,
        product,
    ];
    let copy: &[_] = if form == Form::BackwardAtomic { &[pointwise(mode::IDENTITY)] } else { &[] };
    [&before[..], &mask, &after, copy].concat()
}

impl Attention {
    /// Returns the attention that operations compute, or `None` if they compute something else.
    pub(super) fn recognize(nodes: Vec<Arc<Node>>) -> Option<Self> {
        let found: Vec<_> = nodes.iter().map(|node| (node.kind, node.mode)).collect();
        let form = [Form::Forward, Form::Backward, Form::BackwardAtomic]
            .into_iter()
            .find(|form| [false, true].iter().any(|causal| signature(*form, *causal) == found))?;
        // Intermediate results are computed before they are used, and with the same shape.
        let is_connected = nodes.iter().enumerate().all(|(index, node)| {
            let is_there = |input: &Arc<Tensor>| {
                let mut before = nodes[..index].iter().map(|node| &node.output);
                let same = before.find(|output| output.id == input.id);
                same.map_or(!input.is_virtual, |same| {
                    same.dimensions == input.dimensions && same.strides == input.strides
                })
            };
            node.inputs.iter().all(is_there) && fits(node)
        });
        let queries = &nodes.iter().find(|node| node.kind == Product)?.inputs[0];
        let sizes: Option<Vec<u64>> =
            queries.dimensions.iter().map(|size| u64::try_from(*size).ok()).collect();
        let sizes = <[u64; 4]>::try_from(sizes?).ok()?;
        let has_engines = sizes[3] % 8 == 0 && has_engine_types(&nodes, queries.data_type);
        is_connected.then_some(Self { form, nodes, has_engines, sizes })
    }

    /// Returns the engines that a heuristic mode proposes, best first.
    pub(super) fn propose(&self, mode: i64) -> Vec<i64> {
        let engines: &[i64] = match (self.form, mode) {
            (Form::Forward, FALLBACK) => &[1, 2],
            (Form::Forward, _) => &[2, 1],
            (_, FALLBACK) => &[],
            _ => &[6, 7],
        };
        engines.iter().copied().filter(|engine| self.supports(*engine)).collect()
    }

    /// Returns whether an engine computes the graph.
    pub(super) fn supports(&self, engine: i64) -> bool {
        let [_, _, positions, width] = self.sizes;
        let fits = match (self.form, engine) {
            (Form::Forward, 1) => true,
            (Form::Forward, 2) => positions > 1 && width <= 256,
            (Form::Backward | Form::BackwardAtomic, 6) => width <= 256,
            (Form::Backward | Form::BackwardAtomic, 7) => width <= 128,
            _ => false,
        };
        self.has_engines && fits
    }

    /// Returns the size of the workspace of an engine in bytes.
    pub(super) fn workspace(&self, engine: i64) -> u64 {
        let [samples, heads, positions, width] = self.sizes;
        let matrices = samples * heads;
        match (self.form, engine) {
            (Form::Forward, 2) | (Form::BackwardAtomic, 6) => 256,
            (Form::Backward, 6) => {
                2 * matrices * positions.next_multiple_of(64) * positions.next_multiple_of(128) + 256
            }
            (Form::Backward, _) => 2 * matrices * positions.next_multiple_of(64).pow(2) + 128,
            (Form::BackwardAtomic, _) => 4 * matrices * positions.next_multiple_of(8) * width + 128,
            (Form::Forward, _) => 0,
        }
    }

    /// Returns the name of the pass.
    pub(crate) fn pass(&self) -> &'static str {
        match self.form {
            Form::Forward => "attention_forward",
            Form::Backward | Form::BackwardAtomic => "attention_backward",
        }
    }

    /// Returns the tensors that are not virtual, in the order of their first use.
    pub(crate) fn uses(&self) -> Vec<Use> {
        let mut uses: Vec<Use> = Vec::new();
        for node in &self.nodes {
            let tensors = node.inputs.iter().map(|input| (input, false)).chain([(&node.output, true)]);
            for (tensor, is_written) in tensors.filter(|(tensor, _)| !tensor.is_virtual) {
                match uses.iter_mut().find(|known| known.tensor.id == tensor.id) {
                    Some(known) => known.is_written |= is_written,
                    None => uses.push(Use { tensor: tensor.clone(), is_written }),
                }
            }
        }
        uses
    }
}

/// Returns whether the program's factors of products have a 16-bit type, that of the queries, and
/// whether the types and strides of all tensors of the program are emulated.
fn has_engine_types(nodes: &[Arc<Node>], queries: i64) -> bool {
    let half = DataType::from_number(queries).filter(|found| *found != DataType::F32);
    let mut products = nodes.iter().filter(|node| node.kind == Product);
    let mut tensors = nodes.iter().flat_map(|node| node.inputs.iter().chain([&node.output]));
    half.is_some()
        && products.all(|node| node.inputs.iter().all(|input| input.is_virtual || input.data_type == queries))
        && tensors.all(|tensor| {
            tensor.is_virtual
                || DataType::from_number(tensor.data_type).is_some()
                    && tensor.strides.iter().all(|stride| *stride > 0)
        })
}

/// Returns whether the inputs of a pointwise operation or a reduction have four dimensions each of
/// which is that of the result or, of one of the two, 1.
fn fits(node: &Node) -> bool {
    let y = &node.output.dimensions;
    let repeats = |x: &Vec<i64>| x.iter().zip(y).all(|(x, y)| x == y || *x == 1);
    y.len() == 4
        && node.inputs.iter().all(|input| input.dimensions.len() == 4)
        && match node.kind {
            Pointwise => node.inputs.iter().all(|input| repeats(&input.dimensions)),
            Reduction => y.iter().zip(&node.inputs[0].dimensions).all(|(y, x)| x == y || *y == 1),
            Product | Reshape => true,
        }
}
