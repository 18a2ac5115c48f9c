//! Translation of the operators of `ATen` to those of ONNX, from which the importer builds layers.

use serde_json::Value;

use super::graph::{Attribute, Builder};
use super::schema::{Graph, Node, Size, TensorMeta};
use crate::onnx::dims::BATCH_SIZE;
use crate::onnx::proto::data_type;
use crate::onnx::supported::ADAPTIVE_AVERAGE_POOL;
use Attribute::{Float, Int, Ints, Text};

/// Largest integer in single steps of a range.
const MAX_RANGE: i64 = 1 << 22;

/// Result of translating a node.
pub(super) enum Translated {
    /// The node is a part of the graph, or has no effect on it.
    Done,
    /// The operator has no translation.
    Unsupported,
}

/// Call of an operator with its arguments by name.
pub(super) struct Call<'p> {
    pub(super) node: &'p Node,
    pub(super) graph: &'p Graph,
    /// Names of values in the graph that is built, by those in the program.
    pub(super) names: &'p std::collections::HashMap<String, String>,
}

impl<'p> Call<'p> {
    fn argument(&self, name: &str) -> Option<(&'p str, &'p Value)> {
        let argument = self.node.inputs.iter().find(|argument| argument.name == name)?;
        let (kind, value) = argument.arg.as_object()?.iter().next()?;
        Some((kind, value))
    }

