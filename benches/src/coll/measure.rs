//! Options of the default command, which measures.

use std::ffi::c_int;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use collectives::CollectiveKind;
use command_line::one_line;

use crate::coll::backend::{Backend, Implementation, Wait};
use crate::coll::mpi::Mpirun;
use crate::coll::rounds::MeasurementSchedule;
use crate::coll::timing::SampleOptions;
use crate::coll::{CollOperation, memory, results, size, table};
use crate::command::{bad_input, check_results};

/// Maximum number of ranks. More would measure only the scheduler.
const MAX_RANKS: usize = 1024;
/// Maximum number of rounds, and of samples in a round.
const MAX_REPEATS: usize = 10_000;

/// Options of the default command, which measures collectives.
#[derive(Args)]
pub(crate) struct Measure {
    /// Group sizes
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "4")]
    ranks: Vec<usize>,
    /// Message sizes, rounded down to whole elements for each rank
    #[arg(long, value_name = "SIZE,..", value_delimiter = ',', value_parser = size::parse,
          default_value = "4KiB,256KiB,4MiB,64MiB")]
    sizes: Vec<u64>,
    /// all-reduce, reduce-scatter, all-gather, broadcast, all-to-all, send (always between
    /// two ranks), barrier, redistribution
    #[arg(long, value_name = "OP,..", value_delimiter = ',', default_value = "all-reduce")]
    op: Vec<CollOperation>,
    /// Backends to measure [default: all available]
    #[arg(long, value_name = "BACKEND,..", value_delimiter = ',')]
    backend: Vec<Backend>,
    /// Wait strategies of ranks
    #[arg(long, value_name = "WAIT,..", value_delimiter = ',', default_value = "spin,yield,park")]
    wait: Vec<Wait>,
    /// Number of rounds, each of which measures every backend
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Number of samples of each operation in a round
    #[arg(long, value_name = "N", default_value_t = 3)]
    samples: usize,
    /// Minimum duration of a sample
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "60ms")]
    min_time: Duration,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Also write the JSON object to this file
    #[arg(short, long, value_name = "FILE", value_parser = command_line::files::argument())]
    output: Option<PathBuf>,
}

impl Measure {
    /// Measures, prints the results and writes the file. Results before a failure are printed as
    /// well.
    ///
    /// # Errors
    /// Bad input, if an option is invalid; otherwise if a measurement fails.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let printer = check_results(&self.output, self.json)?;
        let (series, outcome) = self.schedule()?.run();
        let report = results::report(&series);
        if report.rows.is_empty() {
            return outcome;
        }
        // The measurements are printed even if something else fails.
        let text = if self.json { report.to_json() } else { table::format(&report, &self.conditions()) };
        printer.line(format_args!("{text}"))?;
        if let Some(path) = &self.output {
            command_line::files::write(path, report.to_json() + "\n")?;
        }
        outcome
    }

    fn schedule(&self) -> anyhow::Result<MeasurementSchedule> {
        let within = |name, value| {
            let is_within = (1..=MAX_REPEATS).contains(&value);
            if is_within {
                Ok(())
            } else {
                Err(bad_input(format!("{name} has to be from 1 to {MAX_REPEATS}")))
            }
        };
        within("--rounds", self.rounds)?;
        within("--samples", self.samples)?;
        let mut groups: Vec<(usize, Vec<(CollOperation, u64)>)> = Vec::new();
        let mut changed = ChangedSizes::default();
        for &ranks in &self.ranks {
            if ranks > MAX_RANKS {
                return Err(bad_input(format!(
                    "--ranks {ranks}: at most {MAX_RANKS} ranks of one machine are measured"
                )));
            }
            if ranks < 2 {
                return Err(bad_input(format!(
                    "--ranks {ranks}: there is nothing to measure between fewer than 2 ranks"
                )));
            }
            for &op in &self.op {
                // A ping-pong between two ranks only: idle ranks would use CPU time while they
                // wait.
                let ranks = if op == CollOperation::Collective(CollectiveKind::Send) { 2 } else { ranks };
                for &bytes in &self.sizes {
                    let operation = (op, whole_bytes(op, ranks, bytes)?);
                    changed.count(op, bytes, operation.1);
                    match groups.iter_mut().find(|(of, _)| *of == ranks) {
                        Some((_, operations)) if operations.contains(&operation) => changed.repeated += 1,
                        Some((_, operations)) => operations.push(operation),
                        None => groups.push((ranks, vec![operation])),
                    }
                }
            }
        }
        changed.warn();
        let sample_options = SampleOptions { samples: self.samples, min_time: self.min_time };
        memory::check(&groups)?;
        let (implementations, mpirun) = self.implementations()?;
        if mpirun.is_some() {
            check_counts(&groups)?;
        }
        Ok(MeasurementSchedule { implementations, mpirun, groups, rounds: self.rounds, sample_options })
    }

    /// Returns the implementations to measure, and `mpirun` if it is available or needed.
    fn implementations(&self) -> anyhow::Result<(Vec<Implementation>, Option<Mpirun>)> {
        let mpirun = match self.backend.as_slice() {
            // A missing feature is not reported unless MPI was requested.
            [] if !cfg!(feature = "mpi") => None,
            [] => Mpirun::find()
                .map_err(|error| eprintln!("{}", one_line(&format!("threads only: {error:#}"))))
                .ok(),
            asked if asked.iter().all(|&backend| backend == Backend::Threads) => None,
            _ => Some(Mpirun::find()?),
        };
        let backends = match (self.backend.as_slice(), &mpirun) {
            ([], None) => &[Backend::Threads][..],
            ([], Some(_)) => &[Backend::Threads, Backend::OpenMpi, Backend::Mpi],
            (asked, _) => asked,
        };
        let mut implementations = Vec::new();
        for backend in backends {
            let waits = self.wait.iter().copied();
            let new: Vec<Implementation> = match backend {
                Backend::Threads => waits.map(Implementation::Threads).collect(),
                Backend::Mpi => waits.map(Implementation::Mpi).collect(),
                Backend::OpenMpi => vec![Implementation::OpenMpi],
            };
            for implementation in new {
                if !implementations.contains(&implementation) {
                    implementations.push(implementation);
                }
            }
        }
        Ok((implementations, mpirun))
    }

    fn conditions(&self) -> String {
        let Self { rounds, samples, min_time, .. } = self;
        format!(
            "{rounds} rounds of {samples} samples of {min_time:?}; median and percentiles of the samples; \
             bus bandwidth as in nccl-tests"
        )
    }
}

