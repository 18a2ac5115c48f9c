use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::error::ErrorKind as UsageError;
use clap::{Args, Parser, Subcommand};
use deeppool::files::write_atomically;
use deeppool::simulate::policy_named;
use layer_graph::{LayerGraph, zoo};
use serde_json::json;

use crate::choice::{MachineOptions, NetworkOptions};
use crate::job::{BACKGROUND_BATCH, BuiltIn, WORKLOADS, Workload};
use crate::layers::{self, Layers};
use crate::outcome::Outcome;
use crate::report::Report;
use crate::scale::{self, Scale};
use crate::search_time::{self, SearchTimeOptions};
use crate::sensitivity::{self, Sensitivity};
use crate::sweep::{self, Grid, Sweep};
use crate::testbed::Testbed;
use crate::validate::{self, ValidateOptions};
use crate::{page, partition, qos, throughput};

/// The comparisons of the DeepPool paper, simulated: tables, CSV and SVG
#[derive(Parser)]
#[command(
    version,
    max_term_width = 110,
    after_help = "Experiments are named for what they compare: the numbers of the figures in the DeepPool paper
(Park et al., MLSys 2022) are not known to us, and `fig7` is our alias for `throughput`.

Examples:
  experiments fig7
  experiments throughput --gpus 4 --amplification 1.5
  experiments partition --out results --json"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Say which experiments there are
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// How much faster each layer of a network is on more GPUs
    Layers(LayersOptions),
    /// DP, BP, DP+Col, BP+Col and background alone
    #[command(visible_alias = "fig7")]
    Throughput(Options),
    /// BP+Col against static partitions of the GPUs
    Partition(Options),
    /// What each technique of sharing a GPU costs the foreground and gives to the background
    Qos(Options),
    /// How conclusions move when figures of the models are off by half
    Sensitivity(Options),
    /// Planned times against simulated ones and against older models, over 768 questions: some minutes
    Sweep(SweepOptions),
    /// BP+Col against every static partition on 16 to 1,024 GPUs of several hosts: some minutes
    Scale(ScaleOptions),
    /// How long the planner takes, beside the original's: measured
    SearchTime(SearchTimeOptions),
    /// Planned and simulated times against those that this machine's processor takes: measured, some minutes
    Validate(ValidateOptions),
    /// Layers, throughput, partition and qos, with a page of all of them
    All(AllOptions),
}

#[derive(Args)]
#[command(
    after_help = "8 networks and batches x 4 links x 8 amplification limits x 3 GPU counts. The older models are those of
plan problem files: additive, waves and overlap. Their plans are judged by the program's time.

Examples:
  experiments sweep --quick
  experiments sweep --model resnet-50
  experiments sweep --out results --json"
)]
struct SweepOptions {
    /// The folder that CSV and JSON go to; it is made when it does not exist
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// Print one JSON object instead of a summary
    #[arg(long)]
    json: bool,
    /// Only a small part, in seconds: 2 networks, 2 links, 3 limits, 4 and 8 GPUs
    #[arg(long)]
    quick: bool,
    /// Only this network, with all its batches
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
}

#[derive(Args)]
#[command(
    after_help = "Each layer by itself, with the same global batch on 1, 2, 4, ... GPUs: by the device model's times.

