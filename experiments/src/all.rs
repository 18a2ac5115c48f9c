//! The command `all`: runs the experiments one after another, as parts of one command, and writes
//! an HTML page of their results.

use clap::{ArgAction, Args};
use serde_json::{Value, json};

use crate::catalog::Single;
use crate::journal::Journal;
use crate::options::{LimitOptions, OutputOptions, PolicyOptions, TestbedOptions, make_folder};
use crate::page;
use crate::part::{FinishedPart, Part};
use crate::report::SCHEMA;
use crate::testbed::Testbed;

const NAME: &str = "all";

/// Options of the command `all`, which it also passes to the experiments that have them.
#[derive(Args)]
#[command(after_help = "\
Leaves index.html beside the experiments' own files: figures, tables and findings in one file that
needs no network. Options go to the experiments that have them; experiments with networks of their
own are left out where another one is asked for, and clusters where GPUs or links are.
Examples:
  experiments all --out results
  experiments all --full --out results
  experiments all --onnx net.onnx --batch 64 --device h100")]
pub(crate) struct AllOptions {
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    testbed: TestbedOptions,
    #[command(flatten)]
    sharing: PolicyOptions,
    #[command(flatten)]
    limit: LimitOptions,
    /// Include clusters of up to 1,024 GPUs, sensitivity, and measurements on this machine: twenty
    /// minutes. Needs the feature `measure`
    #[arg(long)]
    full: bool,
}

/// Options of `throughput` and `partition` for a cluster of several hosts, beside the results for
/// one host.
const CLUSTER_OPTIONS: [&str; 6] = ["--gpus", "64", "--link", "dgx-a100-pod", "--batch", "64"];

/// Options of `scale` without `--full`, with which it takes seconds.
const SCALE_OPTIONS: [&str; 4] = ["--gpus", "64", "--model", "vgg16"];
/// Options of `splits` without `--full`, with which it takes seconds.
const SPLITS_OPTIONS: [&str; 4] = ["--gpus", "8,64", "--model", "vgg16"];
/// Options of `sharing` without `--full`, with which it takes seconds.
const SHARING_OPTIONS: [&str; 2] = ["--gpus", "8"];
/// Options of `jigsaw` without `--full`, with which it takes seconds.
const JIGSAW_OPTIONS: [&str; 8] = ["--jobs", "150", "--seeds", "2", "--gpus", "32", "--loads", "0.7,10"];
/// Options of `validate`, with which it takes minutes.
const VALIDATE_OPTIONS: [&str; 2] = ["--iterations", "10"];
/// Options of `spb`, with which it takes minutes.
const SPB_OPTIONS: [&str; 4] = ["--seeds", "3", "--epochs", "8"];

/// Runs the experiments, writes their files and the page, and returns the text to print. `line` is
/// the command line without the program's name.
///
/// # Errors
/// If an option is invalid, an experiment fails, or a file cannot be written.
pub(crate) fn run(options: &AllOptions, line: &[String]) -> anyhow::Result<String> {
    let AllOptions { output, testbed, sharing, limit, full } = options;
    let Testbed { times, link, .. } = testbed.testbed(limit.amplification, &sharing.policy)?;
    let parts = parts(*full, &given(line.get(1..).unwrap_or_default()))?;
    make_folder(&output.out)?;
    Journal::with_journal(&output.out, NAME, line, |journal| {
        let (mut done, mut texts) = (Vec::with_capacity(parts.len()), Vec::with_capacity(parts.len()));
        for part in parts {
            let found = part.run(journal)?;
            texts.push(found.save(&output.out, output.style)?);
            done.push(found);
        }
        let page = output.out.join("index.html");
        command_line::files::write(&page, page::html(&done, line, &times, &link)?)?;
        texts.push(format!("wrote {}\n", page.display()));
        if output.json { to_json(&done) } else { Ok(texts.join("\n\n")) }
    })
}

fn to_json(done: &[FinishedPart]) -> anyhow::Result<String> {
    let reports: anyhow::Result<Vec<Value>> =
        done.iter().map(|done| Ok(serde_json::from_str(&done.outcome.to_json()?)?)).collect();
    let all = json!({"schema": SCHEMA, "experiment": NAME, "reports": reports?});
    Ok(format!("{all:#}\n"))
}

/// Returns the experiments to run, each with those of the given options that it has. Experiments
/// with networks, devices or links that the options replace are left out.
fn parts(full: bool, given: &[(String, Vec<String>)]) -> anyhow::Result<Vec<Part>> {
    let part = |stem: &str, experiment: &str, more: &[&str]| {
        let names = Single::option_names(experiment);
        // `layers` shows the usual GPU counts, whatever `--gpus` says.
        let is_taken = |name: &String| names.contains(name) && !(experiment == "layers" && name == "gpus");
        let options = given.iter().filter(|(name, _)| is_taken(name)).flat_map(|(_, words)| words.clone());
        let line = std::iter::once(experiment.to_owned()).chain(options);
        Part::new(stem, line.chain(more.iter().map(|&word| word.to_owned())).collect())
    };
    let is_given = |names: &[&str]| given.iter().any(|(name, _)| names.contains(&name.as_str()));
    let has_default_inputs = !is_given(&["gpus", "link", "device", "profile", "model", "onnx", "batch"]);
    let mut parts = Vec::new();
    for experiment in ["layers", "throughput", "limits", "plans", "partition"] {
        parts.push(part(experiment, experiment, &[])?);
    }
    if has_default_inputs {
        parts.push(part("throughput-cluster", "throughput", &CLUSTER_OPTIONS)?);
        parts.push(part("partition-cluster", "partition", &CLUSTER_OPTIONS)?);
        parts.push(part("scale", "scale", if full { &[] } else { &SCALE_OPTIONS })?);
        parts.push(part("splits", "splits", if full { &[] } else { &SPLITS_OPTIONS })?);
        parts.push(part("sharing", "sharing", if full { &[] } else { &SHARING_OPTIONS })?);
        parts.push(part("jigsaw", "jigsaw", if full { &[] } else { &JIGSAW_OPTIONS })?);
    }
    parts.push(part("qos", "qos", &[])?);
    if full {
        parts.push(part("sensitivity", "sensitivity", &[])?);
    }
    if has_default_inputs {
        parts.push(part("published", "published", &[])?);
    }
    if has_default_inputs && full {
        parts.push(part("spb", "spb", &SPB_OPTIONS)?);
        parts.push(part("hybrid", "hybrid", &[])?);
        parts.push(part("search-time", "search-time", &[])?);
        parts.push(part("validate", "validate", &VALIDATE_OPTIONS)?);
    }
    Ok(parts)
}

/// Splits a command line into its options: the name and the words of each.
fn given(line: &[String]) -> Vec<(String, Vec<String>)> {
    let command = AllOptions::augment_args(clap::Command::new(NAME));
    let takes_value = |name: &str| {
        let argument = command.get_arguments().find(|argument| argument.get_long() == Some(name));
        argument.is_some_and(|argument| !matches!(argument.get_action(), ArgAction::SetTrue))
    };
    let mut options = Vec::new();
    let mut words = line.iter();
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix("--") else { continue };
        let (name, has_value) = option.split_once('=').map_or((option, false), |(name, _)| (name, true));
        let mut of_option = vec![word.clone()];
        if !has_value && takes_value(name) {
            of_option.extend(words.next().cloned());
        }
        options.push((name.to_owned(), of_option));
    }
    options
}
