//! Starts the ranks and reads what they found.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};

use super::job;
use super::rank::{self, OPERATION, RankArgs};
use crate::coll::backend::Implementation;
use crate::coll::measuring::{Effort, Samples, Task};
use crate::command::bad_input;

/// How long ranks may take to start, on a machine that is busy.
const START: Duration = Duration::from_secs(60);

/// The program that starts MPI's processes.
pub(crate) struct Mpirun(PathBuf);

impl Mpirun {
    /// The first in `PATH`, once it has started a process.
    ///
    /// # Errors
    /// Says where it was looked for, or gives its message.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let path = env::var_os("PATH").unwrap_or_default();
        let found = env::split_paths(&path).map(|folder| folder.join("mpirun")).find(|file| file.is_file());
        let mpirun = found.map(Self).ok_or_else(|| {
            let path = path.to_string_lossy();
            bad_input(format!(
                "there is no `mpirun` in PATH ({path}): install Open MPI, or give --backend threads"
            ))
        })?;
        mpirun.start(1, &["--version".to_owned()], START).map_err(|error| bad_input(format!("{error:#}")))?;
        Ok(mpirun)
    }

    /// Measures all tasks in one job of this very program.
    pub(crate) fn launch(
        &self,
        ranks: usize,
        implementation: Implementation,
        tasks: &[Task],
        effort: Effort,
    ) -> anyhow::Result<Vec<Samples>> {
        // As if every sample, and as many to warm up, took as long as a single operation may.
        let samples = u32::try_from(tasks.len().saturating_mul(effort.samples)).unwrap_or(u32::MAX);
        let limit =
            START.saturating_add((OPERATION + effort.min_time).saturating_mul(2).saturating_mul(samples));
        let output = self.start(ranks, &RankArgs::of(implementation, tasks, effort), limit)?;
        rank::parse(&output, tasks.len())
            .with_context(|| format!("the output of the ranks of {implementation}"))
    }

    /// The output of this very program when it is started so many times.
    fn start(&self, ranks: usize, arguments: &[String], limit: Duration) -> anyhow::Result<String> {
        let mpirun = self.0.display();
        let mut command = Command::new(&self.0);
        command.args(["-n", &ranks.to_string(), "--oversubscribe"]);
        command.arg(env::current_exe().context("the path of this program")?).args(arguments);
        let job = job::run(&mut command, limit).with_context(|| mpirun.to_string())?;
        if !job.status.success() {
            let message = String::from_utf8_lossy(&job.stderr);
            // Rules and blank lines surround the message of mpirun.
            let lines = message.lines().map(str::trim).filter(|line| line.contains(char::is_alphanumeric));
            bail!("{mpirun}: {}", lines.collect::<Vec<_>>().join(" "));
        }
        Ok(String::from_utf8_lossy(&job.stdout).into_owned())
    }
}