Examples:
  experiments layers
  experiments layers --model inception-v3 --batch 256 --gpus 32
  experiments layers --onnx net.onnx --device h100 --out results"
)]
struct LayersOptions {
    #[command(flatten)]
    network: NetworkOptions,
    #[command(flatten)]
    machine: MachineOptions,
    /// Samples of the global batch
    #[arg(long, value_name = "N", default_value_t = LAYERS_BATCH, value_parser = batch)]
    batch: usize,
    /// Up to how many GPUs
    /// [default: 64, or as many as the links of --link connect]
    #[arg(long, value_name = "N", value_parser = gpus)]
    gpus: Option<usize>,
    /// The folder that CSV, SVG and JSON go to; it is made when it does not exist
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[command(
    after_help = "VGG-16, WRN-101-2 and Inception-V3, batches of 1 to 4 samples a GPU, and of fewer samples than GPUs.

Examples:
  experiments scale
  experiments scale --link a100-100gbe --out results
  experiments scale --link cluster.json --amplification 1.5 --json"
)]
struct ScaleOptions {
    /// The folder that CSV and JSON go to; it is made when it does not exist
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// How the GPUs are linked: the name of a link model, or its FILE.json
    #[arg(long, value_name = "NAME|FILE", default_value = "dgx-a100-pod")]
    link: String,
    /// The limit of the burst plans that are shown beside those without: GPU time over the iteration time on one GPU
    #[arg(long, value_name = "LIMIT", default_value = "2.0", value_parser = limit)]
    amplification: f64,
    /// Only on 16 GPUs, in seconds
    #[arg(long)]
    quick: bool,
}

#[derive(Args)]
#[command(after_help = "FG is the foreground job, BG are the background jobs. DP: every layer on all GPUs.
BP: each layer on a GPU count of its own. +Col: background jobs on the same GPUs, whenever the
foreground leaves them idle.

Examples:
  experiments throughput
  experiments throughput --gpus 4 --amplification 1.5 --out results
  experiments throughput --onnx net.onnx --batch 64 --device h100 --gpus 16
  experiments partition --policy deeppool --json")]
struct Options {
    /// The folder that CSV, SVG and JSON go to; it is made when it does not exist
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    network: NetworkOptions,
    /// Samples of that network's global batch
    #[arg(long, value_name = "N", value_parser = batch)]
    batch: Option<usize>,
    /// Samples of each background job's batch: it trains the same network
    #[arg(long, value_name = "N", default_value_t = BACKGROUND_BATCH, value_parser = batch)]
    background_batch: usize,
    #[command(flatten)]
    machine: MachineOptions,
    /// How many GPUs there are
    #[arg(long, value_name = "N", default_value = "8", value_parser = gpus)]
    gpus: usize,
    /// The limit of burst plans: GPU time over the iteration time on one GPU
    #[arg(long, value_name = "LIMIT", default_value = "2.0", value_parser = limit)]
    amplification: f64,
    /// How background jobs share the GPUs: naive, priority, ungated, artifact, deeppool, feedback or default; qos compares them all
    #[arg(long, value_name = "NAME", default_value = "default")]
    policy: String,
}

#[derive(Args)]
#[command(
    after_help = "Leaves index.html beside the experiments' own files: figures, tables and findings in one file that needs no
network. Layers are those of VGG-16, or of the network that is asked for; qos has networks of its own, and is left
out where another one is asked for. With --json, the rows of throughput, partition and qos are printed.

Examples:
  experiments all --out results
  experiments all --full --out results
  experiments all --onnx net.onnx --batch 64 --device h100"
)]
struct AllOptions {
    #[command(flatten)]
    options: Options,
    /// With sensitivity: another half a minute
    #[arg(long)]
    full: bool,
}

/// What the sweep compares.
const SWEEP: &str =
    "planned times against simulated ones and against older models of time, over 768 questions";

/// What the variations show.
const SENSITIVITY: &str =
    "what conclusions owe to link bandwidth, layer times, launches, contention and the background's batch";

/// What the layers show.
const LAYERS: &str = "each layer of a network on 1 to 64 GPUs: how much faster it is, and what that costs";

/// What the comparison on clusters compares.
const SCALE: &str = "BP+Col against every static partition on 16 to 1,024 GPUs of several hosts";

/// What layers are shown with: the paper's first picture.
const LAYERS_BATCH: usize = 128;
const LAYERS_GPUS: usize = 64;

type Experiment = fn(&Testbed) -> anyhow::Result<Report>;

/// An experiment's name, its aliases, what it compares, and how it is run.
const EXPERIMENTS: [(&str, &[&str], &str, Experiment); 3] = [
    (
        throughput::NAME,
        &["fig7"],
        "DP with and without overlap, BP, DP+Col, BP+Col and background alone: samples/s, slowdown",
        throughput::run,
    ),
    (
        partition::NAME,
        &[],
        "BP+Col on all GPUs against static partitions: some GPUs for the foreground, the rest for background",
        partition::run,
    ),
    (
        qos::NAME,
        &[],
        "policies of sharing GPUs: slowdown of the foreground (median, p99), BG's share of each part of its time",
        qos::run,
    ),
];

/// Exit code 0, 2 for bad usage or input, 1 for a failure, each with one line on stderr.
pub(crate) fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if matches!(error.kind(), UsageError::DisplayHelp | UsageError::DisplayVersion) => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) if error.kind() == UsageError::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            return ExitCode::from(2);
        }
        Err(error) => {
            eprintln!("{}", one_line(&error.to_string()));
            return ExitCode::from(2);
        }
    };
    let result = match cli.command {
        Command::List { json } => Ok(list(json)),
        Command::Layers(options) => options.run(),
        Command::Throughput(options) => options.run(&[throughput::run]),
        Command::Partition(options) => options.run(&[partition::run]),
        Command::Qos(options) => options.run_with_its_own(qos::run),
        Command::Sensitivity(options) => options.run_sensitivity(),
        Command::Sweep(options) => options.run(),
        Command::Scale(options) => options.run(),
        Command::SearchTime(options) => options.run(),
        Command::Validate(options) => options.run(),
        Command::All(options) => options.run(),
    };
    match result {
        Ok(output) => print(&output),
        Err(error) => {
            eprintln!("error: {}", one_line(&format!("{error:#}")));
            let failed = error.downcast_ref::<deeppool::Error>().is_some_and(|error| !error.is_input());
            ExitCode::from(if failed { 1 } else { 2 })
        }
    }
}