    /// Returns the name in the program of a tensor argument.
    fn original(&self, name: &str) -> Option<&'p str> {
        match self.argument(name)? {
            ("as_tensor", value) => value.get("name")?.as_str(),
            ("as_optional_tensor", value) => value.get("as_tensor")?.get("name")?.as_str(),
            _ => None,
        }
    }

    /// Returns the name of a value in the graph that is built.
    fn renamed(&self, name: &str) -> String {
        self.names.get(name).map_or(name, String::as_str).to_owned()
    }

    fn tensor(&self, name: &str) -> Result<String, String> {
        self.optional_tensor(name).ok_or_else(|| format!("its argument `{name}` is no tensor"))
    }

    fn optional_tensor(&self, name: &str) -> Option<String> {
        self.original(name).map(|name| self.renamed(name))
    }

    fn tensors(&self, name: &str) -> Result<Vec<String>, String> {
        let problem = || format!("its argument `{name}` is no list of tensors");
        let (_, list) = self.argument(name).ok_or_else(problem)?;
        let name_of = |tensor: &Value| {
            let tensor = tensor.get("as_tensor").unwrap_or(tensor);
            tensor.get("name").and_then(Value::as_str).map(|name| self.renamed(name))
        };
        list.as_array().and_then(|list| list.iter().map(name_of).collect()).ok_or_else(problem)
    }

    /// Returns the type and shape of a tensor argument.
    fn meta(&self, name: &str) -> Result<&'p TensorMeta, String> {
        let meta = self.original(name).and_then(|name| self.graph.tensor_values.get(name));
        meta.ok_or_else(|| format!("its argument `{name}` is no tensor of known shape"))
    }

    fn rank(&self, name: &str) -> Result<i64, String> {
        Ok(i64::try_from(self.meta(name)?.sizes.len()).unwrap_or(i64::MAX))
    }

    /// Returns a dimension as a position from the front.
    fn dim(&self, name: &str, default: i64, of: &str) -> Result<i64, String> {
        let (dim, rank) = (self.int(name, default)?, self.rank(of)?);
        let dim = if dim < 0 { dim.saturating_add(rank) } else { dim };
        (0..rank.max(1)).contains(&dim).then_some(dim).ok_or_else(|| format!("dimension {dim} of {rank}"))
    }

    /// Returns an integer; [`BATCH_SIZE`] for that of an open batch.
    fn integer(&self, value: &Value) -> Option<i64> {
        match value {
            Value::Number(number) => number.as_i64(),
            Value::Object(fields) => {
                let (kind, value) = fields.iter().next()?;
                match kind.as_str() {
                    "as_int" => value.as_i64(),
                    "as_name" => size(self.graph.sym_int_values.get(value.as_str()?)?),
                    _ => self.integer(value),
                }
            }
            _ => None,
        }
    }

    fn int(&self, name: &str, default: i64) -> Result<i64, String> {
        let Some((kind, value)) = self.argument(name).filter(|(kind, _)| *kind != "as_none") else {
            return Ok(default);
        };
        let integer = if kind == "as_bool" { value.as_bool().map(i64::from) } else { self.integer(value) };
        integer.ok_or_else(|| format!("its argument `{name}` is no known integer"))
    }

    fn bool(&self, name: &str, default: bool) -> bool {
        self.argument(name).and_then(|(_, value)| value.as_bool()).unwrap_or(default)
    }

    /// Returns a number. Those that are not finite are strings.
    fn float(&self, name: &str) -> Option<f64> {
        match self.argument(name)? {
            ("as_float" | "as_int", Value::Number(number)) => number.as_f64(),
            ("as_float", Value::String(text)) => match text.as_str() {
                "Infinity" => Some(f64::INFINITY),
                "-Infinity" => Some(f64::NEG_INFINITY),
                _ => None,
            },
            ("as_bool", value) => value.as_bool().map(|value| f64::from(u8::from(value))),
            _ => None,
        }
    }

    fn ints(&self, name: &str) -> Option<Vec<i64>> {
        let (_, list) = self.argument(name)?;
        list.as_array()?.iter().map(|value| self.integer(value)).collect()
    }

    /// Returns two sizes, of which one stands for both.
    fn pair(&self, name: &str, default: [i64; 2]) -> Result<[i64; 2], String> {
        match self.ints(name).as_deref() {
            None | Some([]) if self.argument(name).is_none_or(|(kind, _)| kind != "as_string") => Ok(default),
            Some(&[both]) => Ok([both; 2]),
            Some(&[height, width]) => Ok([height, width]),
            _ => Err(format!("its argument `{name}` is not for images")),
        }
    }

    /// Returns a tensor, or a constant of a number.
    fn operand(&self, builder: &mut Builder, name: &str, like: &str) -> Result<String, String> {
        if let Some(tensor) = self.optional_tensor(name) {
            return Ok(tensor);
        }
        let is_integer = self.meta(like).is_ok_and(|meta| !is_float(meta.dtype));
        if is_integer && matches!(self.argument(name), Some(("as_int" | "as_sym_int" | "as_bool", _))) {
            return Ok(builder.int(self.int(name, 0)?));
        }
        let number = self.float(name).ok_or_else(|| format!("its argument `{name}` is no number"))?;
        Ok(builder.float(number))
    }

    /// Returns the names of the outputs in the program.
    pub(super) fn outputs(&self) -> Vec<String> {
        let mut names = Vec::new();
        for output in &self.node.outputs {
            let Some((_, value)) = output.as_object().and_then(|fields| fields.iter().next()) else {
                continue;
            };
            let list = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            for tensor in list {
                let name = tensor.get("name").or_else(|| tensor.get("as_name")).and_then(Value::as_str);
                names.push(name.unwrap_or_default().to_owned());
            }
        }
        names
    }

    /// Returns the sizes of the first output: [`BATCH_SIZE`] for that of an open batch, and -1 for
    /// those computed from it.
    fn output_sizes(&self) -> Result<Vec<i64>, String> {
        let outputs = self.outputs();
        let meta = outputs.first().and_then(|name| self.graph.tensor_values.get(name));
        let meta = meta.ok_or("its output has no known shape")?;
        Ok(meta.sizes.iter().map(|dim| size(dim).unwrap_or(-1)).collect())
    }

    /// Returns the tensor that the operator changes in place, by its name in the program.
    pub(super) fn changed(&self) -> Option<&'p str> {
        let operator = self.node.target.strip_prefix("torch.ops.aten.")?.split('.').next()?;
        let is_in_place = operator.ends_with('_') && !operator.starts_with('_') && !operator.ends_with("__");
        is_in_place.then(|| self.original("self").or_else(|| self.original("input")))?
    }
}

/// Returns a size; [`BATCH_SIZE`] for a symbol, and `None` for another expression.
fn size(size: &Size) -> Option<i64> {
    size.known().or_else(|| size.is_symbol().then_some(BATCH_SIZE))
}

fn is_float(dtype: i32) -> bool {
    matches!(dtype, 6..=8 | 13)
}

/// Returns ONNX's number of a data type of the program. Those of other types are not read.
pub(super) fn data_type_of(dtype: i32) -> i32 {
    match dtype {
        4 => data_type::INT32,
        5 => data_type::INT64,
        6 => 10,
        7 => data_type::FLOAT,
        8 => data_type::DOUBLE,
        12 => data_type::BOOL,
        13 => 16,
        _ => 0,
    }
}

