//! LSTMs and GRUs, of which each direction becomes a linear layer, for the products of the input
//! weights, and a recurrence.

use crate::onnx::OnnxError;
use crate::onnx::builder::{Builder, Parameters};
use crate::onnx::constants::{Constant, Source};
use crate::onnx::deferred::{Replay, Value};
use crate::onnx::names::module;
use crate::onnx::node::Node;
use crate::onnx::numbers::size;
use crate::onnx::view::View;
use crate::{Dropout, LayerId, LayerKind, Linear, Recurrence, RecurrentCell};

/// Adds the layers of an `LSTM` or a `GRU` node, those of `torch.nn.LSTM` and `torch.nn.GRU`. Its
/// state is zero before the first position, and only its outputs are read.
pub(super) fn add<'a>(
    builder: &mut Builder<'a>,
    node: Node<'a>,
    cell: RecurrentCell,
) -> Result<(), OnnxError> {
    let directions: &[bool] = match node.text("direction", "forward")? {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return Err(node.invalid(format!("`direction` is `{other}`"))),
    };
    check_options(builder, node, cell, directions.len())?;
    let is_batch_first = match node.int("layout", 0)? {
        0 => false,
        1 => true,
        other => return Err(node.invalid(format!("`layout` is {other}"))),
    };
    let input = if is_batch_first {
        builder.layer(node, node.input(0)?)?
    } else {
        builder.layer_of_second_batch(node, node.input(0)?)?
    };
    let shape = builder.shape(input);
    let (_, features) =
        shape.as_sequence().ok_or_else(|| node.invalid(format!("its sample is {shape}, no sequence")))?;
    let width = size(node.int("hidden_size", 0)?).filter(|&width| width > 0);
    let width = width.ok_or_else(|| node.invalid("it has no `hidden_size`"))?;
    let gates = cell.gates().saturating_mul(width);
    let count = directions.len();
    let of_input = parameters(builder, node, 1, count, [1, gates.saturating_mul(features)])?;
    let of_state = parameters(builder, node, 2, count, [1, gates.saturating_mul(width)])?;
    let biases = biases(builder, node, count, gates)?;
    let names = Names::of(builder, node, directions, &of_input);

    let mut ends = Vec::with_capacity(directions.len());
    for (direction, &reversed) in directions.iter().enumerate() {
        let [name_of_input, name_of_state] = names.of_direction(reversed);
        let [bias_of_input, bias_of_state] = match &biases {
            Some(biases) => biases[direction].clone().map(Some),
            None => [None, None],
        };
        let bias = biases.is_some();
        let kind = Linear { out_features: gates, bias };
        let parameters = Parameters { weight: of_input[direction].clone(), bias: bias_of_input };
        let linear = builder.add_weighted_named(node, &name_of_input, kind, input, parameters)?;
        let kind = Recurrence { cell, bias, reversed };
        let parameters = Parameters { weight: of_state[direction].clone(), bias: bias_of_state };
        ends.push(builder.add_weighted_named(node, &name_of_state, kind, linear, parameters)?);
    }
    let last = match ends[..] {
        [only] => only,
        _ => builder.add_named(node, &names.of_part("concat"), LayerKind::Concat, &ends)?,
    };
    let output = node.outputs_in_order().next().filter(|name| !name.is_empty());
    let output = output.ok_or_else(|| node.unsupported(ONLY_OUTPUTS))?;
    let view = View::new(last, builder.shape(last), builder.batch_size());
    let sizes = [0, 0, directions.len(), width].map(|size| i64::try_from(size).unwrap_or(i64::MAX));
    let view = view.reshape(&sizes, builder.batch_size());
    let view = if is_batch_first { view } else { view.and_then(|view| view.permute(&[1, 2, 0, 3])) };
    let view = view.ok_or_else(|| node.invalid("its output has no dimension of directions"))?;
    let problem = "its directions are not joined to one dimension of features, after the batch".to_owned();
    builder.defer(output, node, Value::View(view), Replay::None(problem))
}

