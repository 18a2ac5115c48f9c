//! The GPUs of a cluster. A *host* is a machine with GPUs.

use crate::{Error, GpuId, GpuType};

/// GPUs in hosts. All GPUs of a host have the same type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    types: Vec<String>,
    hosts: Vec<Host>,
    /// The host of each GPU.
    host_of: Vec<u32>,
}

/// Host of a [`Cluster`]: a type of GPU and a range of GPU indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Host {
    /// Type of all its GPUs.
    pub(crate) gpu_type: GpuType,
    /// Index of the host's first GPU in the cluster; its others follow.
    pub(crate) first: u32,
    /// Number of the host's GPUs; may be 0.
    pub(crate) gpus: u32,
}

impl Cluster {
    /// Creates a cluster of hosts, each given as a GPU type and a number of GPUs.
    ///
    /// ```
    /// let cluster = cluster_scheduler::Cluster::new([("v100", 8), ("v100", 8), ("k80", 4)])?;
    /// assert_eq!((cluster.gpus(), cluster.types().len()), (20, 2));
    /// # Ok::<(), cluster_scheduler::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoGpus`] without GPUs, [`Error::OutOfRange`] for 2^31 GPUs or 2^15 types or more.
    pub fn new<'a>(hosts: impl IntoIterator<Item = (&'a str, usize)>) -> Result<Self, Error> {
        let mut cluster = Self { types: Vec::new(), hosts: Vec::new(), host_of: Vec::new() };
        for (name, gpus) in hosts {
            let known = cluster.types.iter().position(|known| known == name);
            let index = known.unwrap_or_else(|| {
                cluster.types.push(name.to_owned());
                cluster.types.len() - 1
            });
            let too_many =
                |name, value: usize| Error::OutOfRange { name, value: value.to_string(), expected: "fewer" };
            if index >= 1 << 15 {
                return Err(too_many("types of GPUs", index + 1));
            }
            let first = cluster.host_of.len();
            if gpus.saturating_add(first) >= 1 << 31 {
                return Err(too_many("GPUs of the cluster", gpus.saturating_add(first)));
            }
            let host = cluster.hosts.len() as u32;
            cluster.hosts.push(Host {
                gpu_type: GpuType(index as u16),
                first: first as u32,
                gpus: gpus as u32,
            });
            cluster.host_of.resize(first + gpus, host);
        }
        if cluster.host_of.is_empty() { Err(Error::NoGpus) } else { Ok(cluster) }
    }

    /// Creates a cluster of `hosts` identical hosts.
    ///
    /// # Errors
    /// See [`Cluster::new`].
    pub fn uniform(gpu_type: &str, hosts: usize, gpus_per_host: usize) -> Result<Self, Error> {
        Self::new(std::iter::repeat_n((gpu_type, gpus_per_host), hosts))
    }

    /// Returns the number of GPUs of all hosts.
    #[must_use]
    pub fn gpus(&self) -> usize {
        self.host_of.len()
    }

    /// Returns the names of the GPU types, indexed by [`GpuType`].
    #[must_use]
    pub fn types(&self) -> &[String] {
        &self.types
    }

    /// Returns the number of GPUs of a type, over all hosts.
    #[must_use]
    pub fn gpus_of(&self, gpu_type: GpuType) -> usize {
        self.hosts.iter().filter(|host| host.gpu_type == gpu_type).map(|host| host.gpus as usize).sum()
    }

    /// Returns the type of a GPU.
    ///
    /// # Panics
    ///
    /// If the cluster does not have this GPU.
    #[must_use]
    pub fn type_of(&self, gpu: GpuId) -> GpuType {
        self.hosts[self.host_of(gpu)].gpu_type
    }

    /// Returns the index of the host of a GPU, from 0 in the order given to [`Cluster::new`].
    ///
    /// # Panics
    /// If the cluster does not have this GPU.
    #[must_use]
    pub fn host_of(&self, gpu: GpuId) -> usize {
        self.host_of[gpu.index()] as usize
    }

    /// Returns the hosts in the order given to [`Cluster::new`].
    pub(crate) fn hosts(&self) -> &[Host] {
        &self.hosts
    }
}
