//! The state of the driver.

mod capture;
mod capture_rules;
mod context;
mod copies;
mod device;
mod engine;
mod events;
mod execs;
mod graphs;
mod green;
mod kernels;
mod leaks;
mod memory;
mod modules;
mod nccl;
mod nodes;
mod order;
mod plan;
mod streams;

pub(crate) use copies::CopyOperand;
pub(crate) use nccl::InitRank;

use super::{
    CallError, Code, Handle,
    capture::Captures,
    contexts::Contexts,
    engine::Engine,
    events::Event,
    graphs::{Graph, Node},
    green::GreenContexts,
    handles::Handles,
    memory::Memory,
    modules::Modules,
    nccl::Nccl,
    order::OrderCheck,
    plan::Exec,
    report::Report,
    settings::Settings,
    streams::Stream,
    versions,
};
use std::collections::{BTreeMap, HashSet};

/// All objects, settings and reports of the driver.
#[derive(Default)]
pub(crate) struct Driver {
    pub(crate) settings: Settings,
    pub(crate) report: Report,
    pub(crate) initialised: bool,
    /// Functions removed by the test.
    pub(crate) removed_functions: HashSet<String>,
    /// Number of resets. Per-thread state of an earlier generation is discarded.
    pub(crate) generation: u64,
    pub(super) handles: Handles,
    pub(super) contexts: Contexts,
    pub(super) green: GreenContexts,
    pub(super) streams: BTreeMap<Handle, Stream>,
    pub(super) events: BTreeMap<Handle, Event>,
    pub(super) graphs: BTreeMap<Handle, Graph>,
    pub(super) nodes: BTreeMap<Handle, Node>,
    pub(super) execs: BTreeMap<Handle, Exec>,
    pub(super) modules: Modules,
    pub(super) memory: Memory,
    pub(super) captures: Captures,
    pub(super) engine: Engine,
    pub(super) nccl: Nccl,
    pub(super) order: OrderCheck,
}

impl Driver {
    /// Creates a driver with the settings of the environment.
    pub(super) fn new() -> Self {
        Self { settings: Settings::from_environment(), ..Self::default() }
    }

    /// Resets handles, settings, reports and injected errors.
    pub(crate) fn reset(&mut self) {
        *self = Self { generation: self.generation + 1, ..Self::new() };
    }

    /// Returns whether a function is missing, because the driver version is too old or because the
    /// test has removed it.
    pub(crate) fn is_missing(&self, name: &str) -> bool {
        self.settings.driver_version < versions::since(name) || self.removed_functions.contains(name)
    }

    /// Reports the misuse behind an error and returns its code.
    pub(super) fn record_error(&mut self, call: &str, fault: CallError) -> Code {
        if let Some(misuse) = fault.misuse {
            self.report.misuse(format!("{call}: {misuse}: {}", fault.code));
        }
        fault.code
    }

    /// Reports a misuse for which the call still succeeds.
    pub(super) fn warn(&mut self, text: impl Into<String>) {
        self.report.misuse(text.into());
    }
}
