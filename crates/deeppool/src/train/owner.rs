//! The description of a run that owns a folder of checkpoints, and whether the run has ended.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Identifier of the format of the description.
const SCHEMA: &str = "deeppool/checkpoint-owner/v1";
/// Age of a description from which on an owner on another host counts as ended.
pub(super) const STALE: Duration = Duration::from_secs(120);

/// Description of a run that owns a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    schema: String,
    /// Name of the host.
    host: String,
    /// Boot of the host and namespace of its process ids; `None` if they are not known. Process ids
    /// are comparable if hosts and spaces are equal.
    process_space: Option<String>,
    /// Process id.
    pub(super) process: u32,
    /// Start of the process, in clock ticks since the boot; `None` if it is not known.
    started: Option<u64>,
    /// Job of Slurm that the process belongs to; `None` outside of Slurm.
    job: Option<SlurmJob>,
    /// Number that differs between the runs of a process.
    pub(super) run: u64,
}

/// A job of Slurm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SlurmJob {
    /// Name of the cluster and number of the job.
    id: String,
    /// Number of times that the job was requeued. Its earlier processes have ended.
    requeued: u64,
}

impl SlurmJob {
    fn from_env() -> Option<Self> {
        let variable = |name| std::env::var(name).ok();
        let number = variable("SLURM_JOB_ID")?;
        let cluster = variable("SLURM_CLUSTER_NAME").unwrap_or_default();
        let requeued = variable("SLURM_RESTART_COUNT").and_then(|count| count.parse().ok()).unwrap_or(0);
        Some(Self { id: format!("{cluster}/{number}"), requeued })
    }
}

impl Owner {
    /// Describes a new run of this process.
    pub(super) fn of_this_process() -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let host = fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let host = host.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default().trim().to_owned();
        let process_space = || {
            let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
            let space = fs::read_link("/proc/self/ns/pid").ok()?;
            Some(format!("{} {}", boot.trim(), space.display()))
        };
        let process = std::process::id();
        Self {
            schema: SCHEMA.into(),
            host,
            process_space: process_space(),
            process,
            started: start_time(process),
            job: SlurmJob::from_env(),
            run: RUNS.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Returns whether this run has not ended yet, from the point of view of the run `of`. `age` is
    /// the age of the file that describes this run.
    pub(super) fn is_alive(&self, of: &Self, age: Duration) -> bool {
        if let (Some(job), Some(own)) = (&self.job, &of.job) {
            if job.id == own.id && job.requeued < own.requeued {
                return false;
            }
        }
        let is_here = self.host == of.host && self.process_space == of.process_space;
        if is_here && of.process_space.is_some() && self.started.is_some() && are_processes_visible() {
            return start_time(self.process) == self.started;
        }
        age < STALE
    }
}

impl Display for Owner {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on host `{}`", self.process, self.host)?;
        match &self.job {
            Some(job) => write!(f, " (Slurm job {})", job.id.trim_start_matches('/')),
            None => Ok(()),
        }
    }
}

/// Returns the start of a process in clock ticks since the boot. `None` if there is no such
/// process, it has ended, or the system has no `/proc`.
fn start_time(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may have spaces. The state follows it, and 19 fields later the start.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X");
    fields.nth(18)?.parse().ok().filter(|_| !has_ended)
}

/// Returns whether the processes of other users are visible in `/proc`.
fn are_processes_visible() -> bool {
    start_time(1).is_some()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::thread;

    use super::*;

    fn owner(host: &str, process: u32, job: Option<(&str, u64)>) -> Owner {
        Owner {
            host: host.into(),
            process_space: Some("boot space".into()),
            process,
            started: Some(1),
            job: job.map(|(id, requeued)| SlurmJob { id: id.into(), requeued }),
            ..Owner::of_this_process()
        }
    }

    const RENEWED: Duration = Duration::from_secs(40);

    #[test]
    fn owners_on_other_hosts_are_alive_while_they_renew_their_file() {
        let own = owner("here", 2, None);
        let there = owner("there", 2, None);
        assert!(there.is_alive(&own, RENEWED) && !there.is_alive(&own, STALE));
        // Another container, or the same host after a reboot.
        let elsewhere = Owner { process_space: Some("other".into()), ..owner("here", 2, None) };
        assert!(elsewhere.is_alive(&own, RENEWED) && !elsewhere.is_alive(&own, STALE));
        let unknown = Owner { process_space: None, ..own.clone() };
        assert!(unknown.is_alive(&unknown, RENEWED) && !unknown.is_alive(&unknown, STALE));
    }

    #[test]
    fn a_requeued_job_replaces_its_earlier_processes() {
        let there = owner("there", 2, Some(("cluster/7", 0)));
        assert!(!there.is_alive(&owner("here", 3, Some(("cluster/7", 1))), RENEWED));
        assert!(there.is_alive(&owner("here", 3, Some(("cluster/7", 0))), RENEWED));
        assert!(there.is_alive(&owner("here", 3, Some(("cluster/8", 1))), RENEWED));
        assert!(there.is_alive(&owner("here", 3, None), RENEWED));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn owners_on_this_host_are_alive_while_their_process_exists() {
        let own = Owner::of_this_process();
        assert!(own.started.is_some());
        assert!(own.is_alive(&Owner::of_this_process(), STALE));
        // The process id is that of a later process.
        let reused = Owner { started: own.started.map(|started| started + 1), ..own.clone() };
        assert!(!reused.is_alive(&own, Duration::ZERO));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = child.id();
        // The state is that of a zombie until it is waited for.
        while start_time(process).is_some() {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(Path::new(&format!("/proc/{process}")).exists());
        child.wait().unwrap();
        assert!(!Owner { process, ..own.clone() }.is_alive(&own, Duration::ZERO));
    }
}
