//! Occupied GPUs, and the GPUs that remain free while placements are planned. Jobs are given by the
//! indices of their entries, which are in order of arrival.

use crate::{Cluster, GpuId, GpuType};

/// Jobs that hold each GPU, at most two, by the indices of their entries.
#[derive(Debug)]
pub(super) struct Gpus(Vec<[Option<usize>; 2]>);

impl Gpus {
    /// Creates the state in which no job holds a GPU.
    pub(super) fn new(cluster: &Cluster) -> Self {
        Self(vec![[None; 2]; cluster.gpus()])
    }

    /// Returns the indices of the entries of the jobs that hold a GPU; `None` for fewer than two.
    pub(super) fn holders(&self, gpu: GpuId) -> [Option<usize>; 2] {
        self.0[gpu.index()]
    }

    /// Adds a job to the holders of each of the GPUs. A GPU that already has two is not changed.
    pub(super) fn hold(&mut self, gpus: &[GpuId], job: usize) {
        for gpu in gpus {
            if let Some(place) = self.0[gpu.index()].iter_mut().find(|place| place.is_none()) {
                *place = Some(job);
            }
        }
    }

    /// Removes a job from the holders of each of the GPUs.
    pub(super) fn release(&mut self, gpus: &[GpuId], job: usize) {
        for gpu in gpus {
            self.0[gpu.index()]
                .iter_mut()
                .filter(|place| **place == Some(job))
                .for_each(|place| *place = None);
        }
    }
}

/// GPUs that are not assigned yet while placements are planned.
pub(super) struct Free<'a> {
    cluster: &'a Cluster,
    available: Vec<bool>,
    /// Number of free GPUs on each host.
    left: Vec<u32>,
}

impl<'a> Free<'a> {
    /// Creates the state in which all GPUs of the cluster are free.
    pub(super) fn all(cluster: &'a Cluster) -> Self {
        let left = cluster.hosts().iter().map(|host| host.gpus).collect();
        Self { cluster, available: vec![true; cluster.gpus()], left }
    }

    /// Assigns a GPU, which must be free.
    pub(super) fn take(&mut self, gpu: GpuId) {
        self.available[gpu.index()] = false;
        self.left[self.cluster.host_of(gpu)] -= 1;
    }

    /// Takes `gpus` GPUs of a type and returns them in increasing order, with whether they are on
    /// more hosts than necessary. It prefers the host with the smallest sufficient number of free
    /// GPUs; without one, it fills the hosts with the most free GPUs first. There must be enough
    /// free GPUs.
    pub(super) fn take_gpus(&mut self, gpu_type: GpuType, gpus: usize) -> (Vec<GpuId>, bool) {
        let hosts = self.cluster.hosts();
        let of_type = |host: &usize| hosts[*host].gpu_type == gpu_type && self.left[*host] > 0;
        let on_one = (0..hosts.len()).filter(of_type).filter(|&host| self.left[host] as usize >= gpus);
        let order: Vec<usize> = if let Some(host) = on_one.min_by_key(|&host| self.left[host]) {
            vec![host]
        } else {
            let mut all: Vec<usize> = (0..hosts.len()).filter(of_type).collect();
            all.sort_by_key(|&host| std::cmp::Reverse(self.left[host]));
            all
        };
        let mut found = Vec::with_capacity(gpus);
        let mut used = 0;
        for host in order {
            if found.len() == gpus {
                break;
            }
            used += 1;
            let all = hosts[host].first..hosts[host].first + hosts[host].gpus;
            let free = all.map(GpuId).filter(|gpu| self.available[gpu.index()]);
            let some: Vec<GpuId> = free.take(gpus - found.len()).collect();
            for &gpu in &some {
                self.take(gpu);
            }
            found.extend(some);
        }
        found.sort_unstable();
        let largest = hosts.iter().filter(|host| host.gpu_type == gpu_type).map(|host| host.gpus).max();
        let needed = gpus.div_ceil(largest.unwrap_or(1).max(1) as usize);
        (found, used > needed)
    }
}