/// Numbers of operations that are measured otherwise than asked.
#[derive(Default)]
struct ChangedSizes {
    /// Number of all operations: group size, operation and message size.
    all: usize,
    /// Number of those of another message size.
    rounded: usize,
    /// Number of those that are measured once for several: a send is always between two ranks, a
    /// barrier has no size, and sizes may be equal after rounding.
    repeated: usize,
}

impl ChangedSizes {
    fn count(&mut self, op: CollOperation, asked: u64, bytes: u64) {
        self.all += 1;
        self.rounded +=
            usize::from(asked != bytes && op != CollOperation::Collective(CollectiveKind::Barrier));
    }

    /// Prints a line on standard error if there are such operations.
    fn warn(&self) {
        let Self { all, rounded, repeated } = self;
        if rounded + repeated > 0 {
            eprintln!(
                "warning: of {all} operations, {rounded} have a size that is rounded down to whole elements \
                 for each rank, and {repeated} are equal to another one and left out"
            );
        }
    }
}

/// Rounds a size down to whole elements, for each rank if the buffer is divided among the ranks, or
/// to whole rows of a matrix.
fn whole_bytes(op: CollOperation, ranks: usize, bytes: u64) -> anyhow::Result<u64> {
    let parts = match op {
        CollOperation::Redistribution => CollOperation::columns(ranks),
        CollOperation::Collective(collective) => match collective {
            CollectiveKind::Barrier => return Ok(0),
            CollectiveKind::ReduceScatter | CollectiveKind::AllGather | CollectiveKind::AllToAll => ranks,
            _ => 1,
        },
    };
    let unit = parts as u64 * size_of::<f32>() as u64;
    if bytes < unit {
        return Err(bad_input(format!(
            "{bytes} B are too few for {op} among {ranks} ranks: give at least {unit} B"
        )));
    }
    Ok(bytes / unit * unit)
}

/// Returns an error if an operation has more elements than a C `int`, in which MPI counts.
fn check_counts(groups: &[(usize, Vec<(CollOperation, u64)>)]) -> anyhow::Result<()> {
    let max_bytes = c_int::MAX as u64 * size_of::<f32>() as u64;
    match groups.iter().flat_map(|(_, operations)| operations).find(|(_, bytes)| *bytes > max_bytes) {
        None => Ok(()),
        Some((op, bytes)) => Err(bad_input(format!(
            "{} are more elements for {op} than MPI can count: give at most {max_bytes} B, \
             or --backend threads",
            size::format(*bytes)
        ))),
    }
}

/// Parses a time such as `60ms`.
fn parse_time(text: &str) -> Result<Duration, String> {
    // The unit `s` is a suffix of the other two, and is therefore last.
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let seconds = units
        .iter()
        .find_map(|(unit, seconds)| Some(text.strip_suffix(unit)?.trim_end().parse::<f64>().ok()? * seconds));
    let in_range = |seconds: &f64| *seconds > 0.0 && *seconds <= 60.0;
    let seconds = seconds.filter(in_range).ok_or("expected a time up to 60s with its unit, such as 60ms")?;
    Ok(Duration::from_secs_f64(seconds))
}
