//! Launch of MPI ranks, and their results.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};

use super::job;
use super::rank::{self, OPERATION_TIMEOUT, RankArgs};
use crate::coll::backend::Implementation;
use crate::coll::timing::{SampleOptions, Samples, Task};
use crate::command::bad_input;

/// Maximum time in which ranks start on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The program `mpirun`, by its path.
pub(crate) struct Mpirun(PathBuf);

impl Mpirun {
    /// Finds the first `mpirun` in `PATH` and checks that it can start a process.
    ///
    /// # Errors
    /// Bad input, with the searched path or the message of `mpirun`.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let path = env::var_os("PATH").unwrap_or_default();
        let found = env::split_paths(&path).map(|folder| folder.join("mpirun")).find(|file| file.is_file());
        let mpirun = found.map(Self).ok_or_else(|| {
            let path = path.to_string_lossy();
            bad_input(format!(
                "there is no `mpirun` in PATH ({path}): install Open MPI, or give --backend threads"
            ))
        })?;
        let arguments = ["--version".to_owned()];
        mpirun.start(1, &arguments, START_TIMEOUT).map_err(|error| bad_input(format!("{error:#}")))?;
        Ok(mpirun)
    }

    /// Starts `ranks` processes of this program, measures all tasks on them, and returns the
    /// samples of each task, in the order of `tasks`.
    ///
    /// # Errors
    /// If the processes cannot be started, if one fails, or if they exceed a time limit.
    pub(crate) fn launch(
        &self,
        ranks: usize,
        implementation: Implementation,
        tasks: &[Task],
        sample_options: SampleOptions,
    ) -> anyhow::Result<Vec<Samples>> {
        // The limit assumes for every sample, and as many warm-ups, the maximum time of a single
        // operation.
        let samples = u32::try_from(tasks.len().saturating_mul(sample_options.samples)).unwrap_or(u32::MAX);
        let sample_limit = (OPERATION_TIMEOUT + sample_options.min_time).saturating_mul(2);
        let limit = START_TIMEOUT.saturating_add(sample_limit.saturating_mul(samples));
        let output =
            self.start(ranks, &RankArgs::command_line(implementation, tasks, sample_options), limit)?;
        rank::parse(&output, tasks.len())
            .with_context(|| format!("the output of the ranks of {implementation}"))
    }

    /// Starts `ranks` processes of this program and returns their output.
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