/// Error for uses of other results than the outputs.
const ONLY_OUTPUTS: &str = "only its outputs have a layer, not its last state";

/// Checks what has no layer: other functions, states and lengths.
fn check_options<'a>(
    builder: &Builder<'a>,
    node: Node<'a>,
    cell: RecurrentCell,
    directions: usize,
) -> Result<(), OnnxError> {
    if cell == RecurrentCell::Gru && node.int("linear_before_reset", 0)? != 1 {
        return Err(node.unsupported("only with `linear_before_reset` = 1, as PyTorch's"));
    }
    if node.int("input_forget", 0)? != 0 || node.attribute("clip").is_some() {
        return Err(node.unsupported("coupled gates, or limits of their inputs"));
    }
    let usual = match cell {
        RecurrentCell::Lstm => &["Sigmoid", "Tanh", "Tanh"][..],
        RecurrentCell::Gru => &["Sigmoid", "Tanh"],
    };
    let given: Vec<&[u8]> = node.texts("activations");
    let expected = usual.iter().cycle().take(usual.len() * directions);
    if !given.is_empty() && !expected.map(|name| name.as_bytes()).eq(given) {
        return Err(node.unsupported(format!("other activations than {}", usual.join(", "))));
    }
    let has_peepholes = cell == RecurrentCell::Lstm && node.optional_input(7).is_some();
    if node.optional_input(4).is_some() || has_peepholes {
        return Err(node.unsupported("lengths of sequences, or weights of the memory in gates"));
    }
    let is_zero = |value: &str| {
        builder.table(value).is_some_and(|table| table.values.iter().all(|&number| number == 0.0))
    };
    let mut states = [5, 6].into_iter().filter_map(|input| node.optional_input(input));
    if let Some(state) = states.find(|state| !is_zero(state)) {
        return Err(node.unsupported(format!("its first state `{state}` is not zero")));
    }
    if node.outputs_in_order().skip(1).any(|state| builder.is_read(state)) {
        return Err(node.unsupported(ONLY_OUTPUTS));
    }
    Ok(())
}

/// Returns the tensors that a constant joins: their names, or its own if it joins none.
fn parts(constant: &Constant) -> &[String] {
    if constant.parts.is_empty() { std::slice::from_ref(&constant.source.origin) } else { &constant.parts }
}

/// Returns the parts of the parameter that is the input at a position: `each` for a direction,
/// which have `elements` elements together.
fn parameters<'a>(
    builder: &Builder<'a>,
    node: Node<'a>,
    position: usize,
    directions: usize,
    [each, elements]: [usize; 2],
) -> Result<Vec<Source>, OnnxError> {
    let names = parts(builder.parameter(node, position)?);
    let stored = names.iter().map(|name| builder.constant(name));
    let count = |constant: &Constant| constant.dims.iter().copied().fold(1, usize::saturating_mul);
    let stored =
        stored.map(|part| part.map(count)).try_fold(0usize, |all, part| Some(all.saturating_add(part?)));
    if stored.is_some_and(|stored| stored != elements.saturating_mul(directions)) {
        return Err(node.invalid(format!(
            "its {} `{}` has not {elements} elements for each direction",
            if position == 3 { "bias" } else { "weight" },
            node.input(position)?
        )));
    }
    Ok(sources(names, each * directions))
}

/// Returns the biases of the input and of the state for each direction, if the node has biases.
fn biases<'a>(
    builder: &Builder<'a>,
    node: Node<'a>,
    directions: usize,
    gates: usize,
) -> Result<Option<Vec<[Source; 2]>>, OnnxError> {
    if node.optional_input(3).is_none() {
        return Ok(None);
    }
    let sources = parameters(builder, node, 3, directions, [2, gates.saturating_mul(2)])?;
    Ok(Some(sources.chunks(2).map(|pair| [pair[0].clone(), pair[1].clone()]).collect()))
}

