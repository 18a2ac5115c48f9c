//! Values of the file that are not, or not yet, outputs of layers: their meaning, and the layers
//! that compute them.

use super::Builder;
use crate::onnx::OnnxError;
use crate::onnx::constants::signed;
use crate::onnx::deferred::{Deferred, Replay, Value};
use crate::onnx::dims::{BATCH, BATCH_SIZE};
use crate::onnx::function::Function;
use crate::onnx::node::Node;
use crate::onnx::numbers::size;
use crate::onnx::table::Table;
use crate::onnx::view::{Factor, View};
use crate::{LayerId, Shape};

/// Maximum number of deferred values that depend on each other.
const MAX_DEPTH: usize = 64;

impl<'a> Builder<'a> {
    /// Returns the layer that computes `value`, an input of the node. Adds the layer if the value
    /// is deferred.
    ///
    /// # Errors
    /// [`OnnxError::UnsupportedUse`] if the value is a constant, or deferred and without a layer,
    /// and [`OnnxError::UndefinedValue`] if no earlier node computes it.
    pub(in crate::onnx) fn layer(&mut self, node: Node<'a>, value: &str) -> Result<LayerId, OnnxError> {
        if self.constants.contains(value) {
            return Err(node.unsupported(format!("its input `{value}` is a constant")));
        }
        if let Some(&layer) = self.layers.get(value) {
            return Ok(layer);
        }
        let undefined = || OnnxError::UndefinedValue { node: node.name().into(), value: value.into() };
        let (&value, deferred) = self.deferred.get_key_value(value).ok_or_else(undefined)?;
        let Deferred { node, replay, value: meaning, .. } = deferred.clone();
        let kind = match &meaning {
            Value::Function(function) => function.kind().map(|kind| (kind, function.of)),
            _ => None,
        };
        if let Some((kind, of)) = kind {
            let layer = self.add_inner(node, kind, &[of])?;
            self.layers.insert(value, layer);
            return Ok(layer);
        }
        let layer = match replay {
            Replay::None(problem) => return Err(node.unsupported(problem)),
            Replay::Same => self.layer(node, node.input(0)?)?,
            Replay::Kind(kind) => {
                let input = self.layer(node, node.input(0)?)?;
                self.add_inner(node, kind, &[input])?
            }
            Replay::Join(kind) => {
                let inputs =
                    node.inputs().map(|value| self.layer(node, value)).collect::<Result<Vec<_>, _>>()?;
                self.add_inner(node, kind, &inputs)?
            }
        };
        self.layers.insert(value, layer);
        Ok(layer)
    }

    /// Returns the layer that computes `value`, an input of the node, with its first two dimensions
    /// exchanged: the batch is the second dimension of the value.
    ///
    /// # Errors
    /// Those of [`layer`](Self::layer), and [`OnnxError::UnsupportedUse`] if the batch is another
    /// dimension.
    pub(in crate::onnx) fn layer_of_second_batch(
        &mut self,
        node: Node<'a>,
        value: &str,
    ) -> Result<LayerId, OnnxError> {
        let view = self.view(node, value)?;
        if let Some(turned) = view.permute(&[1, 0, 2]).filter(|view| view.is_whole(self.shape(view.base))) {
            return Ok(turned.base);
        }
        // Another rearrangement may be before the exchange.
        match self.deferred.get(value).map(|deferred| deferred.node) {
            Some(last) if last.operator() == "Transpose" && last.ints("perm") == Some(&[1, 0, 2]) => {
                self.layer(last, last.input(0)?)
            }
            _ => {
                Err(node.unsupported(format!("the batch is not the second dimension of its input `{value}`")))
            }
        }
    }

    /// Returns the layer whose output a value is. `None` for other values.
    pub(in crate::onnx) fn known_layer(&self, value: &str) -> Option<LayerId> {
        self.layers.get(value).copied()
    }

    /// Returns whether the value depends on the samples and an earlier node computes it.
    pub(in crate::onnx) fn depends_on_samples(&self, value: &str) -> bool {
        self.layers.contains_key(value) || self.deferred.contains_key(value)
    }

    /// Returns the meaning of a deferred value. `None` for other values.
    pub(in crate::onnx) fn deferred(&self, value: &str) -> Option<&Value> {
        self.deferred.get(value).map(|deferred| &deferred.value)
    }

    /// Returns the view that an input of a node is: the whole output of its layer if it is not
    /// deferred.
    ///
    /// # Errors
    /// Those of [`layer`](Self::layer).
    pub(in crate::onnx) fn view(&mut self, node: Node<'a>, value: &str) -> Result<View, OnnxError> {
        let scaled = match self.deferred(value) {
            Some(Value::View(view)) => return Ok(view.clone()),
            Some(Value::Function(function)) => function.factor().map(|factor| (function.of, factor)),
            _ => None,
        };
        let (layer, scale) = match scaled {
            Some(scaled) => scaled,
            None => (self.layer(node, value)?, 1.0),
        };
        Ok(View { scale, ..View::new(layer, self.shape(layer), self.batch_size()) })
    }

