use rustc_hash::FxHashMap;

use crate::{Error, Execution, GpuType};

/// A kind of job of a [`Table`]: jobs of a kind have the same iterations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KindId(pub(crate) u32);

/// How a job is parallelised, by which a [`Table`] distinguishes executions on the same GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Data parallelism: every GPU has the same part.
    DataParallel,
    /// Structured partial backpropagation with so many parts.
    Spb(u16),
    /// A burst plan, in which each layer has its own number of GPUs: a point of the frontier of plans for so many GPUs, by its number.
    Burst(u16),
}

/// Where a job runs, as far as its time depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Allocation {
    /// The type of its GPUs.
    pub gpu_type: GpuType,
    /// How many GPUs.
    pub gpus: usize,
    /// Whether they are on more hosts than so many GPUs need.
    pub spread: bool,
}

/// An execution of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RowId(u32);

/// How long iterations take: for each kind of job, on each allocation, in each mode.
#[derive(Debug, Clone, Default)]
pub struct Table {
    kinds: Vec<String>,
    rows: Vec<Execution>,
    /// Whose they are.
    row_kinds: Vec<KindId>,
    /// The parts of their speeds that the first and the second have on one GPU of a type.
    together: FxHashMap<(GpuType, KindId, KindId), [f64; 2]>,
    by: FxHashMap<(KindId, Allocation, Mode), RowId>,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The kind of that name, which is new if there is none yet.
    pub fn kind(&mut self, name: &str) -> KindId {
        self.find(name).unwrap_or_else(|_| {
            self.kinds.push(name.to_owned());
            KindId(self.kinds.len() as u32 - 1)
        })
    }

    /// The kind of that name.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownKind`] if there is none.
    pub fn find(&self, name: &str) -> Result<KindId, Error> {
        let index = self.kinds.iter().position(|kind| kind == name);
        index.map(|index| KindId(index as u32)).ok_or_else(|| Error::UnknownKind(name.to_owned()))
    }

    /// The name of a kind of this table.
    ///
    /// # Panics
    ///
    /// For a kind of another table.
    #[must_use]
    pub fn name(&self, kind: KindId) -> &str {
        &self.kinds[kind.0 as usize]
    }

    /// All kinds, in the order in which they were made.
    pub fn kinds(&self) -> impl Iterator<Item = KindId> + use<> {
        (0..self.kinds.len() as u32).map(KindId)
    }

    /// Sets how a kind of job is executed in a mode on GPUs of a type, in place of what was set before.
    pub fn set(&mut self, kind: KindId, gpu_type: GpuType, mode: Mode, execution: Execution) {
        self.insert(kind, gpu_type, false, mode, execution);
    }

    /// The same, where the GPUs are on more hosts than they need. Without it, being spread makes no difference.
    pub fn set_spread(&mut self, kind: KindId, gpu_type: GpuType, mode: Mode, execution: Execution) {
        self.insert(kind, gpu_type, true, mode, execution);
    }

    fn insert(&mut self, kind: KindId, gpu_type: GpuType, spread: bool, mode: Mode, execution: Execution) {
        let allocation = Allocation { gpu_type, gpus: execution.gpus(), spread };
        let row = RowId(self.rows.len() as u32);
        self.rows.push(execution);
        self.row_kinds.push(kind);
        self.by.insert((kind, allocation, mode), row);
    }

    /// Sets what was measured of two jobs on one GPU of a type that run at the same time: the part of its speed alone that each has, up to 1. What is more counts
    /// as 1.
    ///
    /// # Errors
    ///
    /// [`Error::BadFigure`] for parts that are not more than 0.
    pub fn set_together(
        &mut self,
        gpu_type: GpuType,
        [one, other]: [KindId; 2],
        parts: [f64; 2],
    ) -> Result<(), Error> {
        if let Some(part) = parts.into_iter().find(|part| part.is_nan() || *part <= 0.0) {
            let (name, expected) = ("the part of a job's speed beside another", "more than 0");
            return Err(Error::BadFigure { name, value: part.to_string(), expected });
        }
        let [first, second] = parts.map(|part| part.min(1.0));
        self.together.insert((gpu_type, one, other), [first, second]);
        self.together.insert((gpu_type, other, one), [second, first]);
        Ok(())
    }

    /// What was set of two kinds of jobs on one GPU of a type.
    #[must_use]
    pub fn together(&self, gpu_type: GpuType, one: KindId, other: KindId) -> Option<[f64; 2]> {
        self.together.get(&(gpu_type, one, other)).copied()
    }

    pub(crate) fn rows_together(&self, gpu_type: GpuType, one: RowId, other: RowId) -> Option<[f64; 2]> {
        let kind = |row: RowId| self.row_kinds[row.0 as usize];
        self.together(gpu_type, kind(one), kind(other))
    }

    /// How a kind of job is executed on an allocation in a mode, if the table has it so.
    #[must_use]
    pub fn execution(&self, kind: KindId, allocation: Allocation, mode: Mode) -> Option<&Execution> {
        self.row(kind, allocation, mode).map(|row| self.at(row))
    }

    pub(crate) fn row(&self, kind: KindId, allocation: Allocation, mode: Mode) -> Option<RowId> {
        let packed = Allocation { spread: false, ..allocation };
        let look = |allocation, mode| self.by.get(&(kind, allocation, mode)).copied();
        look(allocation, mode).or_else(|| look(packed, mode))
    }

    pub(crate) fn at(&self, row: RowId) -> &Execution {
        &self.rows[row.0 as usize]
    }
}
