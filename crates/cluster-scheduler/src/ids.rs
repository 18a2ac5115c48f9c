//! Identifiers of jobs, kinds, GPUs and GPU types.

use std::fmt;

/// Index of a GPU of a cluster, from 0, counted host by host in the order given to
/// [`Cluster::new`](crate::Cluster::new).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuId(pub u32);

impl GpuId {
    /// Returns the number as an index into a list of GPUs.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for GpuId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "GPU {}", self.0)
    }
}

/// Index of a GPU type in [`Cluster::types`](crate::Cluster::types), from 0: the types are in the
/// order in which they first occur in the cluster's hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuType(pub u16);

impl GpuType {
    /// Returns the number as an index into a list of GPU types.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Identifier of a job, chosen by the caller when the job [arrives](crate::Event::Arrived). It is
/// unique within a scheduler: a second arrival with the same identifier is refused with
/// [`Error::DuplicateJob`](crate::Error::DuplicateJob), also after the first job has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "job {}", self.0)
    }
}

/// Index of a kind of job in a [`Table`](crate::Table), created by
/// [`Table::kind`](crate::Table::kind) and valid only for that table. Jobs of a kind have the same
/// iteration times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KindId(pub(crate) u32);