    /// Returns the function that an input of a node is: that of its own elements if it is not
    /// deferred.
    ///
    /// # Errors
    /// Those of [`layer`](Self::layer).
    pub(in crate::onnx) fn function(&mut self, node: Node<'a>, value: &str) -> Result<Function, OnnxError> {
        match self.deferred(value) {
            Some(Value::Function(function)) => Ok(function.clone()),
            _ => Ok(Function::identity(self.layer(node, value)?)),
        }
    }

    /// Returns the values of a constant. `None` if it is none, or its values are not known.
    pub(in crate::onnx) fn table(&self, value: &str) -> Option<Table> {
        self.constants.table(self.constants.get(value)?)
    }

    /// Returns the number that all elements of a constant are, if it has one element.
    pub(in crate::onnx) fn number(&self, value: &str) -> Option<f64> {
        let constant = self.constants.get(value)?;
        let is_one = constant.dims.iter().all(|&dim| dim == 1);
        is_one.then(|| constant.number.or_else(|| self.table(value)?.values.first().copied()))?
    }

    /// Returns whether the value is the output, or a node that the output depends on reads it.
    pub(in crate::onnx) fn is_read(&self, value: &str) -> bool {
        self.is_output(value) || self.readers.contains_key(value)
    }

    /// Returns whether a node of one of the given operators reads the value.
    pub(in crate::onnx) fn is_read_by(&self, value: &str, operators: &[&str]) -> bool {
        let readers = self.readers.get(value).into_iter().flatten();
        readers.map(|&reader| self.nodes[reader].operator()).any(|reader| operators.contains(&&*reader))
    }

    /// Returns the number of samples of the batch in the file, or [`BATCH`] if it is open.
    pub(in crate::onnx) fn batch_size(&self) -> usize {
        self.batch.and_then(size).unwrap_or(BATCH)
    }

    /// Returns the dimensions of a value that depends on the samples. That of the batch is
    /// [`BATCH_SIZE`].
    pub(super) fn dims(&self, value: &str) -> Option<Vec<i64>> {
        let with_batch = |shape: &Shape| {
            let sample = shape.dims().iter().copied().map(signed);
            std::iter::once(BATCH_SIZE).chain(sample).collect()
        };
        let of_view = |view: &View| {
            let dims = view.dims().into_iter().zip(&view.axes);
            let size = |(size, axis): (usize, &Vec<_>)| match axis[..] {
                [factor] if Factor::is_batch(factor) => BATCH_SIZE,
                _ => signed(size),
            };
            dims.map(size).collect::<Vec<_>>()
        };
        match self.deferred(value) {
            Some(Value::View(view) | Value::HalfTurned(view) | Value::Turned { view, .. }) => {
                Some(of_view(view))
            }
            Some(Value::Function(function)) if !function.is_of_row => {
                Some(with_batch(self.shape(function.of)))
            }
            Some(Value::Scores(scores) | Value::Weights(scores) | Value::NotNumbers(scores)) => {
                let mut dims = of_view(&scores.queries);
                if let (Some(last), [.., keys, _]) = (dims.last_mut(), &of_view(&scores.keys)[..]) {
                    *last = *keys;
                }
                Some(dims)
            }
            Some(_) => None,
            None => self.layers.get(value).map(|&layer| with_batch(self.shape(layer))),
        }
    }

    /// Defines a value that becomes a layer together with later ones, or by `replay` where a node
    /// reads it.
    ///
    /// # Errors
    /// Those of [`define`](Self::define), and of [`layer`](Self::layer) if it becomes a layer at
    /// once.
    pub(in crate::onnx) fn defer(
        &mut self,
        name: &'a str,
        node: Node<'a>,
        value: Value,
        replay: Replay,
    ) -> Result<(), OnnxError> {
        if let Value::View(view) = &value {
            if view.is_whole(self.shape(view.base)) {
                return self.define(name, view.base);
            }
            if let Some(dims) = view.sample() {
                self.check_shape(name, &Shape::new(dims))?;
            }
        }
        if self.depends_on_samples(name) || self.constants.contains(name) {
            return Err(OnnxError::not_onnx(format!("two nodes make the value `{name}`")));
        }
        let open = node.inputs().filter(|input| !self.layers.contains_key(input));
        let depth =
            open.filter_map(|input| self.deferred.get(input)).map(|input| input.depth).max().unwrap_or(0) + 1;
        self.deferred.insert(name, Deferred { node, value, replay, depth });
        if depth > MAX_DEPTH {
            self.layer(node, name)?;
        }
        Ok(())
    }

    /// Defines a value that equals another one.
    ///
    /// # Errors
    /// Those of [`define`](Self::define) and [`layer`](Self::layer).
    pub(in crate::onnx) fn define_same(&mut self, node: Node<'a>, value: &str) -> Result<(), OnnxError> {
        if let Some(same) = self.deferred(value).cloned() {
            return self.defer(node.output()?, node, same, Replay::Same);
        }
        let layer = self.layer(node, value)?;
        self.define(node.output()?, layer)
    }
}
