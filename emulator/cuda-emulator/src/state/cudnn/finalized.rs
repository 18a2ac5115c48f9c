//! Contents of finalised descriptors.

use super::{
    attention::Attention,
    compute::compute,
    convolution::{Operation, Parameters, Problem, Tensor},
    engines::{self, Engine},
    evaluate::{self, Place},
    nodes::{Node, NodeKind, Rule},
};
use ptx_emulator::{Memory as DeviceMemory, MemoryError};
use std::{collections::BTreeMap, sync::Arc};

/// Contents of a finalised descriptor.
#[derive(Clone)]
pub(crate) enum Finalized {
    /// Tensor.
    Tensor(Arc<Tensor>),
    /// Parameters of a convolution.
    Convolution(Arc<Parameters>),
    /// Operation.
    Operation(Arc<Operation>),
    /// Parameters of another operation.
    Rule(NodeKind, Arc<Rule>),
    /// Another operation.
    Node(Arc<Node>),
    /// Graph of operations.
    Graph(Work),
    /// Engines that a heuristic proposes, best first.
    Heuristic(Arc<Vec<Plan>>),
    /// Engine for an operation.
    Engine(Plan),
    /// Engine with its settings, of which there are none.
    Configuration(Plan),
    /// Engine that is ready to be executed.
    Plan(Plan),
    /// Addresses of the tensors of an execution.
    VariantPack(Arc<VariantPack>),
    /// Properties of a device.
    Device(DeviceProperties),
}

/// Properties of a device that are used.
#[derive(Clone, Copy)]
pub(crate) struct DeviceProperties {
    /// Device, or `None` for properties from a text.
    pub(crate) device: Option<i32>,
    /// Number of multiprocessors.
    pub(crate) multiprocessors: i64,
}

/// Computation of a graph.
#[derive(Clone)]
pub(crate) enum Work {
    /// Convolution. The problem is `None` if no engine supports the operation.
    Convolution(Arc<Operation>, Option<Arc<Problem>>),
    /// Attention.
    Attention(Arc<Attention>),
}

impl Work {
    /// Returns the number of engines, including those that do not support the graph.
    pub(super) fn engines(&self) -> i64 {
        match self {
            Work::Convolution(operation, _) => engines::count(operation.pass),
            Work::Attention(_) => ATTENTION_ENGINES,
        }
    }
}

/// Number of engines for attention, including those for other devices.
const ATTENTION_ENGINES: i64 = 12;

/// Numerical notes of engines for attention: tensor cores.
const ATTENTION_NOTES: [i64; 1] = [0];

/// Behavior notes of engines for attention: compilation by the finalisation of a plan, and support
/// of graphs.
const ATTENTION_BEHAVIOR: [i64; 2] = [0, 3];

/// Tensor of a plan.
pub(crate) struct Operand {
    /// The tensor.
    pub(crate) tensor: Arc<Tensor>,
    /// Description, as in `tensor 2 (filter)`.
    pub(crate) name: String,
    /// Whether it is read.
    pub(crate) is_read: bool,
    /// Whether it is written.
    pub(crate) is_written: bool,
}

/// Engine for a graph.
#[derive(Clone)]
pub(crate) struct Plan {
    /// Computation.
    pub(super) work: Work,
    /// Number of the engine.
    pub(crate) index: i64,
    /// The engine of a convolution. `None` if it does not support the operation.
    pub(super) engine: Option<&'static Engine>,
    /// Device for which the plan was made, if it is known.
    pub(crate) device: Option<i32>,
}

impl Plan {
    /// Creates a plan by an engine of convolutions, for a device that is not known.
    pub(super) fn of_convolution(work: &Work, engine: Option<&'static Engine>) -> Self {
        let index = engine.map_or(0, |engine| engine.index);
        Self { work: work.clone(), index, engine, device: None }
    }

    /// Creates a plan by the engine of attention with the given number.
    pub(super) fn of_attention(work: &Work, index: i64) -> Self {
        Self { work: work.clone(), index, engine: None, device: None }
    }

