//! Execution times of jobs. Jobs of a *kind* have the same times. GPUs are *spread* if they are on
//! more hosts than necessary.

use rustc_hash::FxHashMap;

use crate::{Error, Execution, GpuType, KindId};

/// Parallelization mode of a job. A [`Table`] may have an execution for each mode on the same GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Data parallelism: every GPU has the same work.
    DataParallel,
    /// Structured partial backpropagation with this number of parts.
    Spb(u16),
    /// A burst plan, in which each layer has its own number of GPUs. The value is the index, from
    /// 0, of a plan on the frontier for a number of GPUs.
    Burst(u16),
}

/// Properties of a placement that affect a job's iteration time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Allocation {
    /// Type of the GPUs.
    pub gpu_type: GpuType,
    /// Number of GPUs.
    pub gpus: usize,
    /// Whether the GPUs are on more hosts than necessary.
    pub spread: bool,
}

/// Index of an execution in a table, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ExecutionId(u32);

/// Executions by kind of job, allocation and mode.
#[derive(Debug, Clone, Default)]
pub struct Table {
    kinds: Vec<String>,
    executions: Vec<Execution>,
    /// Kind of each execution.
    execution_kinds: Vec<KindId>,
    /// Relative speeds of the first and the second kind when they share one GPU of a type.
    pair_speeds: FxHashMap<(GpuType, KindId, KindId), [f64; 2]>,
    by: FxHashMap<(KindId, Allocation, Mode), ExecutionId>,
}

impl Table {
    /// Creates an empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the kind of this name, and creates it if it does not exist.
    pub fn kind(&mut self, name: &str) -> KindId {
        self.find(name).unwrap_or_else(|_| {
            self.kinds.push(name.to_owned());
            KindId(self.kinds.len() as u32 - 1)
        })
    }

    /// Returns the existing kind of this name.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownKind`] if it does not exist.
    pub fn find(&self, name: &str) -> Result<KindId, Error> {
        let index = self.kinds.iter().position(|kind| kind == name);
        index.map(|index| KindId(index as u32)).ok_or_else(|| Error::UnknownKind(name.to_owned()))
    }

    /// Returns the name of a kind.
    ///
    /// # Panics
    ///
    /// If the kind belongs to another table.
    #[must_use]
    pub fn name(&self, kind: KindId) -> &str {
        &self.kinds[kind.0 as usize]
    }

    /// Iterates over all kinds in the order of their creation.
    pub fn kinds(&self) -> impl Iterator<Item = KindId> + use<> {
        (0..self.kinds.len() as u32).map(KindId)
    }

    /// Sets the execution of a kind of job in a mode on `execution.gpus()` GPUs of a type. Replaces
    /// an earlier execution on this number of GPUs.
    pub fn set(&mut self, kind: KindId, gpu_type: GpuType, mode: Mode, execution: Execution) {
        self.insert(kind, gpu_type, false, mode, execution);
    }

    /// Sets the execution of a kind of job in a mode on GPUs of a type that are on more hosts than
    /// necessary. Without it, the execution of [`set`](Self::set) applies there too.
    pub fn set_spread(&mut self, kind: KindId, gpu_type: GpuType, mode: Mode, execution: Execution) {
        self.insert(kind, gpu_type, true, mode, execution);
    }

    fn insert(&mut self, kind: KindId, gpu_type: GpuType, spread: bool, mode: Mode, execution: Execution) {
        let allocation = Allocation { gpu_type, gpus: execution.gpus(), spread };
        let id = ExecutionId(self.executions.len() as u32);
        self.executions.push(execution);
        self.execution_kinds.push(kind);
        self.by.insert((kind, allocation, mode), id);
    }

    /// Sets the measured relative speeds (speed beside the other / speed alone) of two jobs that
    /// share one GPU of a type. Values above 1 count as 1.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] for values that are not positive.
    pub fn set_pair_speeds(
        &mut self,
        gpu_type: GpuType,
        [one, other]: [KindId; 2],
        parts: [f64; 2],
    ) -> Result<(), Error> {
        if let Some(part) = parts.into_iter().find(|part| part.is_nan() || *part <= 0.0) {
            let (name, expected) = ("the part of a job's speed beside another", "more than 0");
            return Err(Error::OutOfRange { name, value: part.to_string(), expected });
        }
        let [first, second] = parts.map(|part| part.min(1.0));
        self.pair_speeds.insert((gpu_type, one, other), [first, second]);
        self.pair_speeds.insert((gpu_type, other, one), [second, first]);
        Ok(())
    }

    /// Returns the relative speeds (speed beside the other / speed alone, at most 1) of kinds `one`
    /// and `other` on one GPU of a type, in this order. `None` if they have not been set.
    #[must_use]
    pub fn pair_speeds(&self, gpu_type: GpuType, one: KindId, other: KindId) -> Option<[f64; 2]> {
        self.pair_speeds.get(&(gpu_type, one, other)).copied()
    }

    /// Returns the [relative speeds](Self::pair_speeds) of the kinds of two executions, given by
    /// their indices. `None` if they have not been set.
    pub(crate) fn pair_speeds_of_executions(
        &self,
        gpu_type: GpuType,
        one: ExecutionId,
        other: ExecutionId,
    ) -> Option<[f64; 2]> {
        let kind = |id: ExecutionId| self.execution_kinds[id.0 as usize];
        self.pair_speeds(gpu_type, kind(one), kind(other))
    }

    /// Returns the execution of a kind of job on an allocation in a mode, or `None` if the table
    /// has none. For spread GPUs without an execution of their own, returns the one for GPUs that
    /// are not spread.
    #[must_use]
    pub fn execution(&self, kind: KindId, allocation: Allocation, mode: Mode) -> Option<&Execution> {
        self.execution_id(kind, allocation, mode).map(|id| self.at(id))
    }

    /// Returns the index of the [execution](Self::execution), or `None` if the table has none.
    pub(crate) fn execution_id(
        &self,
        kind: KindId,
        allocation: Allocation,
        mode: Mode,
    ) -> Option<ExecutionId> {
        let packed = Allocation { spread: false, ..allocation };
        let look = |allocation, mode| self.by.get(&(kind, allocation, mode)).copied();
        look(allocation, mode).or_else(|| look(packed, mode))
    }

    /// Returns the execution at an index of this table.
    pub(crate) fn at(&self, id: ExecutionId) -> &Execution {
        &self.executions[id.0 as usize]
    }
}
