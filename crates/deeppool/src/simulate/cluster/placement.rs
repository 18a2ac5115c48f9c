//! Placement of jobs on the GPUs of a cluster.

use crate::Error;

/// Rule by which a job gets free GPUs of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GpuPlacement {
    /// The free GPUs with the lowest numbers, which are on few hosts.
    #[default]
    Packed,
    /// One GPU after another from the host with the most free GPUs, so that the job is on many
    /// hosts.
    Spread,
    /// Whole free hosts, which no other job uses.
    ByHost,
}

/// GPUs that a job asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobGpus {
    /// Numbers of GPUs of the cluster.
    Listed(Vec<usize>),
    /// A number of GPUs, and the rule by which they are chosen.
    Placed(usize, GpuPlacement),
}

/// Returns the GPUs of each job in ascending order, or as listed. The cluster has `gpus` GPUs;
/// GPUs 0, 1, ... fill one host of `gpus_per_host` after another. Listed GPUs are taken first, then
/// jobs are placed in their order. O(jobs x (gpus + GPUs of the job x hosts)).
///
/// # Errors
/// [`Error::Setting`] if a listed GPU does not exist or is listed twice, or if too few are free.
pub fn place_jobs(
    gpus: usize,
    gpus_per_host: usize,
    jobs: &[(&str, JobGpus)],
) -> Result<Vec<Vec<usize>>, Error> {
    let per_host = gpus_per_host.clamp(1, gpus.max(1));
    let mut is_free = vec![true; gpus];
    for (name, of_job) in jobs {
        let JobGpus::Listed(listed) = of_job else { continue };
        for &gpu in listed {
            if !is_free.get(gpu).copied().unwrap_or(false) {
                return Err(Error::Setting {
                    setting: "a GPU of a job",
                    expected: "a GPU of the cluster, listed once",
                    got: format!("{gpu} of {gpus} for job `{name}`"),
                });
            }
            is_free[gpu] = false;
        }
    }
    let mut placed = Vec::with_capacity(jobs.len());
    for (name, of_job) in jobs {
        let of_job = match of_job {
            JobGpus::Listed(listed) => listed.clone(),
            JobGpus::Placed(count, placement) => {
                let found = placement.place(*count, per_host, &mut is_free);
                found.ok_or_else(|| Error::Setting {
                    setting: "the number of GPUs of a job",
                    expected: "at most the number of free GPUs of the cluster",
                    got: format!("{count} for job `{name}`"),
                })?
            }
        };
        placed.push(of_job);
    }
    Ok(placed)
}

impl GpuPlacement {
    /// All rules.
    pub const ALL: [Self; 3] = [Self::Packed, Self::Spread, Self::ByHost];

    /// Name of the rule, such as `packed`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Packed => "packed",
            Self::Spread => "spread",
            Self::ByHost => "by-host",
        }
    }

    /// Takes `count` free GPUs. `None` if there are too few.
    fn place(self, count: usize, per_host: usize, is_free: &mut [bool]) -> Option<Vec<usize>> {
        let mut chosen: Vec<usize> = match self {
            Self::Packed => (0..is_free.len()).filter(|&gpu| is_free[gpu]).take(count).collect(),
            Self::Spread => {
                let free = |host: &[bool]| host.iter().filter(|&&is_free| is_free).count();
                let mut by_host: Vec<usize> = is_free.chunks(per_host).map(free).collect();
                let mut of_hosts = vec![0; by_host.len()];
                for _ in 0..count {
                    // The first of the hosts with the most free GPUs.
                    let most = by_host.iter().copied().max().filter(|&free| free > 0)?;
                    let host = by_host.iter().position(|&free| free == most)?;
                    by_host[host] -= 1;
                    of_hosts[host] += 1;
                }
                let of_host = |(host, count): (usize, usize)| {
                    let gpus = host * per_host..((host + 1) * per_host).min(is_free.len());
                    gpus.filter(|&gpu| is_free[gpu]).take(count).collect::<Vec<_>>()
                };
                of_hosts.into_iter().enumerate().flat_map(of_host).collect()
            }
            Self::ByHost => {
                let hosts = is_free.chunks(per_host).enumerate();
                let whole = hosts.filter(|(_, host)| host.iter().all(|&is_free| is_free));
                let gpus =
                    whole.flat_map(|(index, host)| (0..host.len()).map(move |gpu| index * per_host + gpu));
                gpus.take(count).collect()
            }
        };
        if chosen.len() < count {
            return None;
        }
        chosen.sort_unstable();
        for &gpu in &chosen {
            let host = gpu / per_host * per_host;
            let end = (host + per_host).min(is_free.len());
            let taken = if self == Self::ByHost { host..end } else { gpu..gpu + 1 };
            is_free[taken].fill(false);
        }
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(jobs: &[JobGpus]) -> Result<Vec<Vec<usize>>, Error> {
        let jobs: Vec<(&str, JobGpus)> = jobs.iter().map(|of_job| ("job", of_job.clone())).collect();
        place_jobs(12, 4, &jobs)
    }

    #[test]
    fn jobs_are_placed_by_their_rules() {
        let of = |count, placement| JobGpus::Placed(count, placement);
        let packed = placed(&[of(3, GpuPlacement::Packed), of(4, GpuPlacement::Packed)]).unwrap();
        assert_eq!(packed, [vec![0, 1, 2], vec![3, 4, 5, 6]]);
        let spread = placed(&[of(4, GpuPlacement::Spread), of(3, GpuPlacement::Spread)]).unwrap();
        assert_eq!(spread, [vec![0, 1, 4, 8], vec![2, 5, 9]]);
        let by_host =
            placed(&[of(1, GpuPlacement::Packed), of(2, GpuPlacement::ByHost), of(4, GpuPlacement::Packed)]);
        assert_eq!(by_host.unwrap(), [vec![0], vec![4, 5], vec![1, 2, 3, 8]]);
        let listed = placed(&[of(2, GpuPlacement::Packed), JobGpus::Listed(vec![7, 0])]).unwrap();
        assert_eq!(listed, [vec![1, 2], vec![7, 0]]);
    }

    #[test]
    fn too_few_gpus_are_an_error_that_names_the_job() {
        for jobs in [
            vec![JobGpus::Placed(13, GpuPlacement::Packed)],
            vec![JobGpus::Placed(13, GpuPlacement::Spread)],
            vec![JobGpus::Placed(1, GpuPlacement::Spread), JobGpus::Placed(12, GpuPlacement::ByHost)],
            vec![JobGpus::Listed(vec![12])],
            vec![JobGpus::Listed(vec![1]), JobGpus::Listed(vec![1])],
        ] {
            let error = placed(&jobs).unwrap_err();
            assert!(error.to_string().contains("job `job`"), "{error}");
        }
    }
}
