//! Contents of finalised descriptors.

use super::{
    compute::compute,
    convolution::{Operation, Parameters, Problem, Tensor},
    engines::Engine,
};
use ptx_emulator::{Memory as DeviceMemory, MemoryError};
use std::sync::Arc;

/// Contents of a finalised descriptor.
#[derive(Clone)]
pub(crate) enum Finalized {
    /// Tensor.
    Tensor(Arc<Tensor>),
    /// Parameters of a convolution.
    Convolution(Arc<Parameters>),
    /// Operation.
    Operation(Arc<Operation>),
    /// Graph of one operation.
    Graph(Arc<Operation>),
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

/// Engine for an operation.
#[derive(Clone)]
pub(crate) struct Plan {
    /// The operation.
    pub(crate) operation: Arc<Operation>,
    /// The convolution. `None` if no engine supports the operation.
    pub(crate) problem: Option<Arc<Problem>>,
    /// Number of the engine.
    pub(crate) index: i64,
    /// The engine. `None` if it does not support the operation.
    pub(super) engine: Option<&'static Engine>,
    /// Device for which the plan was made, if it is known.
    pub(crate) device: Option<i32>,
}

impl Plan {
    /// Creates a plan for a device that is not known.
    pub(super) fn new(
        operation: &Arc<Operation>,
        problem: Option<Arc<Problem>>,
        engine: Option<&'static Engine>,
    ) -> Self {
        let index = engine.map_or(0, |engine| engine.index);
        Self { operation: operation.clone(), problem, index, engine, device: None }
    }

    /// Returns the size of the workspace in bytes.
    pub(crate) fn workspace(&self) -> u64 {
        match (self.engine, &self.problem) {
            (Some(engine), Some(problem)) => engine.workspace(problem),
            _ => 0,
        }
    }

    /// Computes the convolution of the tensors at the given addresses.
    ///
    /// # Errors
    /// A tensor is not inside the memory.
    pub(crate) fn compute(&self, addresses: [u64; 3], memory: &mut DeviceMemory) -> Result<(), MemoryError> {
        match (self.engine, &self.problem) {
            (Some(engine), Some(problem)) => compute(problem, engine, addresses, memory),
            _ => Ok(()),
        }
    }
}

/// Addresses of the tensors of an execution.
pub(crate) struct VariantPack {
    /// Ids of tensors with their addresses.
    pub(crate) addresses: Vec<(i64, u64)>,
    /// Address of the workspace, or 0.
    pub(crate) workspace: u64,
}
