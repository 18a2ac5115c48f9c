//! Slurm cluster of two nodes on this machine, started by the script `tests/slurm/cluster`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::command::files;
use crate::setup::Setup;

/// Running cluster, which ends when this value is dropped or this process ends.
pub(crate) struct Cluster {
    setup: Setup,
    /// Folder of configuration, logs and sockets, in the temporary folder because paths of sockets
    /// must be short.
    own: TempDir,
    /// Working folder of jobs, outside the folders that nodes do not share.
    work: TempDir,
}

/// Settings of Open MPI for ranks of both nodes that share a few cores and the loopback device, as
/// root.
const SETTINGS: [(&str, &str); 7] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_hwloc_base_binding_policy", "none"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("OMPI_MCA_mpi_yield_when_idle", "1"),
    ("OMPI_MCA_btl_tcp_if_include", "lo"),
    ("OMPI_MCA_oob_tcp_if_include", "lo"),
];

impl Cluster {
    /// Starts a cluster with the given lines about partitions in its configuration. Prints the
    /// reason and returns `None` if the machine does not allow it.
    pub(crate) fn start(partitions: &str) -> Option<Self> {
        let built = Path::new(env!("CARGO_TARGET_TMPDIR"));
        if built.starts_with("/tmp") {
            println!("SKIPPED: jobs on Slurm: deeppool is built in /tmp, which nodes do not share");
            return None;
        }
        let (own, work) = (TempDir::new().unwrap(), TempDir::new_in(built).unwrap());
        std::fs::write(own.path().join("partitions"), partitions).unwrap();
        let partitions = own.path().join("partitions");
        let setup = Setup::start("jobs on Slurm", "slurm/cluster", &[own.path(), &partitions])?;
        Some(Self { setup, own, work })
    }

    /// Returns the working folder of commands and jobs.
    pub(crate) fn folder(&self) -> &Path {
        self.work.path()
    }

    /// Returns a command that finds the cluster and `deeppool`.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let deeppool = Path::new(env!("CARGO_BIN_EXE_deeppool")).parent().unwrap().to_owned();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(deeppool).chain(std::env::split_paths(&path)));
        command.current_dir(self.folder()).stdin(Stdio::null()).envs(SETTINGS).env("PATH", path.unwrap());
        // Open MPI keeps its sockets in TMPDIR.
        command.env("SLURM_CONF", self.own.path().join("slurm.conf")).env("TMPDIR", self.own.path());
        command
    }

    /// Runs a line of shell commands, which must succeed, and returns its output.
    pub(crate) fn shell(&self, line: &str) -> String {
        let output = self.command("bash").args(["-c", line]).output().unwrap();
        succeeded(line, &output)
    }

    /// Submits a job script.
    pub(crate) fn submit(&self, script: &str) -> Job<'_> {
        let number = self.shell(&format!("sbatch --parsable {script}"));
        Job { cluster: self, number: number.trim().parse().unwrap() }
    }

    /// Waits until the queue is empty.
    pub(crate) fn wait_until_idle(&self) {
        wait("the queue to be empty", || self.shell("squeue --noheader").trim().is_empty());
    }

    /// Returns the output of a job.
    pub(crate) fn printed(&self, name: &str, job: u32) -> String {
        std::fs::read_to_string(self.folder().join(format!("{name}-{job}.out"))).unwrap_or_default()
    }

    /// Stops the cluster, and checks that it leaves no processes or shared memory behind.
    pub(crate) fn stop(mut self) {
        self.setup.end();
        let own = self.own.path().as_os_str().as_encoded_bytes().to_owned();
        for process in std::fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
            let is_named = |file: &str| {
                let text = std::fs::read(process.path().join(file)).unwrap_or_default();
                text.windows(own.len()).any(|part| part == own)
            };
            assert!(
                !is_named("environ") && !is_named("cmdline"),
                "left behind: {}",
                process.path().display()
            );
        }
        // Open MPI uses host names in these file names.
        for (folder, of_node) in [("/dev/shm", "vader_segment.node"), ("/tmp", "ompi.node")] {
            let left: Vec<String> =
                files(Path::new(folder)).into_iter().filter(|name| name.starts_with(of_node)).collect();
            assert!(left.is_empty(), "left behind in {folder}: {left:?}");
        }
    }
}

/// Submitted job.
pub(crate) struct Job<'c> {
    cluster: &'c Cluster,
    number: u32,
}

impl Job<'_> {
    /// Returns its output so far.
    pub(crate) fn printed(&self) -> String {
        self.cluster.printed("deeppool", self.number)
    }

    /// Returns the folder of checkpoints of a job without `--checkpoint`.
    pub(crate) fn checkpoints(&self) -> PathBuf {
        self.cluster.folder().join(format!("run-{}", self.number))
    }

    /// Runs a command of Slurm with the number of the job.
    pub(crate) fn told(&self, command: &str) {
        self.cluster.shell(&format!("{command} {}", self.number));
    }

    /// Waits for the end of the job, after all requeues, and returns its state. `sbatch --wait`
    /// would poll only every half minute.
    pub(crate) fn end(&self) -> String {
        let mut state = String::new();
        wait("the job to end", || {
            let squeue = format!("squeue --noheader --states=all --format=%T --job={}", self.number);
            self.cluster.shell(&squeue).trim().clone_into(&mut state);
            !["PENDING", "CONFIGURING", "RUNNING", "COMPLETING"].contains(&&*state)
        });
        state
    }

    /// Returns the report of `train --json` of a completed job.
    pub(crate) fn report(&self) -> Value {
        let (state, printed) = (self.end(), self.printed());
        assert_eq!(state, "COMPLETED", "{printed}");
        // The report follows the output before a requeue, and messages of Slurm. Slurm writes both
        // streams to one file, so that warnings can be in its midst.
        let lines: Vec<&str> = printed.lines().filter(|line| !line.starts_with("warning: ")).collect();
        let first = lines.iter().rposition(|&line| line == "{").unwrap();
        let last = first + lines[first..].iter().position(|&line| line == "}").unwrap();
        serde_json::from_str(&lines[first..=last].join("\n")).unwrap()
    }
}

pub(crate) fn succeeded(command: &str, output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {errors}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Sleeps until a condition is true.
pub(crate) fn wait(what: &str, mut is_true: impl FnMut() -> bool) {
    let patience = Instant::now();
    while !is_true() {
        assert!(patience.elapsed() < Duration::from_secs(180), "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
