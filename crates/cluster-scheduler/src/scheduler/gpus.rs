//! Which GPUs are held, and which are given to whom.

use crate::{Cluster, GpuId, GpuType};

#[derive(Debug)]
pub(super) struct Gpus {
    /// By GPU: how many of those that hold it stop after their iteration.
    stopping: Vec<u8>,
    /// By GPU: how many hold it.
    holders: Vec<u8>,
}

impl Gpus {
    pub(super) fn new(cluster: &Cluster) -> Self {
        Self { stopping: vec![0; cluster.gpus()], holders: vec![0; cluster.gpus()] }
    }

    /// Whether nobody holds these GPUs but those that are to share them: who is not, was told to stop.
    pub(super) fn can_start(&self, gpus: &[GpuId]) -> bool {
        gpus.iter().all(|gpu| self.stopping[gpu.index()] == 0 && self.holders[gpu.index()] < 2)
    }

    pub(super) fn hold(&mut self, gpus: &[GpuId]) {
        gpus.iter().for_each(|gpu| self.holders[gpu.index()] += 1);
    }

    pub(super) fn stop(&mut self, gpus: &[GpuId]) {
        gpus.iter().for_each(|gpu| self.stopping[gpu.index()] += 1);
    }

    pub(super) fn release(&mut self, gpus: &[GpuId], stopping: bool) {
        for gpu in gpus {
            self.holders[gpu.index()] -= 1;
            self.stopping[gpu.index()] -= u8::from(stopping);
        }
    }
}

/// GPUs that nobody has yet, in one plan.
pub(super) struct Free<'a> {
    cluster: &'a Cluster,
    is_free: Vec<bool>,
    /// By host.
    left: Vec<u32>,
}

impl<'a> Free<'a> {
    pub(super) fn all(cluster: &'a Cluster) -> Self {
        let left = cluster.hosts().iter().map(|host| host.gpus).collect();
        Self { cluster, is_free: vec![true; cluster.gpus()], left }
    }

    pub(super) fn take(&mut self, gpu: GpuId) {
        self.is_free[gpu.index()] = false;
        self.left[self.cluster.host_of(gpu)] -= 1;
    }

    /// So many GPUs of a type, in rising order, and whether they are on more hosts than they need: on the host where the
    /// fewest are left that are enough; otherwise on those where most are left. There must be as many.
    pub(super) fn find(&mut self, gpu_type: GpuType, gpus: usize) -> (Vec<GpuId>, bool) {
        let hosts = self.cluster.hosts();
        let of_type = |host: &usize| hosts[*host].gpu_type == gpu_type && self.left[*host] > 0;
        let on_one = (0..hosts.len()).filter(of_type).filter(|&host| self.left[host] as usize >= gpus);
        let order: Vec<usize> = match on_one.min_by_key(|&host| self.left[host]) {
            Some(host) => vec![host],
            None => {
                let mut all: Vec<usize> = (0..hosts.len()).filter(of_type).collect();
                all.sort_by_key(|&host| std::cmp::Reverse(self.left[host]));
                all
            }
        };
        let mut found = Vec::with_capacity(gpus);
        let mut used = 0;
        for host in order {
            if found.len() == gpus {
                break;
            }
            used += 1;
            let all = hosts[host].first..hosts[host].first + hosts[host].gpus;
            let free = all.map(GpuId).filter(|gpu| self.is_free[gpu.index()]);
            let some: Vec<GpuId> = free.take(gpus - found.len()).collect();
            some.iter().for_each(|&gpu| self.take(gpu));
            found.extend(some);
        }
        found.sort_unstable();
        let largest = hosts.iter().filter(|host| host.gpu_type == gpu_type).map(|host| host.gpus).max();
        let needed = gpus.div_ceil(largest.unwrap_or(1).max(1) as usize);
        (found, used > needed)
    }
}