/// Adds the nodes of a call to the graph that is built.
///
/// # Errors
/// A description of the problem if the call is not as its operator defines it, or has no
/// translation.
#[expect(clippy::too_many_lines, reason = "one arm for each operator")]
pub(super) fn translate(call: &Call<'_>, builder: &mut Builder) -> Result<Translated, String> {
    let outputs = call.outputs();
    let operator = call.node.target.strip_prefix("torch.ops.aten.");
    let Some(operator) = operator.and_then(|operator| operator.split('.').next()) else {
        // Arithmetic of sizes, whose results the shapes of tensors have.
        let is_of_sizes = outputs.iter().all(|name| !call.graph.tensor_values.contains_key(name));
        return Ok(if is_of_sizes { Translated::Done } else { Translated::Unsupported });
    };
    let Some(output) = outputs.first().filter(|name| call.graph.tensor_values.contains_key(*name)) else {
        return Ok(Translated::Done);
    };
    let plain = operator.strip_suffix('_').filter(|_| call.changed().is_some()).unwrap_or(operator);
    match plain {
        "conv1d" | "conv2d" | "convolution" | "conv_transpose2d" => {
            convolution(call, builder, plain, output)?;
        }
        "upsample_nearest2d" | "_upsample_nearest_exact2d" => upsampling(call, builder, output)?,
        "linear" => {
            let (input, weight) = (call.tensor("input")?, call.tensor("weight")?);
            let bias = call.optional_tensor("bias");
            let inputs: Vec<&str> = [&*input, &*weight].into_iter().chain(bias.as_deref()).collect();
            builder.node("Gemm", &inputs, output, &[Int("transB", 1)]);
        }
        "addmm" => {
            let [bias, left, right] = [call.tensor("self")?, call.tensor("mat1")?, call.tensor("mat2")?];
            builder.node("Gemm", &[&left, &right, &bias], output, &[]);
        }
        "mm" | "bmm" => builder.node("MatMul", &[&call.tensor("self")?, &call.tensor("mat2")?], output, &[]),
        "matmul" => builder.node("MatMul", &[&call.tensor("self")?, &call.tensor("other")?], output, &[]),
        "batch_norm" => {
            let inputs = ["input", "weight", "bias", "running_mean", "running_var"];
            let inputs = inputs.map(|name| call.optional_tensor(name).unwrap_or_default());
            let momentum = 1.0 - call.float("momentum").unwrap_or(0.1);
            let attributes = [
                Float("epsilon", call.float("eps").unwrap_or(1e-5)),
                Float("momentum", momentum),
                Int("training_mode", call.bool("training", false).into()),
            ];
            builder.node("BatchNormalization", &inputs.each_ref().map(String::as_str), output, &attributes);
        }
        "layer_norm" | "rms_norm" => {
            if call.ints("normalized_shape").is_none_or(|shape| shape.len() != 1) {
                return Err("it normalises more than the last dimension".into());
            }
            let inputs =
                ["input", "weight", "bias"].map(|name| call.optional_tensor(name).unwrap_or_default());
            let inputs = inputs.each_ref().map(String::as_str);
            let (is_layer, epsilon) = (plain == "layer_norm", call.float("eps"));
            let default = if is_layer { 1e-5 } else { f64::from(f32::EPSILON) };
            let attributes = [Int("axis", -1), Float("epsilon", epsilon.unwrap_or(default))];
            let (name, count) = if is_layer { ("LayerNormalization", 3) } else { ("RMSNormalization", 2) };
            builder.node(name, &inputs[..count], output, &attributes);
        }
        "group_norm" | "instance_norm" => {
            if !call.bool("use_input_stats", true) || call.optional_tensor("running_mean").is_some() {
                return Err("its running statistics have no layer".into());
            }
            let inputs = ["input", "weight", "bias"];
            let inputs = inputs.map(|name| call.optional_tensor(name).unwrap_or_default());
            let inputs = inputs.each_ref().map(String::as_str);
            let epsilon = Float("epsilon", call.float("eps").unwrap_or(1e-5));
            if plain == "group_norm" {
                let groups = Int("num_groups", call.int("num_groups", 0)?);
                builder.node("GroupNormalization", &inputs, output, &[groups, epsilon]);
            } else {
                builder.node("InstanceNormalization", &inputs, output, &[epsilon]);
            }
        }
        "relu" | "sigmoid" | "tanh" | "silu" | "hardswish" | "neg" | "sqrt" | "exp" | "abs" | "log"
        | "cos" | "sin" | "erf" | "floor" | "reciprocal" | "logical_not" | "bitwise_not" => {
            let name = match plain {
                "relu" => "Relu",
                "sigmoid" => "Sigmoid",
                "tanh" => "Tanh",
                "silu" => "Swish",
                "hardswish" => "HardSwish",
                "neg" => "Neg",
                "sqrt" => "Sqrt",
                "exp" => "Exp",
                "abs" => "Abs",
                "log" => "Log",
                "cos" => "Cos",
                "sin" => "Sin",
                "erf" => "Erf",
                "floor" => "Floor",
                "reciprocal" => "Reciprocal",
                _ => "Not",
            };
            builder.node(name, &[&call.tensor("self")?], output, &[]);
        }
        "gelu" => {
            let approximate = call.argument("approximate").and_then(|(_, value)| value.as_str());
            let attributes = [Text("approximate", approximate.unwrap_or("none"))];
            builder.node("Gelu", &[&call.tensor("self")?], output, &attributes);
        }
        "leaky_relu" => {
            let slope = call.float("negative_slope").unwrap_or(0.01);
            builder.node("LeakyRelu", &[&call.tensor("self")?], output, &[Float("alpha", slope)]);
        }
        "hardsigmoid" => {
            builder.node("HardSigmoid", &[&call.tensor("self")?], output, &[Float("alpha", 1.0 / 6.0)]);
        }
        "relu6" | "hardtanh" | "clamp" | "clamp_min" => {
            let (low, high) = match plain {
                "relu6" => (0.0, 6.0),
                "hardtanh" => (call.float("min_val").unwrap_or(-1.0), call.float("max_val").unwrap_or(1.0)),
                _ => (
                    call.float("min").unwrap_or(f64::NEG_INFINITY),
                    call.float("max").unwrap_or(f64::INFINITY),
                ),
            };
            let limits = [builder.float(low), builder.float(high)];
            builder.node("Clip", &[&call.tensor("self")?, &limits[0], &limits[1]], output, &[]);
        }
        "rsqrt" => {
            let root = builder.inner("Sqrt", &[&call.tensor("self")?], &[]);
            builder.node("Reciprocal", &[&root], output, &[]);
        }
        "softmax" | "_softmax" | "_safe_softmax" | "log_softmax" | "_log_softmax" => {
            let name = if plain.contains("log") { "LogSoftmax" } else { "Softmax" };
            builder.node(
                name,
                &[&call.tensor("self")?],
                output,
                &[Int("axis", call.dim("dim", -1, "self")?)],
            );
        }
        "pad" | "constant_pad_nd" => {
            let sides = call.ints("pad").ok_or("its padding is not known")?;
            let mode = call.argument("mode").and_then(|(_, mode)| mode.as_str()).unwrap_or("constant");
            // Pairs of sides, from the innermost dimension on.
            let axes = (1..=sides.len() / 2).map(|axis| -i64::try_from(axis).unwrap_or(i64::MAX));
            let of_side = |side: usize| sides.iter().copied().skip(side).step_by(2);
            let pads = builder.list(&of_side(0).chain(of_side(1)).collect::<Vec<_>>());
            let axes = builder.list(&axes.collect::<Vec<_>>());
            let value = builder.float(call.float("value").unwrap_or(0.0));
            builder.node(
                "Pad",
                &[&call.tensor("self")?, &pads, &value, &axes],
                output,
                &[Text("mode", mode)],
            );
        }
        "max_pool2d" | "avg_pool2d" => pool(call, builder, plain, output)?,
        "adaptive_avg_pool2d" => {
            let input = call.tensor("self")?;
            match call.pair("output_size", [0, 0])? {
                [1, 1] => builder.node("GlobalAveragePool", &[&input], output, &[]),
                size => builder.node(ADAPTIVE_AVERAGE_POOL, &[&input], output, &[Ints("output_size", &size)]),
            }
        }
        "mean" => {
            let axes = builder.list(&call.ints("dim").ok_or("it is a mean of all dimensions")?);
            let keeps = Int("keepdims", call.bool("keepdim", false).into());
            builder.node("ReduceMean", &[&call.tensor("self")?, &axes], output, &[keeps]);
        }
        // Without those of packed sequences, which have no argument of this name.
        "lstm" | "gru" if call.argument("input").is_some() => {
            recurrence(call, builder, plain, &outputs)?;
        }
        "dropout" => {
            let (ratio, mode) = (builder.float(call.float("p").unwrap_or(0.5)), call.bool("train", false));
            let mode = builder.boolean(mode);
            let input = call.tensor("input").or_else(|_| call.tensor("self"))?;
            builder.node("Dropout", &[&input, &ratio, &mode], output, &[]);
        }
        "bernoulli" => {
            let random = builder.inner("RandomUniformLike", &[&call.tensor("self")?], &[]);
            let probability = builder.float(call.float("p").ok_or("its probability is no number")?);
            builder.node("Less", &[&random, &probability], output, &[]);
        }
        "view" | "reshape" | "_unsafe_view" | "flatten" | "unflatten" => {
            let shape = builder.list(&call.output_sizes()?);
            builder.node("Reshape", &[&call.tensor("self")?, &shape], output, &[]);
        }
        "expand" | "expand_as" => {
            let shape = builder.list(&call.output_sizes()?);
            builder.node("Expand", &[&call.tensor("self")?, &shape], output, &[]);
        }
        "squeeze" | "unsqueeze" => {
            let dims = match call.argument("dim") {
                Some(("as_ints", _)) => call.ints("dim").unwrap_or_default(),
                Some(_) => vec![call.int("dim", 0)?],
                None => return Err("it removes all dimensions of 1".into()),
            };
            let axes = builder.list(&dims);
            let name = if plain == "squeeze" { "Squeeze" } else { "Unsqueeze" };
            builder.node(name, &[&call.tensor("self")?, &axes], output, &[]);
        }
        "transpose" | "t" | "permute" => {
            let rank = call.rank("self")?;
            let mut order: Vec<i64> = (0..rank).collect();
            match plain {
                "permute" => order = call.ints("dims").ok_or("its order is not known")?,
                "t" => order.reverse(),
                _ => {
                    let [left, right] = [call.dim("dim0", 0, "self")?, call.dim("dim1", 1, "self")?];
                    order.swap(usize::try_from(left).unwrap_or(0), usize::try_from(right).unwrap_or(0));
                }
            }
            builder.node("Transpose", &[&call.tensor("self")?], output, &[Ints("perm", &order)]);
        }
        "select" => {
            let index = builder.int(call.int("index", 0)?);
            let axis = Int("axis", call.dim("dim", 0, "self")?);
            builder.node("Gather", &[&call.tensor("self")?, &index], output, &[axis]);
        }
        "slice" => {
            let [start, end, step] =
                [call.int("start", 0)?, call.int("end", i64::MAX)?, call.int("step", 1)?];
            // All samples of an open batch.
            let end = if end == BATCH_SIZE { i64::MAX } else { end };
            let dim = call.dim("dim", 0, "self")?;
            let ends = [start, end, dim, step].map(|value| builder.list(&[value]));
            let [start, end, dim, step] = ends.each_ref().map(String::as_str);
            builder.node("Slice", &[&call.tensor("self")?, start, end, dim, step], output, &[]);
        }
        "cat" => {
            let inputs = call.tensors("tensors")?;
            let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
            let dim = call.int("dim", 0)?;
            builder.node("Concat", &inputs, output, &[Int("axis", dim)]);
        }
        "chunk" | "split" | "split_with_sizes" => {
            let dim = call.dim("dim", 0, "self")?;
            let along = usize::try_from(dim).unwrap_or(0);
            let length = |name: &String| {
                size(call.graph.tensor_values.get(name)?.sizes.get(along)?).filter(|&size| size >= 0)
            };
            let lengths = outputs.iter().map(length).collect::<Option<Vec<_>>>();
            let lengths = builder.list(&lengths.ok_or("its parts have no known lengths")?);
            builder.node_of("Split", &[&call.tensor("self")?, &lengths], &outputs, &[Int("axis", dim)]);
        }
        "unbind" => {
            let (input, axis) = (call.tensor("self")?, call.dim("dim", 0, "self")?);
            for (index, output) in (0..).zip(&outputs) {
                let index = builder.int(index);
                builder.node("Gather", &[&input, &index], output, &[Int("axis", axis)]);
            }
        }
        "contiguous" | "clone" | "detach" | "alias" | "lift_fresh_copy" | "to" | "_to_copy" | "type_as"
        | "float" => {
            let (input, from) = (call.tensor("self")?, call.meta("self")?.dtype);
            let to = call.graph.tensor_values.get(output).map_or(from, |meta| meta.dtype);
            if from == to || is_float(from) && is_float(to) {
                builder.node("Identity", &[&input], output, &[]);
            } else {
                builder.node("Cast", &[&input], output, &[Int("to", data_type_of(to).into())]);
            }
        }
        "embedding" => {
            let padding = Int("padding", call.int("padding_idx", -1)?);
            let inputs = [call.tensor("weight")?, call.tensor("indices")?];
            builder.node("Gather", &[&inputs[0], &inputs[1]], output, &[padding]);
        }
        "scaled_dot_product_attention" => {
            let inputs = ["query", "key", "value", "attn_mask"];
            let inputs = inputs.map(|name| call.optional_tensor(name).unwrap_or_default());
            let mut attributes = vec![Int("is_causal", call.bool("is_causal", false).into())];
            attributes.extend(call.float("dropout_p").map(|dropout| Float("dropout", dropout)));
            attributes.extend(call.float("scale").map(|scale| Float("scale", scale)));
            builder.node("Attention", &inputs.each_ref().map(String::as_str), output, &attributes);
        }
        _ => return elements(call, builder, plain, output),
    }
    Ok(Translated::Done)
}

