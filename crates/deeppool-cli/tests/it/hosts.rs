//! Two hosts with a network of 1 Gbit/s between them, started by the script `tests/hosts/hosts`,
//! under `mpirun`.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::cluster::{succeeded, wait};
use crate::command::{files, json, losses};
use crate::comparison::{distance, random_plan};
use crate::mpi::iterations;
use crate::setup::Setup;

/// Running hosts, which end when this value is dropped or this process ends.
pub(crate) struct Hosts {
    /// Dropped together with the hosts.
    _setup: Setup,
    /// Process whose namespaces contain the hosts.
    inside: String,
    own: TempDir,
}

/// Settings and options of mpirun for such hosts: root, fewer cores than ranks, and no `ssh`. A
/// lost host is noticed within 15 s, after the ranks had time to name it.
const MPIRUN: &str = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none \
    mpirun --mca plm rsh --mca btl_tcp_if_include net0 --mca oob_tcp_if_include net0 \
    --mca oob_tcp_keepalive_time 5 --mca oob_tcp_keepalive_intvl 3 --mca oob_tcp_keepalive_probes 3 \
    -n 4 -H host1:2,host2:2";

impl Hosts {
    /// Starts the hosts. Prints the reason and returns `None` if the machine does not allow it.
    pub(crate) fn start() -> Option<Self> {
        if Command::new("mpirun").arg("--version").stdout(Stdio::null()).status().is_err() {
            println!("SKIPPED: two hosts: there is no mpirun on the PATH");
            return None;
        }
        let own = TempDir::new().unwrap();
        let setup = Setup::start("two hosts", "hosts/hosts", &[own.path()])?;
        let number = setup.id();
        let inside = std::fs::read_to_string(format!("/proc/{number}/task/{number}/children")).unwrap();
        Some(Self { _setup: setup, inside: inside.trim().to_owned(), own })
    }

    /// Returns the folder that both hosts share.
    pub(crate) fn folder(&self) -> &Path {
        self.own.path()
    }

    /// Returns a command that runs a line of shell commands on a host.
    pub(crate) fn on(&self, host: &str, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.inside, "--pid", "--mount", "--uts", "--net", "--"]);
        command.arg(self.folder().join("agent")).args([host, line]);
        command.current_dir(self.folder()).stdin(Stdio::null()).env("TMPDIR", self.folder());
        command
    }

    /// Returns a command that runs four ranks of `deeppool`, two on each host.
    pub(crate) fn ranks(&self, arguments: &str) -> Command {
        let agent = self.folder().join("agent");
        let deeppool = env!("CARGO_BIN_EXE_deeppool");
        let line = format!("{MPIRUN} --mca plm_rsh_agent {} {deeppool} {arguments}", agent.display());
        self.on("host1", &line)
    }

    /// Disables the network of a host.
    pub(crate) fn cut_off(&self, host: &str) {
        self.set_network(host, "down");
    }

    /// Enables the network of a host, and waits until the hosts reach each other, which takes one
    /// or two seconds.
    pub(crate) fn reconnect(&self, host: &str) {
        self.set_network(host, "up");
        for (from, to) in [("host1", "host2"), ("host2", "host1")] {
            // A reachable host refuses this connection.
            let connect = format!("timeout 1 bash -c '</dev/tcp/{to}/9'");
            wait("the network to be back", || {
                let output = self.on(from, &connect).output().unwrap();
                String::from_utf8_lossy(&output.stderr).contains("Connection refused")
            });
        }
    }

    fn set_network(&self, host: &str, state: &str) {
        let line = format!("PATH=$PATH:/usr/sbin ip link set net0 {state}");
        assert!(self.on(host, &line).status().unwrap().success());
    }

    /// Waits until no process and no shared memory of Open MPI is left on them.
    pub(crate) fn wait_until_idle(&self) {
        let folder = self.folder().as_os_str().as_encoded_bytes();
        let is_ours = |process: std::fs::DirEntry| {
            let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            let is_of_mpi = command.starts_with(b"orted") || command.starts_with(b"mpirun");
            is_of_mpi && command.windows(folder.len()).any(|part| part == folder)
        };
        wait("mpirun's daemons to end", || {
            !std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).any(is_ours)
        });
        for host in ["host1", "host2"] {
            let left = succeeded("ls", &self.on(host, "ls /dev/shm").output().unwrap());
            assert!(left.is_empty(), "left behind on {host}: {left}");
        }
        let left: Vec<String> =
            files(self.folder()).into_iter().filter(|name| name.starts_with("ompi.")).collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

#[test]
fn losses_on_two_hosts_match_threads() {
    let Some(hosts) = Hosts::start() else { return };
    let run =
        format!("train --model digits-cnn --data digits --batch 32 --iterations {} --json", iterations());
    random_plan(hosts.folder(), 4);
    let random = format!("--plan {}", hosts.folder().join("random4.json").display());
    for mode in ["--mode dp", "--amplification 2", &random] {
        let threads = json(hosts.folder(), &format!("{run} {mode} --ranks 4"));
        for background in ["", "--background digits-cnn:8"] {
            let line = format!("{run} {mode} {background}");
            let printed = succeeded(&line, &hosts.ranks(&line).output().unwrap());
            let processes = serde_json::from_str(&printed).unwrap();
            let distance = distance(&losses(&threads), &losses(&processes));
            println!("{mode} {background}: {distance:.1e}");
            assert!(distance <= 1e-4, "{mode} {background}: {distance:.1e}");
            assert_eq!(processes["background_samples_per_s"].as_f64().unwrap() > 0.0, !background.is_empty());
            hosts.wait_until_idle();
        }
    }
}
