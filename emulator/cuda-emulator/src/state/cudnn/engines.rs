//! Engines: which convolutions they support, what they need and how exact they are.

mod table;

use super::{
    convolution::{Operation, Pass, Problem},
    rounding::DataType,
};
use table::ENGINES;

/// Precision of the operands of an engine.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Element {
    /// `f32`.
    F32,
    /// `f16` or `bf16`.
    Half,
}

/// Engine for one pass and precision.
pub(super) struct Engine {
    pass: Pass,
    element: Element,
    /// Number of the engine among those of the pass.
    pub(super) index: i64,
    /// Set of the classes of convolutions for which heuristic modes A, B and INSTANT propose it.
    heuristic: u16,
    /// Set of the classes for which the heuristic mode FALLBACK proposes it.
    fallback: u16,
    /// Numerical notes (`cudnnBackendNumericalNote_t`).
    pub(super) notes: &'static [i64],
    /// Whether it can be limited to a number of multiprocessors.
    is_limitable: bool,
    /// Workspace for tensors with the channels second and last: multiples of the sizes of input,
    /// filter and output.
    workspace: [[u64; 3]; 2],
}

/// Creates an engine from its fields, in their order.
#[allow(clippy::too_many_arguments, reason = "the columns of a table")]
pub(super) const fn engine(
    pass: Pass,
    element: Element,
    index: i64,
    heuristic: u16,
    fallback: u16,
    notes: &'static [i64],
    is_limitable: bool,
    channels_second: [u64; 3],
    channels_last: [u64; 3],
) -> Engine {
    let workspace = [channels_second, channels_last];
    Engine { pass, element, index, heuristic, fallback, notes, is_limitable, workspace }
}

/// Numerical notes that are emulated.
const TENSOR_CORE: i64 = 0;
const NONDETERMINISTIC: i64 = 4;

/// Alignment of the tensors that tensor cores load directly, in bytes.
const DIRECT_ALIGNMENT: i64 = 16;

/// Heuristic mode that proposes engines for every convolution (`CUDNN_HEUR_MODE_FALLBACK`).
const FALLBACK: i64 = 2;

/// Largest heuristic mode.
const LAST_MODE: i64 = 3;

impl Engine {
    /// Returns whether the engine rounds its operands to TF32, if they are `f32`.
    pub(super) fn uses_tensor_cores(&self) -> bool {
        self.notes.contains(&TENSOR_CORE)
    }

    /// Returns whether results differ from run to run.
    pub(super) fn is_nondeterministic(&self) -> bool {
        self.notes.contains(&NONDETERMINISTIC)
    }

    /// Returns the size of the workspace in bytes.
    pub(super) fn workspace(&self, problem: &Problem) -> u64 {
        let multiples = self.workspace[usize::from(is_channels_last(problem))];
        let bytes: u64 =
            multiples.iter().zip(&problem.tensors).map(|(times, tensor)| times * tensor.bytes).sum();
        bytes.next_multiple_of(256)
    }

    /// Returns whether the engine can be used with a target of `target` of `multiprocessors`
    /// multiprocessors. A target of 0 stands for none.
    pub(super) fn accepts_target(&self, target: i64, multiprocessors: i64) -> bool {
        target == 0 || target == multiprocessors || self.is_limitable
    }

    fn is_for(&self, operation: &Operation, problem: &Problem) -> bool {
        let element = match problem.data_type {
            DataType::F32 => Element::F32,
            DataType::F16 | DataType::Bf16 => Element::Half,
        };
        let is_aligned = || operation.tensors.iter().all(|tensor| tensor.alignment % DIRECT_ALIGNMENT == 0);
        let is_direct = element == Element::Half && self.uses_tensor_cores() && is_channels_last(problem);
        self.pass == problem.pass && self.element == element && (!is_direct || is_aligned())
    }
}

/// Returns the engine with the given number, or `None` if it does not support the operation.
pub(super) fn find(operation: &Operation, problem: &Problem, index: i64) -> Option<&'static Engine> {
    let class = class(problem);
    let supports = |engine: &&Engine| {
        engine.index == index
            && engine.is_for(operation, problem)
            && (engine.heuristic | engine.fallback) & class != 0
    };
    ENGINES.iter().find(supports)
}

/// Returns the number of engines of a pass, including those that support no convolution.
pub(super) fn count(pass: Pass) -> i64 {
    match pass {
        Pass::Forward => 81,
        Pass::Data => 85,
        Pass::Filter => 75,
    }
}

/// Returns the engines that a heuristic mode (`cudnnBackendHeurMode_t`) proposes with a target of
/// `target` multiprocessors, best first. A target of 0 stands for none.
///
/// With a target below the number of multiprocessors, cuDNN proposes only engines that can be
/// limited, and none if the target is more than a seventh.
pub(super) fn propose(
    operation: &Operation,
    problem: &Problem,
    mode: i64,
    target: i64,
    multiprocessors: i64,
) -> Vec<&'static Engine> {
    let class = class(problem);
    let is_proposed = |engine: &&Engine| {
        let classes = if mode == FALLBACK { engine.fallback } else { engine.heuristic };
        let fits = match target {
            0 => true,
            _ if target == multiprocessors => !engine.is_limitable,
            _ => engine.is_limitable && target <= multiprocessors / 7,
        };
        (0..=LAST_MODE).contains(&mode) && classes & class != 0 && fits && engine.is_for(operation, problem)
    };
    ENGINES.iter().filter(is_proposed).collect()
}

/// Returns whether the channels of the input are adjacent.
fn is_channels_last(problem: &Problem) -> bool {
    problem.tensors[0].strides[1] == 1
}

/// Returns the class of a convolution as a set of one element, in the order of the classes in
/// `record-cudnn-engines.py`.
fn class(problem: &Problem) -> u16 {
    let [_, _, height, width] = problem.tensors[1].dimensions;
    let is_strided = problem.stride != [1, 1];
    let is_depthwise = problem.tensors[1].dimensions[1] == 1;
    let class = match problem.groups {
        2.. if is_depthwise => 7 + u16::from(is_strided),
        2.. => 5 + u16::from(is_strided),
        _ if problem.dilation != [1, 1] => 4,
        _ if height != width => 3,
        _ if is_strided && height >= 7 => 2,
        _ => u16::from(is_strided),
    };
    1 << class
}