/// Translates arithmetic, comparisons and operators that create tensors.
#[expect(clippy::too_many_lines, reason = "one arm for each operator")]
fn elements(
    call: &Call<'_>,
    builder: &mut Builder,
    operator: &str,
    output: &str,
) -> Result<Translated, String> {
    match operator {
        "add" | "sub" | "mul" | "div" | "pow" | "eq" | "ne" | "lt" | "le" | "gt" | "ge" | "__and__"
        | "bitwise_and" | "logical_and" | "__or__" | "bitwise_or" | "logical_or" | "maximum" | "minimum" => {
            let factor = call.float("alpha").unwrap_or(1.0);
            if (factor - 1.0).abs() > 0.0
                || call.argument("rounding_mode").is_some_and(|(kind, _)| kind != "as_none")
            {
                return Err("it multiplies or rounds its second argument".into());
            }
            let name = match operator {
                "add" => "Add",
                "sub" => "Sub",
                "mul" => "Mul",
                "div" => "Div",
                "pow" => "Pow",
                "eq" | "ne" => "Equal",
                "lt" => "Less",
                "le" => "LessOrEqual",
                "gt" => "Greater",
                "ge" => "GreaterOrEqual",
                "maximum" => "Max",
                "minimum" => "Min",
                "__or__" | "bitwise_or" | "logical_or" => "Or",
                _ => "And",
            };
            let second = if operator == "pow" { "exponent" } else { "other" };
            let inputs = [call.operand(builder, "self", second)?, call.operand(builder, second, "self")?];
            let inputs = inputs.each_ref().map(String::as_str);
            if operator == "ne" {
                let equal = builder.inner(name, &inputs, &[]);
                builder.node("Not", &[&equal], output, &[]);
            } else {
                builder.node(name, &inputs, output, &[]);
            }
        }
        "where" => {
            let inputs = [
                call.tensor("condition")?,
                call.operand(builder, "self", "other")?,
                call.operand(builder, "other", "self")?,
            ];
            builder.node("Where", &inputs.each_ref().map(String::as_str), output, &[]);
        }
        "masked_fill" => {
            let fill = call.operand(builder, "value", "self")?;
            builder.node("Where", &[&call.tensor("mask")?, &fill, &call.tensor("self")?], output, &[]);
        }
        "arange" => {
            let (start, step) = (call.int("start", 0)?, call.int("step", 1)?);
            // Tensors that do not depend on the samples are the same for all of them.
            let end = Some(call.int("end", 0)?).map_or(0, |end| if end == BATCH_SIZE { 1 } else { end });
            if step != 1 || end.saturating_sub(start) > MAX_RANGE {
                return Err("its steps are not 1, or too many".into());
            }
            let values: Vec<i64> = (start..end).collect();
            let values = builder.list(&values);
            let to = call.graph.tensor_values.get(output).map_or(5, |meta| meta.dtype);
            builder.node("Cast", &[&values], output, &[Int("to", data_type_of(to).into())]);
        }
        "ones" | "zeros" | "full" | "empty" | "new_ones" | "new_zeros" | "new_full" | "ones_like"
        | "zeros_like" | "full_like" | "empty_like" | "scalar_tensor" => {
            let value = match operator {
                "ones" | "new_ones" | "ones_like" => 1.0,
                "full" | "new_full" | "full_like" => {
                    call.float("fill_value").ok_or("its value is no number")?
                }
                "scalar_tensor" => call.float("s").ok_or("its value is no number")?,
                _ => 0.0,
            };
            let is_number = call.graph.tensor_values.get(output).is_none_or(|meta| is_float(meta.dtype));
            let value = if is_number { builder.float(value) } else { builder.int(value as i64) };
            let shape = builder.list(&call.output_sizes()?);
            builder.node("Expand", &[&value, &shape], output, &[]);
        }
        "tril" | "triu" => {
            let shift = builder.int(call.int("diagonal", 0)?);
            let upper = Int("upper", i64::from(operator == "triu"));
            builder.node("Trilu", &[&call.tensor("self")?, &shift], output, &[upper]);
        }
        "cumsum" => {
            let axis = builder.int(call.int("dim", 0)?);
            builder.node("CumSum", &[&call.tensor("self")?, &axis], output, &[]);
        }
        "gather" => {
            let axis = Int("axis", call.int("dim", 0)?);
            builder.node("GatherElements", &[&call.tensor("self")?, &call.tensor("index")?], output, &[axis]);
        }
        "diff" => {
            if call.int("n", 1)? != 1 || call.optional_tensor("append").is_some() {
                return Err("only a difference of neighbours".into());
            }
            let (dim, input) = (call.dim("dim", -1, "self")?, call.tensor("self")?);
            let whole = match call.optional_tensor("prepend") {
                Some(first) => builder.inner("Concat", &[&first, &input], &[Int("axis", dim)]),
                None => input,
            };
            let [zero, one, last, end, dim] = [0, 1, -1, i64::MAX, dim].map(|value| builder.list(&[value]));
            let later = builder.inner("Slice", &[&whole, &one, &end, &dim], &[]);
            let earlier = builder.inner("Slice", &[&whole, &zero, &last, &dim], &[]);
            builder.node("Sub", &[&later, &earlier], output, &[]);
        }
        "index" => {
            let (input, indices) = (call.tensor("self")?, call.tensors("indices")?);
            if i64::try_from(indices.len()).ok() != Some(call.rank("self")?) {
                return Err("it does not index all dimensions".into());
            }
            let shape = builder.list(&call.output_sizes()?);
            let last = builder.list(&[-1]);
            let places: Vec<String> = indices
                .iter()
                .map(|index| {
                    let index = builder.inner("Expand", &[index, &shape], &[]);
                    builder.inner("Unsqueeze", &[&index, &last], &[])
                })
                .collect();
            let places: Vec<&str> = places.iter().map(String::as_str).collect();
            let places = builder.inner("Concat", &places, &[Int("axis", -1)]);
            builder.node("GatherND", &[&input, &places], output, &[]);
        }
        _ => return Ok(Translated::Unsupported),
    }
    Ok(Translated::Done)
}

