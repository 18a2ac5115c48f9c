//! One run of `mpirun`, which never outlives its time limit.

use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use libtest_mimic::Failed;

/// This program as the ranks of a trial.
#[derive(Debug)]
pub(crate) struct Job {
    /// None: one rank without `mpirun`.
    ranks: Option<usize>,
    survives: bool,
    arguments: Vec<String>,
}

/// What the ranks said and how the job ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) success: bool,
    pub(crate) output: String,
    /// Since 1970.
    pub(crate) ended: Duration,
}

/// A file name of this process.
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

    /// Another argument for each rank.
    pub(crate) fn with(mut self, argument: usize) -> Self {
        self.arguments.push(argument.to_string());
        self
    }

    /// Goes on when a rank dies or ends without MPI's permission.
    pub(crate) fn surviving(mut self) -> Self {
        self.survives = true;
        self
    }

    fn command(&self) -> Result<Command, Failed> {
        let this = env::current_exe()?;
        let mut command = match self.ranks {
            None => Command::new(this),
            Some(ranks) => {
                let mut mpirun = Command::new("mpirun");
                mpirun.args(["-n", &ranks.to_string()]);
                mpirun.args(self.survives.then_some("--enable-recovery")).arg(this);
                // More ranks than cores, and containers in which everyone is root.
                mpirun.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
                mpirun.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
                mpirun
            }
        };
        command.arg("--rank").args(&self.arguments);
        Ok(command)
    }

    /// Runs the job. One that takes longer than `limit` is killed, and is a failure.
    pub(crate) fn run(self, limit: Duration) -> Result<Outcome, Failed> {
        let file = scratch(&self.arguments.join("-"));
        let written = File::create(&file)?;
        let mut command = self.command()?;
        command.stdout(written.try_clone()?).stderr(written).process_group(0);
        let status = wait(&mut command.spawn()?, limit);
        let ended = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let output = String::from_utf8_lossy(&fs::read(&file)?).into_owned();
        fs::remove_file(&file)?;
        match status? {
            Some(success) => Ok(Outcome { success, output, ended }),
            None => Err(format!("killed after {limit:?}\n{output}").into()),
        }
    }
}

/// Whether the child succeeds; `None` if it had to be killed, with all processes of its group.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<bool>> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if started.elapsed() >= limit {
            // `mpirun` ends its ranks, which are in groups of their own, when it is asked to end.
            for (signal, pause) in [("-TERM", 2), ("-KILL", 0)] {
                let group = format!("-{}", child.id());
                let _ = Command::new("kill").args([signal, "--", &group]).status();
                thread::sleep(Duration::from_secs(pause));
            }
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

impl Outcome {
    /// As a failed trial, with all that the ranks said.
    pub(crate) fn failed(&self, why: &str) -> Failed {
        format!("{why}\n{}", self.output).into()
    }

    /// When a rank printed `WHAT at N ms`.
    pub(crate) fn time_of(&self, what: &str) -> Option<Duration> {
        let line = self.output.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(" at "))?;
        line.strip_suffix(" ms")?.parse().ok().map(Duration::from_millis)
    }

    /// The rank that said `VICTIM N`.
    pub(crate) fn victim(&self) -> Option<usize> {
        self.output.lines().find_map(|line| line.strip_prefix("VICTIM "))?.parse().ok()
    }

    /// What the ranks reported: the ranks that they missed, and after how many milliseconds.
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
