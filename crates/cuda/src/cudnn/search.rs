//! Search for engines.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type, cudnnBackendBehaviorNote_t,
    cudnnBackendDescriptorType_t as Kind, cudnnBackendHeurMode_t, cudnnBackendNumericalNote_t as Note,
    cudnnStatus_t,
};

use super::descriptor::{Descriptor, Owner};
use super::graph::Graph;
use super::plan::{Parts, Plan};
use super::{Convolution, ConvolutionShape, Cudnn, CudnnHandle, DeviceProperties};
use crate::symbols::Code;
use crate::{Error, Numerics, Result};

/// Device for which engines are searched.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// The device of a handle.
    Device(&'a CudnnHandle),
    /// A device with these properties, which need not exist here.
    Properties(&'a DeviceProperties),
}

/// Reproducibility of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Determinism {
    /// Executions with the same operands have the same bits.
    Deterministic,
    /// Executions may differ by rounding.
    Any,
}

impl Cudnn {
    /// Returns the engines that cuDNN proposes for a convolution, in the order of expected time:
    /// those of its heuristic mode A, and then its fallback. Each has the required numerics and
    /// determinism, is compiled in advance, and needs a workspace of at most `workspace_limit`
    /// bytes. The list is empty if there is none. Do not call this while a stream is being
    /// captured.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an impossible shape; [`Error::Library`].
    pub fn convolutions(
        &self,
        target: Target<'_>,
        shape: &ConvolutionShape,
        numerics: Numerics,
        determinism: Determinism,
        workspace_limit: usize,
    ) -> Result<Vec<Convolution>> {
        let tensors = shape.dimensions(numerics)?;
        let (owner, properties) = self.owner(target)?;
        let graph = Graph::of_convolution(&owner, shape, numerics, tensors, properties)?;
        let mut excluded = excluded_notes(determinism);
        if numerics != Numerics::Bf16 {
            excluded.push(Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
        }
        if numerics == Numerics::F32 {
            excluded.push(Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
        }
        let required =
            Requirements { excluded, is_compiled: true, configurations: usize::MAX, workspace_limit };
        let plans = required.plans(graph)?;
        Ok(plans.into_iter().map(|plan| Convolution { shape: *shape, plan }).collect())
    }

    /// Returns an owner for descriptors of a target, and the properties of the target if there is
    /// no handle.
    pub(super) fn owner(&self, target: Target<'_>) -> Result<(Arc<Owner>, Option<Descriptor>)> {
        let handle = match target {
            Target::Device(handle) => {
                handle.stream().context().bind()?;
                Some(Arc::clone(&handle.state))
            }
            Target::Properties(_) => None,
        };
        let owner = Arc::new(Owner { functions: Arc::clone(&self.0), handle });
        let properties = match target {
            Target::Device(_) => None,
            Target::Properties(properties) => Some(properties.descriptor(&owner)?),
        };
        Ok((owner, properties))
    }
}

/// Returns the notes of engines whose results are less precise than their numerics, or not
/// reproducible as required.
pub(super) fn excluded_notes(determinism: Determinism) -> Vec<Note> {
    let mut excluded = vec![Note::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION];
    if determinism == Determinism::Deterministic {
        excluded.push(Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
    }
    excluded
}

/// Requirements of the plans of a search.
pub(super) struct Requirements {
    /// Notes that an engine must not have.
    pub(super) excluded: Vec<Note>,
    /// Whether the engine must be compiled in advance.
    pub(super) is_compiled: bool,
    /// Maximum number of configurations of each engine: of those that the heuristics propose first.
    pub(super) configurations: usize,
    /// Maximum size of the workspace, in bytes.
    pub(super) workspace_limit: usize,
}

impl Requirements {
    /// Returns the plans for a graph that meet the requirements, in the order of expected time:
    /// those of the heuristic mode A, and then its fallback.
    pub(super) fn plans(&self, graph: Graph) -> Result<Vec<Plan>> {
        let graph = Arc::new(graph);
        let mut found = Vec::new();
        // Number of configurations of each engine.
        let mut configurations: HashMap<i64, usize> = HashMap::new();
        for mode in
            [cudnnBackendHeurMode_t::CUDNN_HEUR_MODE_A, cudnnBackendHeurMode_t::CUDNN_HEUR_MODE_FALLBACK]
        {
            for configuration in heuristic(&graph, mode)? {
                let engine = engine(&configuration)?;
                let number = single(&engine, Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX)?;
                let ordinal = configurations.entry(number).or_default();
                *ordinal += 1;
                if *ordinal > self.configurations || !self.accept(&engine)? {
                    continue;
                }
                let Some(plan) = plan(&graph, &configuration)? else { continue };
                let bytes = single(&plan, Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?;
                let workspace_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                if workspace_bytes <= self.workspace_limit {
                    let parts = Parts { plan, _configuration: configuration, _graph: Arc::clone(&graph) };
                    let parts = Arc::new(Mutex::new(parts));
                    found.push(Plan { engine: number, ordinal: *ordinal, workspace_bytes, parts });
                }
            }
        }
        Ok(found)
    }

    /// Returns whether an engine meets the requirements, apart from the workspace.
    fn accept(&self, engine: &Descriptor) -> Result<bool> {
        const COMPILATION: u32 = cudnnBackendBehaviorNote_t::CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION as u32;
        let notes: Vec<u32> = engine
            .numbers::<_, 64>(Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, Type::CUDNN_TYPE_NUMERICAL_NOTE)?;
        let behaviors: Vec<u32> =
            engine.numbers::<_, 64>(Name::CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, Type::CUDNN_TYPE_BEHAVIOR_NOTE)?;
        let is_excluded = |note: &u32| self.excluded.iter().any(|excluded| *excluded as u32 == *note);
        let is_late = self.is_compiled && behaviors.contains(&COMPILATION);
        Ok(!is_late && !notes.iter().any(is_excluded))
    }
}

/// Returns the configurations of engines that a heuristic proposes, or none if it supports no
/// engine.
fn heuristic(graph: &Graph, mode: cudnnBackendHeurMode_t) -> Result<Vec<Descriptor>> {
    let owner = graph.operations.owner();
    let heuristic = Descriptor::new(owner, Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?;
    heuristic.set_descriptors(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[&graph.operations])?;
    heuristic.set(Name::CUDNN_ATTR_ENGINEHEUR_MODE, Type::CUDNN_TYPE_HEUR_MODE, &[mode])?;
    if let Some(properties) = &graph.properties {
        heuristic.set_descriptors(Name::CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, &[properties])?;
    }
    if !is_supported(heuristic.finalize())? {
        return Ok(Vec::new());
    }
    heuristic.descriptors(Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
}

/// Returns the engine of a configuration.
fn engine(configuration: &Descriptor) -> Result<Descriptor> {
    let engine = Descriptor::new(configuration.owner(), Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?;
    configuration.fill(Name::CUDNN_ATTR_ENGINECFG_ENGINE, &engine)?;
    Ok(engine)
}

/// Returns the plan of a configuration, or `None` if the engine does not support the graph.
fn plan(graph: &Graph, configuration: &Descriptor) -> Result<Option<Descriptor>> {
    let owner = graph.operations.owner();
    let plan = Descriptor::new(owner, Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
    plan.set_descriptors(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[configuration])?;
    if let Some(handle) = &owner.handle {
        plan.set(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, Type::CUDNN_TYPE_HANDLE, &[handle.raw.0])?;
    }
    if let Some(properties) = &graph.properties {
        plan.set_descriptors(Name::CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, &[properties])?;
    }
    Ok(is_supported(plan.finalize())?.then_some(plan))
}

/// Returns a number of an attribute that has one.
fn single(descriptor: &Descriptor, name: Name) -> Result<i64> {
    let values: Vec<i64> = descriptor.numbers::<_, 1>(name, Type::CUDNN_TYPE_INT64)?;
    values.first().copied().ok_or_else(|| Error::Invalid(format!("cuDNN has no value for {name:?}")))
}

/// Returns whether a finalization succeeded. A failure because the library or one of its engines
/// does not support the graph is no error.
fn is_supported(finalized: Result<()>) -> Result<bool> {
    const FIRST: Code = cudnnStatus_t::CUDNN_STATUS_NOT_SUPPORTED as Code;
    const NEXT: Code = cudnnStatus_t::CUDNN_STATUS_INTERNAL_ERROR as Code;
    match finalized {
        Err(Error::Library { code, .. }) if (FIRST..NEXT).contains(&code) => Ok(false),
        finalized => finalized.map(|()| true),
    }
}