/// Translates a convolution of images or of signals, or a transposed one.
fn convolution(call: &Call<'_>, builder: &mut Builder, plain: &str, output: &str) -> Result<(), String> {
    let is_transposed = plain.contains("transpose") || call.bool("transposed", false);
    let rank = usize::try_from(call.rank("weight")?).unwrap_or_default().saturating_sub(2);
    let sizes = |name: &str, default: i64| match call.ints(name).as_deref() {
        None | Some([]) => Ok(vec![default; rank]),
        Some(&[one]) => Ok(vec![one; rank]),
        Some(sizes) if sizes.len() == rank => Ok(sizes.to_vec()),
        Some(_) => Err(format!("its argument `{name}` is not for images")),
    };
    let inputs = ["input", "weight", "bias"].map(|name| call.optional_tensor(name).unwrap_or_default());
    let inputs = inputs.each_ref().map(String::as_str);
    let (stride, dilation, added) = (sizes("stride", 1)?, sizes("dilation", 1)?, sizes("output_padding", 0)?);
    let groups = call.int("groups", 1)?;
    let mut attributes = vec![Ints("strides", &stride), Ints("dilations", &dilation), Int("group", groups)];
    let pads;
    match call.argument("padding") {
        Some(("as_string", Value::String(text))) if text == "same" => {
            attributes.push(Text("auto_pad", "SAME_UPPER"));
        }
        Some(("as_string", _)) => {}
        _ => {
            pads = sizes("padding", 0)?.repeat(2);
            attributes.push(Ints("pads", &pads));
        }
    }
    if is_transposed {
        attributes.push(Ints("output_padding", &added));
        builder.node("ConvTranspose", &inputs, output, &attributes);
    } else {
        builder.node("Conv", &inputs, output, &attributes);
    }
    Ok(())
}

