//! A Slurm cluster of two nodes on this machine, by the script `tests/slurm/cluster`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::command::files;
use crate::setup::Setup;

/// A cluster that is up. It ends with this value, or with this process.
pub(crate) struct Cluster {
    setup: Setup,
    /// Its configuration, logs and sockets: in a temporary folder, since the names of sockets have to be short.
    own: TempDir,
    /// What jobs work in, which is no folder that nodes are known not to share.
    work: TempDir,
}

/// For Open MPI, where ranks of both nodes share a few cores and the loopback device, as root.
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
    /// Starts one with these lines about partitions in its configuration. `None` where that cannot be, which is said.
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

    /// Where commands are given, and jobs work.
    pub(crate) fn folder(&self) -> &Path {
        self.work.path()
    }

    /// A command beside the cluster, which finds it, and `deeppool`.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let deeppool = Path::new(env!("CARGO_BIN_EXE_deeppool")).parent().unwrap().to_owned();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(deeppool).chain(std::env::split_paths(&path)));
        command.current_dir(self.folder()).stdin(Stdio::null()).envs(SETTINGS).env("PATH", path.unwrap());
        // Open MPI keeps its sockets there.
        command.env("SLURM_CONF", self.own.path().join("slurm.conf")).env("TMPDIR", self.own.path());
        command
    }

    /// What a line of shell commands prints, which has to succeed.
    pub(crate) fn shell(&self, line: &str) -> String {
        let output = self.command("bash").args(["-c", line]).output().unwrap();
        succeeded(line, &output)
    }

    /// Submits a job script.
    pub(crate) fn submit(&self, script: &str) -> Job<'_> {
        let number = self.shell(&format!("sbatch --parsable {script}"));
        Job { cluster: self, number: number.trim().parse().unwrap() }
    }

    /// Waits until there are no jobs.
    pub(crate) fn wait_until_idle(&self) {
        wait("the queue to be empty", || self.shell("squeue --noheader").trim().is_empty());
    }

    /// What a job has printed.
    pub(crate) fn printed(&self, name: &str, job: u32) -> String {
        std::fs::read_to_string(self.folder().join(format!("{name}-{job}.out"))).unwrap_or_default()
    }

    /// Ends it. Nothing that belongs to it is left.
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
        // Hosts are in the names that Open MPI gives.
        for (folder, of_node) in [("/dev/shm", "vader_segment.node"), ("/tmp", "ompi.node")] {
            let left: Vec<String> =
                files(Path::new(folder)).into_iter().filter(|name| name.starts_with(of_node)).collect();
            assert!(left.is_empty(), "left behind in {folder}: {left:?}");
        }
    }
}

/// A job that was submitted.
pub(crate) struct Job<'c> {
    cluster: &'c Cluster,
    number: u32,
}

impl Job<'_> {
    /// What it has printed so far.
    pub(crate) fn printed(&self) -> String {
        self.cluster.printed("deeppool", self.number)
    }

    /// The checkpoints of a job that was not given a folder for them.
    pub(crate) fn checkpoints(&self) -> PathBuf {
        self.cluster.folder().join(format!("run-{}", self.number))
    }

    /// Tells Slurm something about it.
    pub(crate) fn told(&self, command: &str) {
        self.cluster.shell(&format!("{command} {}", self.number));
    }

    /// How it ended, after all its requeues. (`sbatch --wait` looks only every half minute.)
    pub(crate) fn end(&self) -> String {
        let mut state = String::new();
        wait("the job to end", || {
            let squeue = format!("squeue --noheader --states=all --format=%T --job={}", self.number);
            self.cluster.shell(&squeue).trim().clone_into(&mut state);
            !["PENDING", "CONFIGURING", "RUNNING", "COMPLETING"].contains(&&*state)
        });
        state
    }

    /// The report of `train --json` when it has ended well.
    pub(crate) fn report(&self) -> Value {
        let (state, printed) = (self.end(), self.printed());
        assert_eq!(state, "COMPLETED", "{printed}");
        // After what was printed before a requeue, and beside what Slurm says.
        let lines: Vec<&str> = printed.lines().collect();
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

/// Sleeps until something is so.
pub(crate) fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let patience = Instant::now();
    while !is_so() {
        assert!(patience.elapsed() < Duration::from_secs(180), "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
