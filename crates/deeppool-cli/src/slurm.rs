//! The command `deeppool slurm`.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{ArgMatches, Args};
use command_line::numbers::within;
use command_line::with_negative_numbers;

use super::checkpoints::has_checkpoint_option;
use super::inputs;
use super::job_script::{JobScript, TimeLimit};
use super::launched::WITHOUT_MPI;
use super::output::{check_outputs, print_message};
use super::train::Train;

/// Valid numbers of nodes, and of ranks per node.
const PROCESSES: RangeInclusive<usize> = 1..=16_384;
/// Valid warning times in Slurm, in seconds.
const WARNING_S: RangeInclusive<usize> = 1..=65_535;
/// Valid numbers of restarts without a newer checkpoint.
const RESTARTS: RangeInclusive<usize> = 0..=1000;
/// Folders that hosts do not share.
const UNSHARED_FOLDERS: [&str; 6] = ["/tmp", "/var/tmp", "/dev", "/run", "/proc", "/sys"];

/// Write a job script for sbatch of Slurm, which trains on several nodes and resumes from its
/// checkpoint after a requeue
///
/// Ranks are started by `srun --mpi=pmix`. The program must have been built with the feature mpi,
/// and be at the same path on all nodes. Relative paths refer to the current folder. Before the
/// time limit, ranks write a checkpoint. A job that ends unfinished (time limit, or a killed rank)
/// requeues itself if there is a checkpoint; `scancel` ends it.
#[derive(Args)]
#[command(after_help = "Examples:
  deeppool plan --model digits-cnn --device cpu-core --gpus 4 --batch 32 -o plan.json
  deeppool slurm --plan plan.json --nodes 2 --time 1:00:00 -o job.sh -- train --model digits-cnn --data digits
  sbatch job.sh                             # then squeue, scancel JOB, scontrol requeue JOB
  sbatch --account mine --gres gpu:2 job.sh # options of the cluster

  deeppool slurm --nodes 2 --ranks-per-node 2 -o - -- train --model digits-cnn --data digits --batch 32 \
  --checkpoint run1")]
