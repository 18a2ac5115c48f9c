//! A run of `mpirun` with a time limit.

use std::env;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use libtest_mimic::Failed;

/// This program as the ranks of a trial.
#[derive(Debug)]
pub(crate) struct Job {
    /// Number of ranks. `None` for one rank without `mpirun`.
    ranks: Option<usize>,
    survives: bool,
    arguments: Vec<String>,
}

/// Output of the ranks and status of the job.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) success: bool,
    pub(crate) output: String,
    /// Time at which the job ended, since 1970.
    pub(crate) ended: Duration,
}

/// Returns a path for a file of this process.
pub(crate) fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()))
}

impl Job {
    pub(crate) fn new(ranks: usize, trial: &str) -> Self {
        Self { ranks: Some(ranks), survives: false, arguments: vec![trial.into()] }
    }

    /// A rank without `mpirun`.
    pub(crate) fn alone(trial: &str) -> Self {
        Self { ranks: None, survives: false, arguments: vec![trial.into()] }
    }

    /// Adds an argument for each rank.
    pub(crate) fn with(mut self, argument: usize) -> Self {
        self.arguments.push(argument.to_string());
        self
    }

    /// Lets the job continue if a rank dies or ends without finalizing MPI.
    pub(crate) fn surviving(mut self) -> Self {
        self.survives = true;
        self
    }

    /// Returns the command under `timeout`, which also ends the job if this program is killed. Both
    /// are in this program's process group, so a signal to the group ends them. `mpirun` then ends
    /// its ranks, which are in other groups.
    fn command(&self, limit: Duration) -> Result<Command, Failed> {
        let mut command = Command::new("timeout");
        command
            .args(["--foreground", "--kill-after=5"])
            .arg(limit.as_secs().to_string())
            .stdin(Stdio::null());
        if let Some(ranks) = self.ranks {
            command.args(["mpirun", "-n", &ranks.to_string()]);
            command.args(self.survives.then_some("--enable-recovery"));
            // More ranks than cores, and containers whose user is root.
            command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
            command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
        }
        command.arg(env::current_exe()?).arg("--rank").args(&self.arguments);
        Ok(command)
    }

    /// Runs the job. A job that takes longer than `limit`, in whole seconds, is ended and fails.
    pub(crate) fn run(self, limit: Duration) -> Result<Outcome, Failed> {
        let file = scratch(&self.arguments.join("-"));
        let written = File::create(&file)?;
        let status = self.command(limit)?.stdout(written.try_clone()?).stderr(written).status()?;
        let ended = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let output = String::from_utf8_lossy(&fs::read(&file)?).into_owned();
        fs::remove_file(&file)?;
        // Exit status of `timeout` for a job that it ended, and for one that it had to kill.
        if matches!(status.code(), Some(124) | None) {
            return Err(format!("ended after {limit:?}\n{output}").into());
        }
        Ok(Outcome { success: status.success(), output, ended })
    }
}

impl Outcome {
    /// Returns a failure of the trial with the output of the ranks.
    pub(crate) fn failed(&self, why: &str) -> Failed {
        format!("{why}\n{}", self.output).into()
    }

    /// Returns the time at which a rank printed `WHAT at N ms`.
    pub(crate) fn time_of(&self, what: &str) -> Option<Duration> {
        let line = self.output.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(" at "))?;
        line.strip_suffix(" ms")?.parse().ok().map(Duration::from_millis)
    }

    /// Returns the rank that printed `VICTIM N`.
    pub(crate) fn victim(&self) -> Option<usize> {
        self.output.lines().find_map(|line| line.strip_prefix("VICTIM "))?.parse().ok()
    }

    /// Returns the reports of the ranks: the missing ranks, and the waiting time in milliseconds.
    pub(crate) fn seen(&self) -> Vec<(Vec<usize>, u64)> {
        let reports = self.output.lines().filter_map(|line| line.strip_prefix("SEEN missing ["));
        reports
            .filter_map(|report| {
                let (missing, rest) = report.split_once("] after ")?;
                let (waited, _) = rest.split_once(" ms")?;
                let missing = missing.split(", ").map(str::parse).collect::<Result<_, _>>().ok()?;
                Some((missing, waited.parse().ok()?))
            })
            .collect()
    }
}