    /// Returns whether the engine computes the graph.
    pub(crate) fn is_supported(&self) -> bool {
        match &self.work {
            Work::Convolution(_, problem) => self.engine.is_some() && problem.is_some(),
            Work::Attention(attention) => attention.supports(self.index),
        }
    }

    /// Returns the numerical notes of the engine.
    pub(super) fn notes(&self) -> Vec<i64> {
        match &self.work {
            Work::Convolution(..) => self.engine.map_or(Vec::new(), |engine| engine.notes.to_vec()),
            Work::Attention(_) => ATTENTION_NOTES.to_vec(),
        }
    }

    /// Returns the behavior notes of the engine.
    pub(super) fn behavior(&self) -> Vec<i64> {
        match &self.work {
            Work::Convolution(..) => Vec::new(),
            Work::Attention(_) => ATTENTION_BEHAVIOR.to_vec(),
        }
    }

    /// Returns the size of the workspace in bytes.
    pub(crate) fn workspace(&self) -> u64 {
        match (&self.work, self.engine) {
            (Work::Convolution(_, Some(problem)), Some(engine)) => engine.workspace(problem),
            (Work::Attention(attention), _) => attention.workspace(self.index),
            _ => 0,
        }
    }

    /// Returns the name of the kernel, as in `cudnn_forward_engine_1`.
    pub(crate) fn name(&self) -> String {
        let pass = match &self.work {
            Work::Convolution(operation, _) => operation.pass.to_string(),
            Work::Attention(attention) => attention.pass().to_owned(),
        };
        format!("cudnn_{pass}_engine_{}", self.index)
    }

    /// Returns the tensors whose addresses a variant pack gives.
    pub(crate) fn operands(&self) -> Vec<Operand> {
        match &self.work {
            Work::Convolution(operation, problem) => {
                let (output, reads_output) =
                    problem.as_ref().map_or((2, false), |problem| (problem.output(), problem.reads_output()));
                let operands = operation.tensors.iter().zip(ROLES).enumerate();
                operands
                    .map(|(index, (tensor, role))| Operand {
                        tensor: tensor.clone(),
                        name: format!("tensor {} ({role})", tensor.id),
                        is_read: index != output || reads_output,
                        is_written: index == output,
                    })
                    .collect()
            }
            Work::Attention(attention) => {
                let operand = |used: super::attention::Use| Operand {
                    name: format!("tensor {}", used.tensor.id),
                    is_read: !used.is_written,
                    is_written: used.is_written,
                    tensor: used.tensor,
                };
                attention.uses().into_iter().map(operand).collect()
            }
        }
    }

    /// Computes the graph. `places` are those of the operands, in their order.
    ///
    /// # Errors
    /// A tensor is not inside the memory.
    pub(crate) fn compute(&self, places: &[Place], memory: &mut DeviceMemory) -> Result<(), MemoryError> {
        match (&self.work, self.engine) {
            (Work::Convolution(_, Some(problem)), Some(engine)) => {
                let address = |index: usize| match places[index] {
                    Place::Device(address) => address,
                    Place::Number(_) => 0,
                };
                compute(problem, engine, [0, 1, 2].map(address), memory)
            }
            (Work::Attention(attention), _) => {
                let ids = attention.uses().into_iter().map(|used| used.tensor.id);
                let places: BTreeMap<_, _> = ids.zip(places.iter().copied()).collect();
                evaluate::compute(attention, &places, memory)
            }
            _ => Ok(()),
        }
    }
}

/// Roles of the tensors of a convolution.
const ROLES: [&str; 3] = ["input", "filter", "output"];

/// Addresses of the tensors of an execution.
pub(crate) struct VariantPack {
    /// Ids of tensors with their addresses.
    pub(crate) addresses: Vec<(i64, u64)>,
    /// Address of the workspace, or 0.
    pub(crate) workspace: u64,
}