/// Returns the source of each of `count` parts of a constant that joins the tensors of these names.
fn sources(names: &[String], count: usize) -> Vec<Source> {
    let of_part = |part: usize| match names {
        _ if names.len() == count => Source::of(names[part].clone()),
        _ => Source::of(format!("{}, part {part}", names.join(", "))),
    };
    (0..count).map(of_part).collect()
}

/// Names of the layers of a level of a module, such as `lstm.ih_l0`.
struct Names {
    /// Name of the module, with a dot, or empty.
    module: String,
    level: String,
}

impl Names {
    /// Returns the names by PyTorch's name of the first weight, such as `lstm.weight_ih_l0`, or
    /// else by the module of the node, with the first level without layers.
    fn of<'a>(builder: &Builder<'a>, node: Node<'a>, directions: &[bool], weights: &[Source]) -> Self {
        let of_weight = weights.first().and_then(|weight| {
            let (module, name) = split(&weight.origin);
            let level = name.strip_prefix("weight_ih_l")?;
            let level = level.strip_suffix("_reverse").unwrap_or(level);
            level.parse::<usize>().ok()?;
            Some(Self { module: module.to_owned(), level: level.to_owned() })
        });
        of_weight.unwrap_or_else(|| {
            let module = module(node).map(|module| format!("{module}."));
            let names =
                |level: usize| Self { module: module.clone().unwrap_or_default(), level: level.to_string() };
            let is_free = |names: &Self| {
                let names = directions.iter().flat_map(|&reversed| names.of_direction(reversed));
                names.map(|name| builder.network.find(&name)).all(|layer| layer.is_none())
            };
            (0..builder.network.len()).map(names).find(is_free).unwrap_or_else(|| names(0))
        })
    }

    /// Returns the name of the layer of this part.
    fn of_part(&self, part: &str) -> String {
        format!("{}{part}_l{}", self.module, self.level)
    }

    /// Returns the names of the linear layer and of the recurrence of a direction.
    fn of_direction(&self, reversed: bool) -> [String; 2] {
        ["ih", "hh"].map(|part| self.of_part(part) + if reversed { "_reverse" } else { "" })
    }
}

/// Splits a name after its last dot.
fn split(name: &str) -> (&str, &str) {
    name.split_at(name.rfind('.').map_or(0, |dot| dot + 1))
}

/// Adds the layer of a dropout between two levels of a module, and defines the output of its node.
/// Returns whether the node is one: it is in the module of a recurrence, whose output it drops.
pub(super) fn dropout<'a>(builder: &mut Builder<'a>, node: Node<'a>, ratio: f64) -> Result<bool, OnnxError> {
    let Some(Value::View(view)) = builder.deferred(node.input(0)?).cloned().or_else(|| {
        let layer = builder.known_layer(node.input(0).ok()?)?;
        Some(Value::View(View::new(layer, builder.shape(layer), builder.batch_size())))
    }) else {
        return Ok(false);
    };
    let Some(name) = dropout_name(builder, node, view.base) else { return Ok(false) };
    if !view.is_permutation(builder.shape(view.base)) {
        return Ok(false);
    }
    let layer = builder.add_named(node, &name, Dropout::new(ratio), &[view.base])?;
    let problem = "elements of a batch that is not the first dimension".to_owned();
    builder.defer(node.output()?, node, Value::View(View { base: layer, ..view }), Replay::None(problem))?;
    Ok(true)
}

/// Returns the name of a dropout after the last layer of a level of a module.
fn dropout_name<'a>(builder: &Builder<'a>, node: Node<'a>, last: LayerId) -> Option<String> {
    let (path, name) = split(builder.network.layer(last).name());
    let level = name.strip_prefix("hh_l").or_else(|| name.strip_prefix("concat_l"))?;
    let is_inside = module(node)? == path.strip_suffix('.').unwrap_or(path);
    is_inside.then(|| format!("{path}dropout_l{level}"))
}
