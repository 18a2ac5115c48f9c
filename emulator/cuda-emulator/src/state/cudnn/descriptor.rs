//! Descriptors: their attributes and what finalising checks.

use super::{
    attention::Attention,
    attributes::{Attribute, Kind, Values, attributes},
    convolution::{Operation, Parameters, Tensor},
    engines,
    finalized::{DeviceProperties, Finalized, Plan, VariantPack, Work},
    nodes::{Node, NodeKind, Rule},
    status::{CudnnResult, CudnnStatus},
};
use crate::state::LibraryError;
use std::{collections::BTreeMap, sync::Arc};

/// Maximum number of dimensions of a tensor.
const MAX_DIMENSIONS: usize = 8;

/// Descriptor (`cudnnBackendDescriptor_t`).
pub(crate) struct Descriptor {
    /// Kind.
    pub(crate) kind: Kind,
    values: BTreeMap<u32, Values>,
    /// Contents, once it is finalised.
    pub(crate) finalized: Option<Finalized>,
}

/// Returns an error for an invalid value, which `text` describes.
fn wrong<T>(text: impl Into<String>) -> CudnnResult<T> {
    Err(LibraryError::misuse(CudnnStatus::BAD_PARAM, text))
}

impl Descriptor {
    /// Creates an empty descriptor.
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, values: BTreeMap::new(), finalized: None }
    }

    /// Returns the attribute with the given number. It is an error if the kind has none or if its
    /// values are not of type `kind`.
    pub(crate) fn attribute(&self, name: u32, kind: u32) -> CudnnResult<&'static Attribute> {
        let Some(attribute) = attributes(self.kind).iter().find(|attribute| attribute.name == name) else {
            return wrong(format!("it has no attribute {name}"));
        };
        if attribute.types.contains(&kind) {
            return Ok(attribute);
        }
        let text = format!("attribute {name} has the type {} and not {kind}", attribute.types[0]);
        Err(LibraryError::misuse(CudnnStatus::ATTRIBUTE_TYPE, text))
    }

    /// Sets an attribute. Descriptors are given as copies.
    pub(crate) fn set(&mut self, attribute: &Attribute, values: Values) -> CudnnResult<()> {
        let name = attribute.name;
        if self.finalized.is_some() {
            return wrong(format!("attribute {name} is set after it was finalised"));
        }
        if !attribute.is_input {
            return wrong(format!("attribute {name} can only be read"));
        }
        if !attribute.is_list && values.len() != 1 {
            return wrong(format!("attribute {name} has one value and not {}", values.len()));
        }
        self.values.insert(name, values);
        Ok(())
    }

    /// Returns the values of an attribute. One that was not set is 0 or empty.
    pub(crate) fn get(&self, attribute: &Attribute) -> CudnnResult<Values> {
        let Some(finalized) = &self.finalized else {
            return Err(LibraryError::misuse(CudnnStatus::NOT_INITIALIZED, "it is not finalised"));
        };
        let number = |value: i64| Values::Integers(vec![value]);
        let object = |value: Finalized| Values::Objects(vec![Some(value)]);
        Ok(match (finalized, attribute.name) {
            (Finalized::Graph(work), 802) => number(work.engines()),
            (Finalized::Heuristic(plans), 202) => Values::Objects(
                plans.iter().map(|plan| Some(Finalized::Configuration(plan.clone()))).collect(),
            ),
            (Finalized::Configuration(plan), 300) => object(Finalized::Engine(plan.clone())),
            (Finalized::Plan(plan), 401) => object(Finalized::Configuration(plan.clone())),
            (Finalized::Configuration(plan), 303) | (Finalized::Plan(plan), 402) => {
                number(i64::try_from(plan.workspace()).unwrap_or(i64::MAX))
            }
            (Finalized::Engine(plan), 1301) => number(plan.index),
            (Finalized::Engine(plan), 1303) => Values::Integers(plan.notes()),
            (Finalized::Engine(plan), 1305) => Values::Integers(plan.behavior()),
            (_, name) => match self.values.get(&name) {
                Some(values) => values.clone(),
                None if attribute.is_list || attribute.objects.is_some() => Values::Integers(Vec::new()),
                None => number(0),
            },
        })
    }

    fn integers(&self, name: u32) -> &[i64] {
        match self.values.get(&name) {
            Some(Values::Integers(values)) => values,
            _ => &[],
        }
    }

    /// Returns a number, or `default` if it was not set.
    pub(crate) fn number(&self, name: u32, default: i64) -> i64 {
        self.integers(name).first().copied().unwrap_or(default)
    }

    fn float(&self, name: u32, default: f64) -> f64 {
        match self.values.get(&name) {
            Some(Values::Floats(values)) => values.first().copied().unwrap_or(default),
            _ => default,
        }
    }

    fn object(&self, name: u32) -> Option<&Finalized> {
        match self.values.get(&name) {
            Some(Values::Objects(values)) => values.first().and_then(Option::as_ref),
            _ => None,
        }
    }

    /// Returns the text of an attribute, without a final zero.
    pub(crate) fn text(&self, name: u32) -> Option<String> {
        let Some(Values::Integers(values)) = self.values.get(&name) else { return None };
        let bytes: Vec<u8> = values.iter().map(|value| *value as u8).take_while(|byte| *byte != 0).collect();
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Checks the attributes and makes the contents. `device` is the default device, and the device
    /// of the handle if the descriptor has one.
    pub(crate) fn finalize(&mut self, device: DeviceProperties) -> CudnnResult<()> {
        if self.finalized.is_some() {
            return wrong("it is finalised twice");
        }
        let device = match self.object(match self.kind {
            Kind::Engine => 1307,
            Kind::Heuristic => 204,
            Kind::Plan => 407,
            _ => 0,
        }) {
            Some(Finalized::Device(given)) => *given,
            _ => device,
        };
        self.finalized = Some(match self.kind {
            Kind::Tensor => Finalized::Tensor(Arc::new(self.tensor()?)),
            Kind::Convolution => Finalized::Convolution(Arc::new(self.convolution()?)),
            Kind::Operation(_) => Finalized::Operation(Arc::new(self.operation()?)),
            Kind::Rule(kind) => Finalized::Rule(kind, Arc::new(self.rule(kind)?)),
            Kind::Node(kind) => Finalized::Node(Arc::new(self.node(kind)?)),
            Kind::Graph => Finalized::Graph(self.graph()?),
            Kind::Heuristic => Finalized::Heuristic(Arc::new(self.proposals(device)?)),
            Kind::Engine => Finalized::Engine(self.engine(device)?),
            Kind::Configuration => Finalized::Configuration(self.configuration()?),
            Kind::Plan => Finalized::Plan(self.plan(device)?),
            Kind::VariantPack => Finalized::VariantPack(Arc::new(self.variant_pack()?)),
            Kind::Device => Finalized::Device(device),
        });
        Ok(())
    }

    fn tensor(&self) -> CudnnResult<Tensor> {
        let tensor = Tensor {
            data_type: self.number(901, 0),
            dimensions: self.integers(902).to_vec(),
            strides: self.integers(903).to_vec(),
            id: self.number(906, 0),
            alignment: self.number(900, 0),
            is_virtual: self.number(907, 0) != 0,
            is_number: self.number(908, 0) != 0,
        };
        let Tensor { dimensions, strides, alignment, .. } = &tensor;
        if dimensions.is_empty() || dimensions.len() != strides.len() || dimensions.len() >= MAX_DIMENSIONS {
            return wrong(format!("{} dimensions and {} strides", dimensions.len(), strides.len()));
        }
        if let Some(value) = dimensions.iter().chain(strides).find(|value| **value < 0) {
            return wrong(format!("a dimension or stride of {value}"));
        }
        let bytes = match tensor.data_type {
            0 | 4 => 4,
            1 | 10 => 8,
            2 | 9 => 2,
            3 | 6 | 11 => 1,
            other => return wrong(format!("the data type {other}")),
        };
        if *alignment <= 0 || alignment % bytes != 0 {
            return wrong(format!("an alignment of {alignment} bytes, with elements of {bytes}"));
        }
        let fits = dimensions.iter().zip(strides).try_fold(1_i64, |last, (size, stride)| {
            last.checked_add((size - 1).max(0).checked_mul(*stride)?)
        });
        let elements = dimensions.iter().try_fold(1_i64, |product, size| product.checked_mul(*size));
        if fits.and_then(|last| last.checked_mul(bytes)).is_none() || elements.is_none() {
            return wrong(format!("the dimensions {dimensions:?} and strides {strides:?} overflow"));
        }
        Ok(tensor)
    }

    fn convolution(&self) -> CudnnResult<Parameters> {
        let spatial = usize::try_from(self.number(106, 0)).unwrap_or(0);
        if !(1..MAX_DIMENSIONS).contains(&spatial) {
            return wrong(format!("{spatial} spatial dimensions"));
        }
        let list = |name: u32, what: &str, least: i64, default: Option<i64>| {
            let values = match (self.integers(name), default) {
                ([], Some(value)) => vec![value; spatial],
                (values, _) => values.to_vec(),
            };
            if values.len() != spatial || values.iter().any(|value| *value < least) {
                return wrong(format!("{what} of {values:?} with {spatial} spatial dimensions"));
            }
            Ok(values)
        };
        Ok(Parameters {
            compute_type: self.number(100, 0),
            flipped: self.number(101, 0) == 0,
            before: list(105, "padding", 0, Some(0))?,
            after: list(104, "padding", 0, Some(0))?,
            strides: list(103, "strides", 1, None)?,
            dilations: list(102, "dilations", 1, None)?,
        })
    }

    fn operation(&self) -> CudnnResult<Operation> {
        let names = attributes(self.kind).iter().map(|attribute| attribute.name).collect::<Vec<_>>();
        let (Kind::Operation(pass), [alpha, beta, convolution, x, w, y]) = (self.kind, &names[..]) else {
            return wrong("it is no operation");
        };
        let tensor = |name: u32, what: &str| match self.object(name) {
            Some(Finalized::Tensor(tensor)) => Ok(tensor.clone()),
            _ => wrong(format!("its {what} (attribute {name}) is missing or not finalised")),
        };
        let Some(Finalized::Convolution(parameters)) = self.object(*convolution) else {
            return wrong(format!("its convolution (attribute {convolution}) is missing or not finalised"));
        };
        let operation = Operation {
            pass,
            tensors: [tensor(*x, "input")?, tensor(*w, "filter")?, tensor(*y, "output")?],
            parameters: parameters.clone(),
            alpha: self.float(*alpha, 1.0),
            beta: self.float(*beta, 0.0),
        };
        operation.check()?;
        Ok(operation)
    }

    fn rule(&self, kind: NodeKind) -> CudnnResult<Rule> {
        let (name, default) = match kind {
            NodeKind::Pointwise => (0, Some(0)),
            NodeKind::Reduction => (1600, None),
            NodeKind::Product | NodeKind::Reshape => (1500, Some(0)),
        };
        let mode = match (self.integers(name).first(), default) {
            (Some(mode), _) if matches!(kind, NodeKind::Pointwise | NodeKind::Reduction) => *mode,
            (_, Some(default)) => default,
            (_, None) => return wrong(format!("attribute {name} is missing")),
        };
        Ok(Rule { mode, axis: self.number(9, 0) })
    }

    fn node(&self, kind: NodeKind) -> CudnnResult<Node> {
        let mut mode = 0;
        let mut axis = 0;
        let mut tensors = Vec::new();
        for attribute in attributes(self.kind) {
            match self.object(attribute.name) {
                Some(Finalized::Rule(_, rule)) => (mode, axis) = (rule.mode, rule.axis),
                Some(Finalized::Tensor(tensor)) => tensors.push(tensor.clone()),
                _ if tensors.len() > 1 && kind == NodeKind::Pointwise => {}
                _ => return wrong(format!("attribute {} is missing or not finalised", attribute.name)),
            }
        }
        let output = tensors.remove(0);
        if kind == NodeKind::Pointwise && tensors.len() != Node::inputs_of(mode) {
            return wrong(format!("function {mode} with {} tensors", tensors.len()));
        }
        let node = Node { kind, mode, axis, inputs: tensors, output };
        node.check()?;
        Ok(node)
    }

    fn graph(&self) -> CudnnResult<Work> {
        let operations = match self.values.get(&801) {
            Some(Values::Objects(operations)) => operations.as_slice(),
            _ => &[],
        };
        match operations {
            [Some(Finalized::Operation(operation))] => {
                Ok(Work::Convolution(operation.clone(), operation.problem().map(Arc::new)))
            }
            [] => wrong("it has no operations"),
            _ if operations.iter().any(Option::is_none) => wrong("an operation is not finalised"),
            _ => {
                let node = |operation: &Option<Finalized>| match operation {
                    Some(Finalized::Node(node)) => Some(node.clone()),
                    _ => None,
                };
                let nodes: Option<Vec<_>> = operations.iter().map(node).collect();
                let attention = nodes.and_then(Attention::recognize);
                attention.map(|attention| Work::Attention(Arc::new(attention))).ok_or_else(|| {
                    let text = "it has operations that are no attention, which are not emulated";
                    LibraryError::misuse(CudnnStatus::GRAPH_PATTERN, text)
                })
            }
        }
    }

    /// Returns the computation of the graph in an attribute.
    fn graph_of(&self, name: u32) -> CudnnResult<Work> {
        match self.object(name) {
            Some(Finalized::Graph(work)) => Ok(work.clone()),
            _ => wrong("its operation graph is missing or not finalised"),
        }
    }

    /// Returns the target number of multiprocessors in an attribute, 0 for none.
    fn target(&self, name: u32, device: DeviceProperties) -> CudnnResult<i64> {
        let target = self.number(name, 0);
        if (0..=device.multiprocessors).contains(&target) {
            return Ok(target);
        }
        wrong(format!("a target of {target} of {} multiprocessors", device.multiprocessors))
    }

    fn proposals(&self, device: DeviceProperties) -> CudnnResult<Vec<Plan>> {
        let work = self.graph_of(201)?;
        let target = self.target(203, device)?;
        let mode = self.number(200, -1);
        Ok(match &work {
            Work::Convolution(operation, Some(problem)) => {
                let proposed = engines::propose(operation, problem, mode, target, device.multiprocessors);
                proposed.into_iter().map(|engine| Plan::of_convolution(&work, Some(engine))).collect()
            }
            Work::Attention(attention) if target == 0 => {
                attention.propose(mode).into_iter().map(|index| Plan::of_attention(&work, index)).collect()
            }
            Work::Convolution(_, None) | Work::Attention(_) => Vec::new(),
        })
    }

    fn engine(&self, device: DeviceProperties) -> CudnnResult<Plan> {
        let work = self.graph_of(1300)?;
        let target = self.target(1306, device)?;
        let index = self.number(1301, -1);
        if !(0..work.engines()).contains(&index) {
            return Err(LibraryError::plain(CudnnStatus::NOT_SUPPORTED));
        }
        let (operation, problem) = match &work {
            Work::Convolution(operation, problem) => (operation, problem),
            Work::Attention(_) => return Ok(Plan::of_attention(&work, index)),
        };
        let engine = problem.as_ref().and_then(|problem| engines::find(operation, problem, index));
        if engine.is_some_and(|engine| !engine.accepts_target(target, device.multiprocessors)) {
            return Err(LibraryError::plain(CudnnStatus::NOT_SUPPORTED));
        }
        Ok(Plan { index, ..Plan::of_convolution(&work, engine) })
    }

    fn configuration(&self) -> CudnnResult<Plan> {
        match self.object(300) {
            Some(Finalized::Engine(plan)) if plan.is_supported() => Ok(plan.clone()),
            Some(_) => Err(LibraryError::plain(CudnnStatus::NOT_SUPPORTED)),
            None => {
                let text = "its engine is missing or not finalised";
                Err(LibraryError::misuse(CudnnStatus::NOT_FINALIZED, text))
            }
        }
    }

    fn plan(&self, device: DeviceProperties) -> CudnnResult<Plan> {
        let Some(Finalized::Configuration(plan)) = self.object(401) else {
            let text = "its engine configuration is missing or not finalised";
            return Err(LibraryError::misuse(CudnnStatus::NOT_FINALIZED, text));
        };
        Ok(Plan { device: device.device, ..plan.clone() })
    }

    fn variant_pack(&self) -> CudnnResult<VariantPack> {
        let (ids, addresses) = (self.integers(1000), self.integers(1001));
        if ids.len() != addresses.len() {
            return wrong(format!("{} tensor ids and {} addresses", ids.len(), addresses.len()));
        }
        let addresses = ids.iter().zip(addresses).map(|(id, address)| (*id, *address as u64)).collect();
        Ok(VariantPack { addresses, workspace: self.number(1003, 0) as u64 })
    }
}
