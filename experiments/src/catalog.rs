//! List of the experiments, and their command lines.
//!
//! A *command line* is the list of words after the program's name.

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::experiment::Experiment;
use crate::hybrid::{self, HybridOptions};
use crate::jigsaw::{self, JigsawOptions};
use crate::layers::{self, LayersOptions};
use crate::limits::{self, LimitsOptions};
use crate::options::RunOptions;
use crate::partition::{self, PartitionOptions};
use crate::plans::{self, PlansOptions};
use crate::published::{self, PublishedOptions};
use crate::qos::{self, QosOptions};
use crate::scale::{self, ScaleOptions};
use crate::search_time::{self, SearchTimeOptions};
use crate::sensitivity::{self, SensitivityOptions};
use crate::sharing::{self, SharingOptions};
#[cfg(feature = "measure")]
use crate::spb::{self, SpbOptions};
use crate::splits::{self, SplitsOptions};
use crate::sweep::{self, SweepOptions};
use crate::throughput::{self, ThroughputOptions};
#[cfg(feature = "measure")]
use crate::validate::{self, ValidateOptions};

/// Experiments that train on this machine: those of feature `measure`.
const MEASURE: [&str; 2] = ["spb", "validate"];

/// Returns the cargo features that a command line needs, as an option of `cargo run` after a space.
/// Empty if it needs none.
pub(crate) fn features(line: &[String]) -> &'static str {
    let is_full = line.first().is_some_and(|word| word == "all") && line.iter().any(|word| word == "--full");
    let needs_measure = is_full || line.first().is_some_and(|word| MEASURE.contains(&word.as_str()));
    if needs_measure { " --features measure" } else { "" }
}

/// Returns the shell command for a command line, such as
/// `cargo run --release -p experiments -- plans`.
pub(crate) fn command(line: &[String]) -> String {
    let words = line.iter().map(|word| quoted(word)).collect::<Vec<_>>();
    format!("cargo run --release -p experiments{} -- {}", features(line), words.join(" "))
}

/// Quotes a word for a shell, if it needs quotes.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=,:+@%".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Checks that this build has the cargo features that a command line needs.
///
/// # Errors
/// If it lacks one; the message contains the command that builds with it.
pub(crate) fn check_features(line: &[String]) -> anyhow::Result<()> {
    let is_missing = cfg!(not(feature = "measure")) && !features(line).is_empty();
    anyhow::ensure!(!is_missing, "this build lacks training: run `{}`", command(line));
    Ok(())
}

/// Returns a line that names the experiments that this build lacks, for the list of experiments.
/// Empty if it has all.
pub(crate) fn missing_experiments() -> String {
    if cfg!(feature = "measure") {
        return String::new();
    }
    format!(
        "{:18}  need training: `cargo run --release -p experiments --features measure -- NAME`\n",
        MEASURE.join(", ")
    )
}

/// An experiment with its options.
#[derive(Subcommand)]
pub(crate) enum Single {
    /// Speed-up of each layer of a network on more GPUs
    Layers(LayersOptions),
    /// Throughput of DP, BP, DP+Col, BP+Col and background jobs alone
    #[command(visible_alias = "fig7")]
    Throughput(ThroughputOptions),
    /// BP+Col against static partitions of the GPUs, at equal foreground speed
    Partition(PartitionOptions),
    /// BP and BP+Col by amplification limit
    Limits(LimitsOptions),
    /// Burst plans as pictures: the GPUs and the split of each layer
    Plans(PlansOptions),
    /// Foreground slow-down and background throughput of each GPU-sharing technique
    Qos(QosOptions),
    /// Numbers published with the original system, and training throughputs of others, beside ours
    Published(PublishedOptions),
    /// BP+Col against every static partition on 1 to 1,024 GPUs of several hosts (some minutes)
    Scale(ScaleOptions),
    /// Burst plans whose layers are divided by samples, by each other way and by all, on 8 to 1,024
    /// GPUs (some minutes)
    Splits(SplitsOptions),
    /// Background jobs of several GPUs beside burst plans, and several jobs on one network
    Sharing(SharingOptions),
    /// Run time of the planner, beside that of the original's planner (measured)
    SearchTime(SearchTimeOptions),
    /// JigSaw, burst parallelism, Gavel's policies and common ones on a cluster, with jobs of real
    /// clusters
    Jigsaw(JigsawOptions),
    /// Structured partial backpropagation: accuracy (trained here) and background throughput (some
    /// minutes)
    #[cfg(feature = "measure")]
    Spb(SpbOptions),
    /// Workers of several GPUs against data parallelism, by time to accuracy (modelled)
    Hybrid(HybridOptions),
    /// Effect of errors of the models' parameters, by half, on the conclusions
    Sensitivity(SensitivityOptions),
    /// Planned against simulated times, over 768 planning problems (some minutes)
    Sweep(SweepOptions),
    /// Planned and simulated times against times measured on this machine's processor (some
    /// minutes)
    #[cfg(feature = "measure")]
    Validate(ValidateOptions),
}

