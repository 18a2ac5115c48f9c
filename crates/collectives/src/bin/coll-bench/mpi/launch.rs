//! Starts the ranks and reads what they found.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::rank::{self, RankArgs};
use crate::backend::Lane;
use crate::bad_input;
use crate::measuring::{Effort, Samples, Task};

/// The program that starts MPI's processes.
pub(crate) struct Mpirun(PathBuf);

impl Mpirun {
    /// # Errors
    /// Says where it was looked for.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let path = env::var_os("PATH").unwrap_or_default();
        let found = env::split_paths(&path).map(|folder| folder.join("mpirun")).find(|file| file.is_file());
        found.map(Self).ok_or_else(|| {
            let path = path.to_string_lossy();
            bad_input(format!(
                "there is no `mpirun` in PATH ({path}): install Open MPI, or give --backend threads"
            ))
        })
    }

    /// Measures all tasks in one job of this very program.
    pub(crate) fn launch(
        &self,
        ranks: usize,
        lane: Lane,
        tasks: &[Task],
        effort: Effort,
    ) -> anyhow::Result<Vec<Samples>> {
        let mpirun = self.0.display();
        let job = Command::new(&self.0)
            .args(["-n", &ranks.to_string(), "--oversubscribe"])
            .arg(env::current_exe().context("the path of this program")?)
            .args(RankArgs::of(lane, tasks, effort))
            .stdin(Stdio::null())
            .output()
            .with_context(|| mpirun.to_string())?;
        if !job.status.success() {
            let message = String::from_utf8_lossy(&job.stderr);
            // Rules and blank lines surround what mpirun says.
            let lines = message.lines().map(str::trim).filter(|line| line.contains(char::is_alphanumeric));
            bail!("{mpirun}: {}", lines.collect::<Vec<_>>().join(" "));
        }
        let said = String::from_utf8_lossy(&job.stdout);
        rank::parse(&said, tasks.len()).with_context(|| format!("what the ranks of {lane} said"))
    }
}
