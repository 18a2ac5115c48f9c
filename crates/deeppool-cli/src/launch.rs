//! The command `deeppool launch`.

use std::ffi::OsString;
use std::io::{BufReader, stderr};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use command_line::numbers::within;

use super::checkpoints::{has_checkpoint_option, has_option};
use super::counts::THREADS;
use super::launched::{Launched, WITHOUT_MPI, launched};
use super::mpirun_messages::forward;
use super::segment_folder::SegmentFolder;
use super::signal::{is_stopped, stop_signal};

/// Start a command as several processes on this host with Open MPI's mpirun, one per rank
///
/// Rank 0 prints the output, and errors name their rank. If a rank fails, all ranks end. Ctrl-C or
/// SIGTERM ends the ranks through mpirun, which leaves them one or two seconds to write a
/// checkpoint.
#[derive(Args)]
#[command(after_help = "Examples:
  deeppool launch --ranks 4 -- train --model digits-cnn --data digits --batch 32
  deeppool launch --ranks 2 -- profile --model digits-cnn --ranks 2 -o profile.json --link-output link.json
  deeppool launch --ranks 4 --restarts 3 -- train --plan plan.json --model digits-cnn --data digits \
  --checkpoint run1
  deeppool launch --ranks 4 --restarts 3 --elastic -- train --model digits-cnn --data digits --batch 32 \
  --checkpoint run1

Several hosts: mpirun -n 4 -H host1:2,host2:2 deeppool train ...; Slurm: see deeppool slurm --help")]
pub(crate) struct Launch {
    /// Number of ranks
    #[arg(long, value_parser = within(THREADS))]
    ranks: usize,
    /// Maximum number of restarts from the last checkpoint after a rank has failed
    #[arg(long, value_name = "N", default_value = "0", value_parser = within(0..=1000))]
    restarts: usize,
    /// Continue with one rank less and a new plan after each failure
    #[arg(long, requires = "restarts")]
    elastic: bool,
    /// Command of each rank, such as `train --model digits-cnn ...`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Settings of Open MPI on one host: ranks may share cores.
const SETTINGS: [(&str, &str); 3] = [
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("OMPI_MCA_hwloc_base_binding_policy", "none"),
    ("OMPI_MCA_mpi_yield_when_idle", "1"),
];
/// Settings that Open MPI requires from root, the usual user in containers.
const AS_ROOT: [&str; 2] = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];

/// Interval at which mpirun is polled.
const POLL: Duration = Duration::from_millis(20);

impl Launch {
    /// Runs the command on all ranks until it succeeds, its input is wrong, it is stopped, or no
    /// restarts are left. Returns the exit code of the last run: 0, 1, or 2 for wrong input.
    ///
    /// # Errors
    /// If the options do not fit the command, or mpirun cannot be started.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        self.check()?;
        stop_signal()?;
        let mut command = self.command.clone();
        let (mut ranks, mut restarts_left) = (self.ranks, self.restarts);
        loop {
            let code = run_once(ranks, &command)?;
            // Do not restart after success, wrong input or a stop signal.
            if code == 0 || code == 2 || is_stopped() || restarts_left == 0 {
                return Ok(ExitCode::from(code));
            }
            restarts_left -= 1;
            if self.elastic {
                ranks = (ranks - 1).max(1);
            }
            eprintln!(
                "a rank failed: going on from the last checkpoint on {ranks} of {} ranks; {restarts_left} \
                 more restarts",
                self.ranks
            );
            if !command.iter().any(|argument| argument == "--resume") {
                command.push("--resume".into());
            }
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        if Launched::from_env().is_some() {
            bail!(
                "mpirun or srun has started this already: start `deeppool train ...` by it, or use `deeppool \
                 launch` alone"
            );
        }
        launched()?;
        if !cfg!(feature = "mpi") {
            bail!(WITHOUT_MPI);
        }
        if self.command.first().is_none_or(|command| command != "train" && command != "profile") {
            bail!(
                "only `train` and `profile` run on several ranks: deeppool launch --ranks {} -- train ...",
                self.ranks
            );
        }
        if self.restarts > 0 && !has_checkpoint_option(&self.command) {
            bail!("--restarts needs checkpoints to go on from: give the command --checkpoint DIR");
        }
        // Both options fix the number of ranks.
        let fixed = ["--plan", "--ranks"].into_iter().find(|&option| has_option(&self.command, option));
        if let Some(option) = fixed.filter(|_| self.elastic) {
            bail!(
                "--elastic plans anew for the ranks that there are: leave {option} out, and say --mode or \
                 --amplification"
            );
        }
        Ok(())
    }
}

/// Runs all ranks once and returns their exit code: 0, 1, or 2 for wrong input.
fn run_once(ranks: usize, arguments: &[OsString]) -> anyhow::Result<u8> {
    let program = std::env::current_exe().context("this program's own path")?;
    let segment_folder = SegmentFolder::new();
    let mut mpirun = mpirun(ranks, &program, arguments)
        .envs(segment_folder.variable())
        .spawn()
        .context("mpirun cannot be started: install Open MPI (openmpi-bin)")?;
    let messages =
        mpirun.stderr.take().map(|messages| thread::spawn(|| forward(BufReader::new(messages), stderr())));
    let mut is_told = false;
    let status = loop {
        if let Some(status) = mpirun.try_wait().context("mpirun")? {
            break status;
        }
        if is_stopped() && !is_told {
            terminate(&mpirun);
            is_told = true;
        }
        thread::sleep(POLL);
    };
    if let Some(messages) = messages {
        // Errors of forwarding messages are ignored.
        let _ = messages.join();
    }
    Ok(match status.code() {
        Some(0) => 0,
        Some(2) => 2,
        _ => 1,
    })
}

fn mpirun(ranks: usize, program: &Path, arguments: &[OsString]) -> Command {
    let mut mpirun = Command::new("mpirun");
    mpirun.args(["-n", &ranks.to_string()]);
    mpirun.arg(program).args(arguments);
    mpirun.envs(SETTINGS.into_iter().filter(|(name, _)| std::env::var_os(name).is_none()));
    mpirun.envs(AS_ROOT.map(|name| (name, "1")));
    mpirun.stdin(Stdio::null()).stderr(Stdio::piped());
    // Ctrl-C reaches this process only, which forwards it once: mpirun does not wait for its ranks
    // after a second signal.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut mpirun, 0);
    mpirun
}

/// Sends SIGTERM to mpirun, which forwards it to its ranks.
fn terminate(mpirun: &Child) {
    #[cfg(unix)]
    if let Ok(process) = i32::try_from(mpirun.id()) {
        use nix::sys::signal::{Signal, kill};
        // The process may have ended already.
        let _ = kill(nix::unistd::Pid::from_raw(process), Signal::SIGTERM);
    }
}