fn list(json: bool) -> String {
    let experiments = EXPERIMENTS.map(|(name, aliases, about, _)| (name, aliases, about));
    let experiments = experiments.into_iter().chain([
        (layers::NAME, &[][..], LAYERS),
        (sensitivity::NAME, &[], SENSITIVITY),
        (sweep::NAME, &[], SWEEP),
        (scale::NAME, &[], SCALE),
        (search_time::NAME, &[], search_time::ABOUT),
        (validate::NAME, &[], validate::ABOUT),
    ]);
    if json {
        let experiments: Vec<_> = experiments
            .map(|(name, aliases, about)| json!({"name": name, "aliases": aliases, "about": about}))
            .collect();
        return format!("{:#}\n", json!({"experiments": experiments}));
    }
    let lines = experiments.map(|(name, aliases, about)| {
        let names = [&[name], aliases].concat().join(", ");
        format!("{names:18}  {about}\n")
    });
    lines.collect::<String>()
        + "\nAll but search-time and validate are simulated. The numbers of the figures in the DeepPool paper (Park et al., MLSys 2022)\n\
           are not known to us: experiments are named for what they compare, and fig7 is our alias for throughput.\n"
}

impl LayersOptions {
    /// Evaluates the layers, writes their files, and gives what is to be printed.
    fn run(&self) -> anyhow::Result<String> {
        let layers = layers_of(self.network.load()?, &self.machine, self.batch, self.gpus)?;
        make_folder(&self.out)?;
        layers.saved(&self.out, self.json)
    }
}

/// The layers of a network, or of VGG-16, on up to so many GPUs, or as many as are usual and the links connect.
fn layers_of(
    network: Option<LayerGraph>,
    machine: &MachineOptions,
    batch: usize,
    gpus: Option<usize>,
) -> anyhow::Result<Layers> {
    let network = network.map_or_else(|| zoo::model("vgg16"), Ok)?;
    let gpus = gpus.map_or_else(|| machine.at_most(LAYERS_GPUS), Ok)?;
    let (device, link) = machine.load(gpus)?;
    Layers::run(&network, batch, gpus, (&device, &link))
}

impl SweepOptions {
    /// Runs the sweep, writes its files, and gives what is to be printed.
    fn run(&self) -> anyhow::Result<String> {
        make_folder(&self.out)?;
        Sweep::run(&Grid::new(self.quick, self.model.as_deref())?)?.saved(&self.out, self.json)
    }
}

impl ScaleOptions {
    /// Runs the comparison, writes its files, and gives what is to be printed.
    fn run(&self) -> anyhow::Result<String> {
        make_folder(&self.out)?;
        Scale::run(&self.link, self.amplification, self.quick)?.saved(&self.out, self.json)
    }
}

pub(crate) fn make_folder(folder: &Path) -> anyhow::Result<()> {
    let name = folder.display();
    std::fs::create_dir_all(folder).with_context(|| format!("{name}: cannot make this folder"))
}

impl Options {
    /// The paper's foreground jobs, or the one that is asked for.
    fn workloads(&self) -> anyhow::Result<Vec<Workload>> {
        match (self.network.load()?, self.batch) {
            (None, None) => {
                let built_in = |built_in: &BuiltIn| {
                    Ok(Workload { background_batch: self.background_batch, ..built_in.load()? })
                };
                WORKLOADS.iter().map(built_in).collect()
            }
            (Some(network), Some(batch)) => {
                let title = network.name().to_owned();
                let (network, background_batch) = (Arc::new(network), self.background_batch);
                Ok(vec![Workload { network, title, batch, background_batch }])
            }
            (Some(_), None) => bail!("give the network's global batch, too: --batch N"),
            (None, Some(_)) => {
                bail!("--batch is for a network of --model or --onnx: give one, or leave it out")
            }
        }
    }

