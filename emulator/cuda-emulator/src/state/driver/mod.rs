//! The state of the emulated CUDA driver, and the calls as its methods. A method that implements a
//! function of `cuda.h`, `nccl.h` or `cublasLt.h` names it. The errors of all methods are those
//! that the calls return.

mod capture;
mod capture_rules;
mod context;
mod copies;
mod cublaslt;
mod cudnn;
mod device;
mod events;
mod exec_steps;
mod execs;
mod graphs;
mod green;
mod kernels;
mod leaks;
mod libraries;
mod library_work;
mod memory;
mod modules;
mod nccl;
mod nodes;
mod order;
mod simulation;
mod streams;

pub(crate) use copies::CopyOperand;
pub(crate) use nccl::RankParameters;

use super::{
    CallError, Code, Handle,
    capture::Captures,
    contexts::Contexts,
    cublaslt::CublasLt,
    cudnn::Cudnn,
    events::Event,
    exec_steps::Exec,
    graphs::{Graph, Node},
    green::GreenContexts,
    handles::Handles,
    memory::Memory,
    modules::Modules,
    nccl::Nccl,
    order::OrderCheck,
    report::Report,
    settings::Settings,
    simulation::Simulation,
    streams::Stream,
    versions,
};
use std::collections::{BTreeMap, HashSet};

/// All objects, settings and reports of the driver.
#[derive(Default)]
pub(crate) struct Driver {
    /// Settings of the emulated devices and of the checks.
    pub(crate) settings: Settings,
    /// Log of calls, injected errors and reports of misuse.
    pub(crate) report: Report,
    /// Whether `cuInit` has been called.
    pub(crate) initialised: bool,
    /// Full names of the functions that a test has removed, to emulate a driver without them.
    pub(crate) removed_functions: HashSet<String>,
    /// Number of resets. State that threads keep from before the last reset is discarded.
    pub(crate) generation: u64,
    /// Kind and number of every handle since the last reset.
    pub(super) handles: Handles,
    /// Contexts that are not destroyed.
    pub(super) contexts: Contexts,
    /// Green contexts that are not destroyed.
    pub(super) green: GreenContexts,
    /// Streams, including default streams and destroyed streams with work that is not complete.
    pub(super) streams: BTreeMap<Handle, Stream>,
    /// Events that have not been destroyed.
    pub(super) events: BTreeMap<Handle, Event>,
    /// Graphs that are not destroyed, including child graphs and those being captured.
    pub(super) graphs: BTreeMap<Handle, Graph>,
    /// Nodes of all graphs.
    pub(super) nodes: BTreeMap<Handle, Node>,
    /// Executable graphs that are not destroyed.
    pub(super) execs: BTreeMap<Handle, Exec>,
    /// Loaded modules and their functions.
    pub(super) modules: Modules,
    /// Memory of the devices, and page-locked memory of the host.
    pub(super) memory: Memory,
    /// Stream captures in progress.
    pub(super) captures: Captures,
    /// Virtual clock, running kernels and event records.
    pub(super) simulation: Simulation,
    /// NCCL communicators and their operations.
    pub(super) nccl: Nccl,
    /// Handles and descriptors of cuBLASLt.
    pub(super) cublaslt: CublasLt,
    /// Handles and descriptors of cuDNN.
    pub(super) cudnn: Cudnn,
    /// State of the order check, which is unused unless a setting turns the check on.
    pub(super) order: OrderCheck,
}

impl Driver {
    /// Creates a driver with the settings of the environment.
    pub(super) fn new() -> Self {
        Self { settings: Settings::from_environment(), ..Self::default() }
    }

    /// Destroys all objects, and resets settings, reports and injected errors.
    pub(crate) fn reset(&mut self) {
        *self = Self { generation: self.generation + 1, ..Self::new() };
    }

    /// Returns whether the function with this full name is missing, because the driver version is
    /// too old or because a test has removed it.
    pub(crate) fn is_missing(&self, name: &str) -> bool {
        self.settings.driver_version < versions::since(name) || self.removed_functions.contains(name)
    }

    /// Reports the misuse behind an error of the named call, if there is one, and returns the code
    /// of the error.
    pub(super) fn record_error(&mut self, call: &str, error: CallError) -> Code {
        if let Some(misuse) = error.misuse {
            self.report.misuse(format!("{call}: {misuse}: {}", error.code));
        }
        error.code
    }

    /// Reports a misuse for which the call still succeeds.
    pub(super) fn warn(&mut self, text: impl Into<String>) {
        self.report.misuse(text.into());
    }
}