pub(crate) struct Slurm {
    /// File of the plan (see `deeppool plan -o`), which determines the number of ranks
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Number of nodes [default: ranks / ranks per node, or 1]
    #[arg(long, value_name = "N", value_parser = within(PROCESSES))]
    nodes: Option<usize>,
    /// Number of ranks per node [default: ranks / nodes]
    #[arg(long, value_name = "N", value_parser = within(PROCESSES))]
    ranks_per_node: Option<usize>,
    /// Number of cores per rank [default: the number of threads per rank]
    #[arg(long, value_name = "N", value_parser = within(PROCESSES))]
    cpus_per_rank: Option<usize>,
    /// Time limit in the format of Slurm: MINUTES, HOURS:MINUTES:SECONDS, DAYS-HOURS, ... [default:
    /// that of the partition]
    #[arg(long, value_name = "TIME")]
    time: Option<TimeLimit>,
    /// Partition [default: that of the cluster]
    #[arg(long, value_name = "NAME", value_parser = name)]
    partition: Option<String>,
    /// Name of the job. Its output goes to JOB_NAME-JOB_ID.out
    #[arg(long, value_name = "NAME", value_parser = name, default_value = "deeppool")]
    job_name: String,
    /// Seconds before the time limit at which ranks write a checkpoint; Slurm may be up to a minute
    /// early
    #[arg(long, value_name = "SECONDS", value_parser = within(WARNING_S), default_value = "60")]
    warning: usize,
    /// Maximum number of restarts from the same checkpoint
    #[arg(long, value_name = "N", value_parser = within(RESTARTS), default_value = "3")]
    restarts: usize,
    /// Program on the nodes [default: this one]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Allow paths in /tmp and similar folders, because the nodes share them
    #[arg(long)]
    shared_tmp: bool,
    /// File of the script; - is standard output
    #[arg(short, long, value_name = "FILE", value_parser = command_line::files::argument())]
    output: PathBuf,
    /// Command of each rank, such as `train --model digits-cnn ...` [default for --checkpoint: a
    /// folder run-JOB_ID]
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Slurm {
    /// Checks the command of the ranks and writes the job script.
    ///
    /// # Errors
    /// If the command is not a valid `train` command, the number of ranks does not fit, or a path
    /// is in a folder that nodes do not share.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        check_outputs([&self.output], false)?;
        let mut command = self.command()?;
        let keeps = has_checkpoint_option(&self.command);
        // The script adds these words.
        let added = if keeps { &[][..] } else { &["--checkpoint", "run-JOB_ID"] };
        let train = parse(command.iter().map(String::as_str).chain(added.iter().copied()))?;
        let (nodes, ranks_per_node) = self.layout(ranks(&train)?)?;
        let ranks = nodes * ranks_per_node;
        if let Some(time) = self.time.as_ref().filter(|time| time.seconds() <= self.warning as u64) {
            bail!(
                "--time {time} is over before a warning of {} seconds: give --warning SECONDS",
                self.warning
            );
        }
        if !train.get_flag("resume") {
            command.push("--resume".into());
        }
        let folder = std::env::current_dir().context("the current folder")?;
        let program = match &self.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().context("this program's own path")?,
        };
        self.check_paths(&command, &folder, &program)?;
        let script = JobScript {
            nodes,
            ranks_per_node,
            cpus_per_rank: self
                .cpus_per_rank
                .or_else(|| train.get_one("threads_per_rank").copied())
                .unwrap_or(1),
            time: self.time.as_ref(),
            partition: self.partition.as_deref(),
            name: &self.job_name,
            warning_s: self.warning,
            restarts: self.restarts,
            folder: utf8(folder.as_os_str())?,
            program: utf8(program.as_os_str())?,
            command: &command,
            checkpoints: match train.get_one::<PathBuf>("checkpoint") {
                Some(folder) if keeps => Some(utf8(folder.as_os_str())?),
                _ => None,
            },
        };
        command_line::files::write(&self.output, script.to_string())?;
        if !command_line::files::is_stdout(&self.output) {
            print_message!(
                "wrote {} (nodes: {nodes}, ranks: {ranks}): submit it with sbatch",
                self.output.display()
            );
        }
        if ranks > 1 && self.program.is_none() && !cfg!(feature = "mpi") {
            eprintln!("warning: {WITHOUT_MPI}, or name one that was with --program PATH");
        }
        Ok(())
    }

    /// Returns the command of each rank, with the option `--plan`.
    fn command(&self) -> anyhow::Result<Vec<String>> {
        let words: anyhow::Result<Vec<&str>> = self.command.iter().map(|word| utf8(word)).collect();
        let mut words: Vec<String> = words?.into_iter().map(str::to_owned).collect();
        if words.first().is_none_or(|command| command != "train") {
            bail!("only `train` runs on several ranks: deeppool slurm ... -- train ...");
        }
        if let Some(plan) = &self.plan {
            words.splice(1..1, ["--plan".to_owned(), utf8(plan.as_os_str())?.to_owned()]);
        }
        Ok(words)
    }

    /// Returns the number of nodes and of ranks per node.
    fn layout(&self, ranks: Option<usize>) -> anyhow::Result<(usize, usize)> {
        let Some(ranks) = ranks else {
            let (Some(nodes), Some(of_node)) = (self.nodes, self.ranks_per_node) else {
                bail!("say how many ranks there are: --plan FILE, or both --nodes and --ranks-per-node");
            };
            return Ok((nodes, of_node));
        };
        let (nodes, of_node) = match (self.nodes, self.ranks_per_node) {
            (None, None) => (1, ranks),
            (Some(nodes), None) => (nodes, ranks / nodes),
            (None, Some(of_node)) => (ranks / of_node, of_node),
            (Some(nodes), Some(of_node)) => (nodes, of_node),
        };
        if nodes * of_node == ranks {
            return Ok((nodes, of_node));
        }
        let given = match (self.nodes, self.ranks_per_node) {
            (Some(nodes), Some(of_node)) => {
                format!("{nodes} nodes of {of_node} ranks each have {}", nodes * of_node)
            }
            (Some(nodes), None) => format!("they cannot be shared equally by {nodes} nodes"),
            (None, _) => format!("nodes of {of_node} ranks each cannot have that many"),
        };
        bail!(
            "the command is for {ranks} ranks, and {given}: --nodes times --ranks-per-node has to be {ranks}"
        );
    }

    /// Checks that no path is in a folder that nodes do not share. Relative paths are below the
    /// current folder.
    fn check_paths(&self, command: &[String], folder: &Path, program: &Path) -> anyhow::Result<()> {
        if !program.is_absolute() {
            bail!("--program {}: give its whole path, which is the same on all nodes", program.display());
        }
        if self.shared_tmp {
            return Ok(());
        }
        // Splits --option=VALUE and mnist:FOLDER.
        let parts = command.iter().flat_map(|word| word.split(['=', ':']));
        let named = parts.map(Path::new).filter(|part| part.is_absolute());
        for path in named.chain([program, folder]) {
            if let Some(of_one) = UNSHARED_FOLDERS.iter().find(|of_one| path.starts_with(of_one)) {
                bail!(
                    "{}: each node has a {of_one} of its own: use a folder that they share, or --shared-tmp \
                     if they share that",
                    path.display()
                );
            }
        }
        Ok(())
    }
}

/// Parses the command line of `train`.
fn parse<'a>(command: impl Iterator<Item = &'a str>) -> anyhow::Result<ArgMatches> {
    let train = Train::augment_args(clap::Command::new("train").disable_help_flag(true));
    with_negative_numbers(train).try_get_matches_from(command).map_err(|error| {
        let text = error.to_string();
        anyhow::anyhow!("{}", text.strip_prefix("error: ").unwrap_or(&text).to_owned())
    })
}

/// Returns the number of ranks of a command, if it is given.
fn ranks(train: &ArgMatches) -> anyhow::Result<Option<usize>> {
    let plan = train.get_one::<PathBuf>("plan").map(|path| inputs::plan(path)).transpose()?;
    let (planned, given) = (plan.map(|plan| plan.gpus), train.get_one("ranks").copied());
    match (planned, given) {
        (Some(planned), Some(ranks)) if planned != ranks => {
            Err(deeppool::Error::WorldSizeMismatch { planned, ranks }.into())
        }
        _ => Ok(planned.or(given)),
    }
}

fn utf8(text: &std::ffi::OsStr) -> anyhow::Result<&str> {
    text.to_str()
        .with_context(|| format!("{}: a job script can only name what is UTF-8", text.to_string_lossy()))
}

/// Parses a name that needs no quoting in directives of Slurm.
fn name(text: &str) -> Result<String, String> {
    let is_fine = |letter: char| letter.is_ascii_alphanumeric() || "_-.,+@".contains(letter);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(is_fine) {
        Ok(text.into())
    } else {
        Err("expected letters, digits and any of _ - . , + @".into())
    }
}
