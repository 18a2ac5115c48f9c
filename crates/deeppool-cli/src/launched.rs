//! Detection of launchers such as mpirun, srun and torchrun.

use std::time::Duration;

use anyhow::bail;

/// Kind of launcher that started the processes of a run, one per rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Launcher {
    /// `mpirun`, or `srun --mpi=pmix`.
    Mpi,
    /// `torchrun`, or anything that sets its environment variables.
    Torchrun,
}

/// Place of this process among those that a launcher started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Launched {
    /// Rank of this process, from 0.
    pub(crate) rank: usize,
    /// Number of ranks on all hosts.
    pub(crate) ranks: usize,
    /// Number of ranks on this host.
    pub(crate) on_host: usize,
    /// Kind of launcher that started the process.
    pub(crate) launcher: Launcher,
}

/// Delay before a rank prints an error that is a consequence of the error of another rank. The
/// launcher usually ends it before.
const CONSEQUENCE_DELAY: Duration = Duration::from_secs(3);

/// Delay between printing an error and the end of the rank, because srun loses output that it has
/// not forwarded when a rank ends.
const EXIT_DELAY: Duration = Duration::from_millis(300);

/// Error message of builds without MPI.
pub(crate) const WITHOUT_MPI: &str = "this deeppool was built without MPI: build with `--features mpi`";

impl Launched {
    /// Reads the place of this process from the environment variables of launchers. Returns `None`
    /// if no launcher started it.
    pub(crate) fn from_env() -> Option<Self> {
        Self::read(|name| std::env::var(name).ok())
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        // `4` or, for several hosts, `4(x2),3`.
        let leading = |text: String| text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
        let number = |name: &str| variable(name).and_then(leading);
        let open_mpi = || Some((number("OMPI_COMM_WORLD_RANK")?, number("OMPI_COMM_WORLD_SIZE")?));
        let slurm = || Some((number("PMIX_RANK")?, number("SLURM_STEP_NUM_TASKS")?));
        if let Some((rank, ranks)) = open_mpi().or_else(slurm) {
            let on_host =
                number("OMPI_COMM_WORLD_LOCAL_SIZE").or_else(|| number("SLURM_STEP_TASKS_PER_NODE"));
            return Some(Self { rank, ranks, on_host: on_host.unwrap_or(ranks), launcher: Launcher::Mpi });
        }
        variable("MASTER_ADDR")?;
        let (rank, ranks) = (number("RANK")?, number("WORLD_SIZE")?);
        let on_host = number("LOCAL_WORLD_SIZE").unwrap_or(ranks);
        Some(Self { rank, ranks, on_host, launcher: Launcher::Torchrun })
    }
}

/// Returns the place of this process among those of a launcher, or `None` if ranks are threads of
/// this process.
///
/// # Errors
/// If an MPI launcher or srun started this, and the processes cannot be connected: this build has
/// no MPI, or srun was started without it.
pub(crate) fn launched() -> anyhow::Result<Option<Launched>> {
    let is_several = |name: &str| std::env::var(name).is_ok_and(|count| count != "1");
    match Launched::from_env() {
        Some(launched @ Launched { launcher: Launcher::Torchrun, .. }) => Ok(Some(launched)),
        Some(Launched { ranks: 1, .. }) if !cfg!(feature = "mpi") => Ok(None),
        Some(_) if !cfg!(feature = "mpi") => bail!("an MPI launcher started this, and {WITHOUT_MPI}"),
        Some(launched) => Ok(Some(launched)),
        None if is_several("SLURM_STEP_NUM_TASKS") => {
            bail!("srun started several processes without MPI: give it --mpi=pmix")
        }
        None => Ok(None),
    }
}

/// Returns whether this process is rank 0, which prints for all ranks, or has no launcher.
pub(crate) fn is_first() -> bool {
    Launched::from_env().is_none_or(|launched| launched.rank == 0)
}

/// Prints an error to standard error so that, as a rule, one rank prints it for all. `line` is its
/// message.
///
/// An error that all ranks have is printed by rank 0 at once. Other ranks, and errors that are a
/// consequence of the failure of another rank, are delayed, so that the launcher ends them before.
pub(crate) fn print_error(error: &anyhow::Error, line: &str) {
    let of_ours = error.chain().find_map(|error| error.downcast_ref::<deeppool::Error>());
    let is_consequence = of_ours.is_some_and(deeppool::Error::is_consequence);
    let is_own = of_ours.is_some_and(|error| !error.is_input() && !is_consequence && !error.is_stop());
    print_once(line, is_own, is_consequence);
}

/// Prints the message of a usage error, which all ranks have, as [`print_error`] does.
pub(crate) fn print_usage_error(line: &str) {
    print_once(line, false, false);
}

fn print_once(line: &str, is_own: bool, is_consequence: bool) {
    let here = Launched::from_env();
    let of_rank = match here {
        None => String::new(),
        Some(Launched { rank, .. }) => {
            if !is_own && (rank > 0 || is_consequence) {
                std::thread::sleep(CONSEQUENCE_DELAY);
            }
            format!("rank {rank}: ")
        }
    };
    // One write, because launchers interleave the writes of several ranks.
    let line = format!("error: {of_rank}{line}\n");
    eprint!("{line}");
    if here.is_some() {
        std::thread::sleep(EXIT_DELAY);
    }
}

#[cfg(test)]
mod tests {
    use super::{Launched, Launcher};

    #[test]
    fn launchers_are_detected_by_their_variables() {
        let read = |all: &[(&str, &str)]| {
            Launched::read(|name| {
                all.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
            })
        };
        assert_eq!(read(&[("SLURM_NTASKS", "4")]), None);
        let open_mpi = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ];
        assert_eq!(
            read(&open_mpi),
            Some(Launched { rank: 1, ranks: 4, on_host: 2, launcher: Launcher::Mpi })
        );
        let slurm =
            [("PMIX_RANK", "3"), ("SLURM_STEP_NUM_TASKS", "6"), ("SLURM_STEP_TASKS_PER_NODE", "4(x1),2")];
        assert_eq!(read(&slurm), Some(Launched { rank: 3, ranks: 6, on_host: 4, launcher: Launcher::Mpi }));
        let torchrun =
            [("MASTER_ADDR", "here"), ("RANK", "2"), ("WORLD_SIZE", "4"), ("LOCAL_WORLD_SIZE", "2")];
        assert_eq!(
            read(&torchrun),
            Some(Launched { rank: 2, ranks: 4, on_host: 2, launcher: Launcher::Torchrun })
        );
        assert_eq!(read(&torchrun[1..]), None);
    }
}