/// Translates an upsampling to the nearest pixel.
fn upsampling(call: &Call<'_>, builder: &mut Builder, output: &str) -> Result<(), String> {
    let factors = call.argument("scale_factors").and_then(|(_, list)| list.as_array());
    let is_integer = |factor: &Value| factor.as_f64().is_some_and(|factor| factor.fract() == 0.0);
    let has_scale = |name: &str| call.argument(name).is_some_and(|(kind, _)| kind == "as_float");
    if !factors.is_none_or(|factors| factors.iter().all(is_integer))
        || has_scale("scales_h")
        || has_scale("scales_w")
    {
        return Err("its factors are not integers".into());
    }
    let input = call.optional_tensor("input").map_or_else(|| call.tensor("self"), Ok)?;
    let sizes = builder.list(&call.output_sizes()?);
    let attributes = [Text("coordinate_transformation_mode", "asymmetric"), Text("nearest_mode", "floor")];
    builder.node("Resize", &[&input, "", "", &sizes], output, &attributes);
    Ok(())
}

/// Translates a module of several levels of an LSTM or a GRU, with dropouts between them.
fn recurrence(
    call: &Call<'_>,
    builder: &mut Builder,
    operator: &str,
    outputs: &[String],
) -> Result<(), String> {
    let bool_of = |name| usize::from(call.bool(name, false));
    let (directions, each) = (1 + bool_of("bidirectional"), 2 + 2 * bool_of("has_biases"));
    let levels = usize::try_from(call.int("num_layers", 1)?).unwrap_or(0);
    let (mut input, weights) = (call.tensor("input")?, call.tensors("params")?);
    if levels == 0 || levels.checked_mul(directions * each) != Some(weights.len()) {
        return Err(format!("its weights are not those of {levels} layers without a projection"));
    }
    let states =
        if operator == "lstm" { call.tensors("hx")? } else { vec![call.tensor("hx")?, String::new()] };
    let [state, memory] = &states[..] else { return Err("its first state has not two tensors".into()) };
    let batch_first = call.bool("batch_first", false);
    let features = call.output_sizes()?.last().copied().unwrap_or_default();
    let width = features / i64::try_from(directions).unwrap_or(1);
    let attributes = [
        Int("hidden_size", width),
        Text("direction", if directions == 2 { "bidirectional" } else { "forward" }),
        Int("layout", batch_first.into()),
        Int("linear_before_reset", 1),
    ];
    let ratio = call.float("dropout").unwrap_or(0.0);
    for (level, weights) in weights.chunks(directions * each).enumerate() {
        let is_last = level + 1 == levels;
        let of_part = |part: usize| weights.iter().map(String::as_str).skip(part).step_by(each);
        let mut join = |names: Vec<&str>| match names[..] {
            [only] => only.to_owned(),
            _ => builder.inner("Concat", &names, &[Int("axis", 0)]),
        };
        let [of_input, of_state] = [0, 1].map(|part| join(of_part(part).collect()));
        let biases = weights.chunks(each).flat_map(|weights| weights.iter().skip(2)).map(String::as_str);
        let biases: Vec<&str> = biases.collect();
        let biases = if biases.is_empty() { String::new() } else { join(biases) };
        let inputs = [&input, &of_input, &of_state, &biases, "", state, memory].map(|name| name as &str);
        let result = builder.fresh();
        let mut results = vec![result.clone()];
        if is_last {
            results.extend(outputs.iter().skip(1).cloned());
        }
        let operator = if operator == "lstm" { "LSTM" } else { "GRU" };
        builder.node_of(operator, &inputs, &results, &attributes);
        // Positions, directions and samples, in this order, unless the batch is first.
        let result = if batch_first {
            result
        } else {
            builder.inner("Transpose", &[&result], &[Ints("perm", &[0, 2, 1, 3])])
        };
        let shape = builder.list(&[0, 0, -1]);
        if is_last {
            builder.node("Reshape", &[&result, &shape], &outputs[0], &[]);
            break;
        }
        input = builder.inner("Reshape", &[&result, &shape], &[]);
        if ratio > 0.0 {
            let (ratio, mode) = (builder.float(ratio), builder.boolean(call.bool("train", false)));
            input = builder.inner("Dropout", &[&input, &ratio, &mode], &[]);
        }
    }
    Ok(())
}

/// Translates a pooling with a window.
fn pool(call: &Call<'_>, builder: &mut Builder, operator: &str, output: &str) -> Result<(), String> {
    let kernel = call.pair("kernel_size", [0, 0])?;
    let stride = call.pair("stride", kernel)?;
    let [height, width] = call.pair("padding", [0, 0])?;
    let dilation = call.pair("dilation", [1, 1])?;
    if call.argument("divisor_override").is_some_and(|(kind, _)| kind != "as_none") {
        return Err("it divides by a number of its own".into());
    }
    let pads = [height, width, height, width];
    let mut attributes = vec![
        Ints("kernel_shape", &kernel),
        Ints("strides", &stride),
        Ints("pads", &pads),
        Ints("dilations", &dilation),
        Int("ceil_mode", call.bool("ceil_mode", false).into()),
    ];
    let is_max = operator == "max_pool2d";
    if !is_max {
        attributes.push(Int("count_include_pad", call.bool("count_include_pad", true).into()));
    }
    let name = if is_max { "MaxPool" } else { "AveragePool" };
    builder.node(name, &[&call.tensor("self")?], output, &attributes);
    Ok(())
}