/// Command line of one experiment, without the program's name.
#[derive(Parser)]
#[command(name = "experiments", no_binary_name = true)]
struct Line {
    #[command(subcommand)]
    experiment: Single,
}

impl Single {
    /// Parses the command line of an experiment.
    ///
    /// # Errors
    /// If this build lacks a feature for it, or if the command line is invalid.
    pub(crate) fn parse(line: &[String]) -> anyhow::Result<Self> {
        check_features(line)?;
        Line::try_parse_from(line).map(|line| line.experiment).map_err(|error| {
            // clap's hints for a user at a terminal follow an empty line.
            let message = error.to_string();
            let message = message.split("\n\n").next().unwrap_or_default();
            anyhow::anyhow!("{}", message.trim_start_matches("error: "))
        })
    }

    /// Returns the experiment's name on the command line, which is also the stem of its files.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Layers(_) => layers::NAME,
            Self::Throughput(_) => throughput::NAME,
            Self::Partition(_) => partition::NAME,
            Self::Limits(_) => limits::NAME,
            Self::Plans(_) => plans::NAME,
            Self::Qos(_) => qos::NAME,
            Self::Published(_) => published::NAME,
            Self::Scale(_) => scale::NAME,
            Self::Splits(_) => splits::NAME,
            Self::Sharing(_) => sharing::NAME,
            Self::SearchTime(_) => search_time::NAME,
            Self::Jigsaw(_) => jigsaw::NAME,
            #[cfg(feature = "measure")]
            Self::Spb(_) => spb::NAME,
            Self::Hybrid(_) => hybrid::NAME,
            Self::Sensitivity(_) => sensitivity::NAME,
            Self::Sweep(_) => sweep::NAME,
            #[cfg(feature = "measure")]
            Self::Validate(_) => validate::NAME,
        }
    }

    /// Returns the experiment's options as a trait object.
    pub(crate) fn experiment(&self) -> &dyn Experiment {
        match self {
            Self::Layers(options) => options,
            Self::Throughput(options) => options,
            Self::Partition(options) => options,
            Self::Limits(options) => options,
            Self::Plans(options) => options,
            Self::Qos(options) => options,
            Self::Published(options) => options,
            Self::Scale(options) => options,
            Self::Splits(options) => options,
            Self::Sharing(options) => options,
            Self::SearchTime(options) => options,
            Self::Jigsaw(options) => options,
            #[cfg(feature = "measure")]
            Self::Spb(options) => options,
            Self::Hybrid(options) => options,
            Self::Sensitivity(options) => options,
            Self::Sweep(options) => options,
            #[cfg(feature = "measure")]
            Self::Validate(options) => options,
        }
    }

    /// Returns the names, without dashes, of an experiment's options except those that all
    /// experiments have. Empty if there is no such experiment.
    pub(crate) fn option_names(experiment: &str) -> Vec<String> {
        let of_all = RunOptions::augment_args(clap::Command::new(""));
        let is_of_all = |name: &str| of_all.get_arguments().any(|argument| argument.get_long() == Some(name));
        let line = Line::command();
        let arguments = line.find_subcommand(experiment).into_iter().flat_map(clap::Command::get_arguments);
        let names = arguments.filter_map(clap::Arg::get_long).filter(|name| !is_of_all(name));
        names.map(str::to_owned).collect()
    }

    /// Returns the name, the aliases and the description in one line of each experiment of this
    /// build.
    pub(crate) fn all() -> Vec<(String, Vec<String>, String)> {
        let of = |command: &clap::Command| {
            let aliases = command.get_visible_aliases().map(str::to_owned).collect();
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            (command.get_name().to_owned(), aliases, about)
        };
        Line::command().get_subcommands().map(of).collect()
    }
}
