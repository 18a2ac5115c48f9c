//! Detection of launchers such as mpirun, srun and torchrun, and refusal of those whose processes
//! cannot be connected.

use std::fmt::{self, Display, Formatter};
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

/// Environment variable whose value `none` says that launchers are ignored: every process runs
/// alone.
const OVERRIDE: &str = "DEEPPOOL_LAUNCHER";

/// A launcher whose processes `deeppool` cannot connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ForeignLauncher {
    /// Name of the launcher.
    name: &'static str,
    /// Variable with the rank of a process.
    rank: &'static str,
    /// Variables with the number of processes. Versions of a launcher set different ones, or none.
    sizes: &'static [&'static str],
}

/// Launchers that are not supported. Those that also set the variables of another one come before
/// it: several implement MPICH's interface PMI.
const FOREIGN: [ForeignLauncher; 10] = [
    ForeignLauncher { name: "horovodrun", rank: "HOROVOD_RANK", sizes: &["HOROVOD_SIZE"] },
    ForeignLauncher { name: "MVAPICH", rank: "MV2_COMM_WORLD_RANK", sizes: &["MV2_COMM_WORLD_SIZE"] },
    ForeignLauncher { name: "MVAPICH", rank: "MVP_COMM_WORLD_RANK", sizes: &["MVP_COMM_WORLD_SIZE"] },
    ForeignLauncher { name: "Flux", rank: "FLUX_TASK_RANK", sizes: &["FLUX_JOB_SIZE"] },
    ForeignLauncher { name: "PALS", rank: "PALS_RANKID", sizes: &["PALS_SIZE", "PALS_NRANKS", "PMI_SIZE"] },
    ForeignLauncher { name: "jsrun", rank: "JSM_NAMESPACE_RANK", sizes: &["JSM_NAMESPACE_SIZE"] },
    ForeignLauncher { name: "aprun", rank: "ALPS_APP_PE", sizes: &[] },
    ForeignLauncher {
        name: "MPICH, Intel MPI or another launcher by PMI",
        rank: "PMI_RANK",
        sizes: &["PMI_SIZE"],
    },
    ForeignLauncher { name: "a launcher by PMIx", rank: "PMIX_RANK", sizes: &[] },
    ForeignLauncher {
        name: "a launcher without MASTER_ADDR, or with a RANK outside WORLD_SIZE,",
        rank: "RANK",
        sizes: &["WORLD_SIZE"],
    },
];

/// Place of this process among several that a launcher started that is not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Foreign {
    launcher: ForeignLauncher,
    /// Rank of this process, from 0; 0 if it is not known.
    rank: usize,
    /// Variable that says that there are several processes, and its value.
    evidence: (&'static str, usize),
}

impl Foreign {
    /// Reads the environment variables of the launchers that are not supported. Returns `None` if
    /// none of them started several processes.
    fn read(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        if is_ignored(&variable) {
            return None;
        }
        let number = |name: &str| variable(name).as_deref().and_then(leading_number);
        FOREIGN.into_iter().find_map(|launcher| {
            let rank = number(launcher.rank)?;
            let mut sizes = launcher.sizes.iter().filter_map(|&name| Some((name, number(name)?)));
            // Without a size, a rank above 0 shows that there are several.
            let evidence = sizes.find(|&(_, size)| size > 1);
            let evidence = evidence.or_else(|| (rank > 0).then_some((launcher.rank, rank)));
            Some(Self { launcher, rank, evidence: evidence? })
        })
    }
}

impl Display for Foreign {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (variable, value) = self.evidence;
        write!(
            f,
            "{variable}={value}: {} started several processes, which cannot be connected, so that each would \
             do the whole work: start them with `deeppool launch`, Open MPI's mpirun or `srun --mpi=pmix`{}, \
             or set {OVERRIDE}=none for processes that are to work alone",
            self.launcher.name,
            if cfg!(feature = "mpi") { "" } else { " (all need a build with `--features mpi`)" },
        )
    }
}