    fn testbed(&self) -> anyhow::Result<Testbed> {
        let (device, link) = self.machine.load(self.gpus)?;
        Ok(Testbed {
            device,
            link,
            gpus: self.gpus,
            amplification_limit: self.amplification,
            policy_name: self.policy.clone(),
            policy: policy_named(&self.policy)?,
            workloads: self.workloads()?,
            background_batch: self.background_batch,
        })
    }

    /// Whether it is about the paper's foreground jobs.
    fn is_of_the_paper(&self) -> bool {
        self.network.model.is_none()
            && self.network.onnx.is_none()
            && self.background_batch == BACKGROUND_BATCH
    }

    /// Runs an experiment that has workloads of its own.
    fn run_with_its_own(&self, experiment: Experiment) -> anyhow::Result<String> {
        if !self.is_of_the_paper() {
            bail!(
                "this experiment has networks of its own: leave out --model, --onnx and --background-batch"
            );
        }
        self.run(&[experiment])
    }

    /// Varies what models say, writes the files, and gives what is to be printed.
    fn run_sensitivity(&self) -> anyhow::Result<String> {
        let testbed = self.testbed()?;
        make_folder(&self.out)?;
        Sensitivity::run(&testbed)?.saved(&self.out, self.json)
    }

    /// Runs experiments, writes their files, and gives what is to be printed.
    fn run(&self, experiments: &[Experiment]) -> anyhow::Result<String> {
        let testbed = self.testbed()?;
        make_folder(&self.out)?;
        let (reports, texts) = self.reports(&testbed, experiments)?;
        match (self.json, reports.as_slice()) {
            (false, _) => Ok(texts.join("\n\n")),
            (true, [report]) => report.to_json(),
            (true, reports) => Report::of_all(reports, &testbed).to_json(),
        }
    }

    /// Runs experiments and writes their files; what is to be printed of each.
    fn reports(
        &self,
        testbed: &Testbed,
        experiments: &[Experiment],
    ) -> anyhow::Result<(Vec<Report>, Vec<String>)> {
        let reports: anyhow::Result<Vec<Report>> =
            experiments.iter().map(|experiment| experiment(testbed)).collect();
        let reports = reports?;
        let texts: anyhow::Result<Vec<String>> =
            reports.iter().map(|report| report.save(&self.out)).collect();
        Ok((reports, texts?))
    }
}

impl AllOptions {
    /// Runs all experiments, but for those with workloads of their own where another one is asked for, writes their files and the page,
    /// and gives what is to be printed.
    fn run(&self) -> anyhow::Result<String> {
        let options = &self.options;
        let testbed = options.testbed()?;
        make_folder(&options.out)?;
        let network = options.network.load()?;
        let batch = options.batch.unwrap_or(LAYERS_BATCH);
        let layers = layers_of(network, &options.machine, batch, None)?;
        let mut texts = vec![layers.save(&options.out)?];
        let is_asked = |name: &str| name != qos::NAME || options.is_of_the_paper();
        let asked = EXPERIMENTS.into_iter().filter(|(name, ..)| is_asked(name));
        let (reports, of_reports) =
            options.reports(&testbed, &asked.map(|(.., run)| run).collect::<Vec<_>>())?;
        texts.extend(of_reports);
        let mut sections = vec![layers.section()?];
        for report in &reports {
            sections.push(report.section()?);
        }
        if self.full {
            let found = Sensitivity::run(&testbed)?;
            texts.push(found.save(&options.out)?);
            sections.push(found.section()?);
        }
        let page = options.out.join("index.html");
        write_atomically(&page, page::html(&sections)?.as_bytes())?;
        texts.push(format!("wrote {}\n", page.display()));
        if options.json { Report::of_all(&reports, &testbed).to_json() } else { Ok(texts.join("\n\n")) }
    }
}

/// Prints to stdout; a reader that has seen enough (`| head`) is no failure.
fn print(output: &str) -> ExitCode {
    match std::io::stdout().write_all(output.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("error: cannot write to stdout: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn gpus(text: &str) -> Result<usize, String> {
    count(text, 1024)
}

fn batch(text: &str) -> Result<usize, String> {
    count(text, 1 << 20)
}

fn count(text: &str, most: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (1..=most).contains(&count) => Ok(count),
        _ => Err(format!("expected a whole number from 1 to {most}")),
    }
}

fn limit(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(limit) if (1.0..f64::INFINITY).contains(&limit) => Ok(limit),
        _ => Err("expected a number of at least 1".into()),
    }
}

/// A message without its line breaks, and without the usage that clap adds.
fn one_line(message: &str) -> String {
    let lines = message.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}