/// Parses the number at the start of a text, such as `4(x2),3`, which Slurm has for several hosts.
fn leading_number(text: &str) -> Option<usize> {
    text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn is_ignored(variable: impl Fn(&str) -> Option<String>) -> bool {
    variable(OVERRIDE).is_some_and(|value| value == "none")
}

fn in_environment(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

impl Launched {
    /// Reads the place of this process from the environment variables of launchers. Returns `None`
    /// if no launcher started it, or launchers are ignored.
    pub(crate) fn from_env() -> Option<Self> {
        Self::read(in_environment)
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        if is_ignored(&variable) {
            return None;
        }
        let number = |name: &str| variable(name).as_deref().and_then(leading_number);
        let place = |rank: &str, size: &str| {
            Some((number(rank)?, number(size)?)).filter(|(rank, ranks)| rank < ranks)
        };
        let open_mpi = || place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
        let slurm = || place("PMIX_RANK", "SLURM_STEP_NUM_TASKS");
        if let Some((rank, ranks)) = open_mpi().or_else(slurm) {
            let on_host =
                number("OMPI_COMM_WORLD_LOCAL_SIZE").or_else(|| number("SLURM_STEP_TASKS_PER_NODE"));
            return Some(Self { rank, ranks, on_host: on_host.unwrap_or(ranks), launcher: Launcher::Mpi });
        }
        variable("MASTER_ADDR")?;
        let (rank, ranks) = place("RANK", "WORLD_SIZE")?;
        let on_host = number("LOCAL_WORLD_SIZE").unwrap_or(ranks);
        Some(Self { rank, ranks, on_host, launcher: Launcher::Torchrun })
    }
}

/// Returns the place of this process among those of a launcher, or `None` if ranks are threads of
/// this process.
///
/// # Errors
/// If a launcher started several processes, and they cannot be connected: this build has no MPI,
/// srun was started without it, or the launcher is not supported. If `DEEPPOOL_LAUNCHER` has an
/// unknown value.
pub(crate) fn launched() -> anyhow::Result<Option<Launched>> {
    if let Some(value) = in_environment(OVERRIDE).filter(|value| !value.is_empty() && value != "none") {
        bail!("{OVERRIDE} is `{value}`: set it to `none` to ignore launchers, or leave it out");
    }
    let is_several = |name: &str| in_environment(name).is_some_and(|count| count != "1");
    match Launched::from_env() {
        Some(launched @ Launched { launcher: Launcher::Torchrun, .. }) => Ok(Some(launched)),
        Some(Launched { ranks: 1, .. }) if !cfg!(feature = "mpi") => Ok(None),
        Some(_) if !cfg!(feature = "mpi") => bail!("an MPI launcher started this, and {WITHOUT_MPI}"),
        Some(launched) => Ok(Some(launched)),
        None if is_several("SLURM_STEP_NUM_TASKS") && !is_ignored(in_environment) => {
            bail!("srun started several processes without MPI: give it --mpi=pmix")
        }
        None => match Foreign::read(in_environment) {
            Some(foreign) => bail!("{foreign}"),
            None => Ok(None),
        },
    }
}

/// Checks that no launcher started several processes of a command that runs in one process, such as
/// `profile`.
///
/// # Errors
/// If a launcher started several.
pub(crate) fn check_alone(command: &str) -> anyhow::Result<()> {
    match launched()? {
        Some(Launched { ranks, .. }) if ranks > 1 => bail!(
            "a launcher started {ranks} processes, and `deeppool {command}` runs in one: start it without \
             the launcher, or set {OVERRIDE}=none for processes that are to work alone"
        ),
        _ => Ok(()),
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
        None => {
            if !is_own && Foreign::read(in_environment).is_some_and(|foreign| foreign.rank > 0) {
                std::thread::sleep(CONSEQUENCE_DELAY);
            }
            String::new()
        }
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
    use super::{FOREIGN, Foreign, Launched, Launcher};

    fn variable(all: &[(&str, &str)], name: &str) -> Option<String> {
        all.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
    }

    fn read(all: &[(&str, &str)]) -> Option<Launched> {
        Launched::read(|name| variable(all, name))
    }

    #[test]
    fn launchers_are_detected_by_their_variables() {
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

    #[test]
    fn a_rank_outside_the_size_is_of_another_launcher() {
        assert_eq!(read(&[("PMIX_RANK", "3"), ("SLURM_STEP_NUM_TASKS", "1")]), None);
        assert_eq!(read(&[("OMPI_COMM_WORLD_RANK", "4"), ("OMPI_COMM_WORLD_SIZE", "4")]), None);
        assert_eq!(read(&[("MASTER_ADDR", "here"), ("RANK", "5"), ("WORLD_SIZE", "1")]), None);
    }

    #[test]
    fn unsupported_launchers_count_if_they_started_several_processes() {
        let foreign = |all: &[(&str, &str)]| Foreign::read(|name| variable(all, name));
        for launcher in FOREIGN {
            for &size in launcher.sizes {
                let several = foreign(&[(launcher.rank, "0"), (size, "4")]).unwrap();
                assert_eq!((several.launcher, several.rank, several.evidence), (launcher, 0, (size, 4)));
                assert_eq!(foreign(&[(launcher.rank, "0"), (size, "1")]), None, "{size}");
                assert_eq!(foreign(&[(size, "4")]), None, "{size}");
            }
            assert_eq!(foreign(&[(launcher.rank, "2")]).unwrap().evidence, (launcher.rank, 2));
            assert_eq!(foreign(&[(launcher.rank, "2"), ("DEEPPOOL_LAUNCHER", "none")]), None);
        }
        assert_eq!(foreign(&[("PMI_RANK", "x"), ("PMI_SIZE", "4")]), None);
    }

    #[test]
    fn all_launchers_can_be_ignored() {
        let open_mpi = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
        assert!(read(&open_mpi).is_some());
        assert_eq!(read(&[open_mpi[0], open_mpi[1], ("DEEPPOOL_LAUNCHER", "none")]), None);
    }
}
