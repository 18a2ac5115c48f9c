//! The command `deeppool profile`.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use command_line::files::{self, LockedFile};
use command_line::numbers::within;
use deeppool::machine::{MachineProfile, MeasureOptions, measure_machine};
use deeppool::program::{LowerOptions, LoweredTraining, Op, Placement, lower_training};
use layer_engine::{CpuEngine, Engine, Precision};
use layer_graph::{Layer, LayerGraph};
use layer_profile::{ProfileError, ProfileRun, Profiler};
use serde_json::{Value, json};

use super::costs::{device_in_precision, with_plan_path};
use super::counts::{BATCH, THREADS};
use super::free_memory::check_free_memory;
use super::inputs;
#[cfg(feature = "cuda")]
use super::kernels::image_order_text;
use super::kineto::TraceImport;
use super::launched::{Launched, Launcher, check_alone, is_first, launched};
use super::measured::{print_measured, print_ranks};
use super::network::NetworkArgs;
use super::output::{check_outputs, print_json, print_message, table, time};
use super::progress::progress_bar_of;
use super::ranks::{EmulatedArgs, LayerPrecision, RankEngine, on_processors};

/// Measure or model the times of the layers of a network
///
/// A measurement can be stopped at any time: finished measurements are kept in FILE.partial, and
/// the same command resumes from it.
#[derive(Args)]
#[command(after_help = "Examples:
  deeppool profile --model digits-cnn --engine cpu --batches 1,2,4,8,16,32 -o profile.json
  deeppool profile --model vgg16 --engine cpu --threads 4 --repeats 20 --batches 1,8 -o vgg16.json
  deeppool profile --model vgg16 --engine torch --cuda 0 --batches 1,8,32 -o vgg16-gpu.json
  deeppool profile --model vgg16 --engine cuda --precision bf16 --batches 1,8,32 -o vgg16-bf16.json
  deeppool profile --model resnet-18 --engine cpu --ranks 2 --batches 1,2,4 -o resnet-18.json \
  --link-output link.json
  deeppool launch --ranks 2 -- profile --model resnet-18 --ranks 2 --batches 1,2,4 -o resnet-18.json \
  --link-output link.json                  # the same with ranks that are processes
  deeppool profile --model vgg16 --device a100 --batches 1,2,4,8,16,32 -o vgg16-a100.json
  deeppool profile --onnx resnet50.onnx --device a100 --batches 1,2,4,8,16,32 -o resnet50-a100.json
  deeppool profile --graph resnet.json --kineto trace.json.gz -o resnet.json      # from PyTorch's profiler
  deeppool plan --model digits-cnn --profile profile.json --gpus 4 --batch 32      # a plan from a measured \
  profile
  deeppool profile --model digits-cnn --engine cpu --for-plan plan.json -o parts.json     # what that plan \
  needs: the parts of its split layers, too")]
pub(crate) struct Profile {
    #[command(flatten)]
    network: NetworkArgs,
    /// Measure on this machine, with this engine
    #[arg(long, value_enum, conflicts_with = "device")]
    engine: Option<EngineName>,
    /// Number of threads of the engine [default: 1]
    #[arg(long, value_parser = within(THREADS), value_name = "COUNT", conflicts_with = "device")]
    threads: Option<usize>,
    /// Index of the NVIDIA GPU. Without it, the engine torch uses the processor, and cuda the first
    /// GPU
    #[arg(long, value_name = "INDEX", conflicts_with_all = ["device", "threads"])]
    cuda: Option<usize>,
    #[command(flatten)]
    emulated: EmulatedArgs,
    /// Compute times from a device model: a100 (40 GB), a100-80gb, h100, h200, v100 (16 GB),
    /// v100-32gb, cpu-core; or the FILE.json of one (see `deeppool fit`)
    #[arg(long)]
    device: Option<String>,
    /// Number format of products [default: f32, or the format of the device model]. bf16 also
    /// stores activations and their gradients in 16 bits (with --engine torch, the factors of
    /// products only)
    #[arg(long, value_enum, conflicts_with = "ranks")]
    precision: Option<LayerPrecision>,
    /// Import times from a trace of PyTorch's profiler on a processor or a GPU, .json or .json.gz,
    /// of training with one batch size. Give the option again for other batch sizes. With --device,
    /// the device model supplies times that the trace lacks
    #[arg(long, value_name = "TRACE", conflicts_with_all = KINETO_CONFLICTS)]
    kineto: Vec<PathBuf>,
    /// Batch sizes [default: 1,2,4,8,16,32, or with --for-plan the numbers of samples of its
    /// layers, or with --kineto those of the shapes in the traces]
    #[arg(long, value_delimiter = ',', value_parser = within(BATCH))]
    batches: Option<Vec<usize>>,
    /// Plan that needs the times: measure the parts of its split layers, too
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["device", "ranks"])]
    for_plan: Option<PathBuf>,
    /// Measure the layers in training iterations, on one rank alone and on N ranks at once, and the
    /// links between the ranks. Ranks are threads of the processor, or processes started by
    /// `deeppool launch`
    #[arg(long, value_name = "N", value_parser = within(2..=*THREADS.end()))]
    #[arg(conflicts_with_all = ["device", "cuda"])]
    ranks: Option<usize>,
    /// File of the link model of --ranks
    #[arg(long, value_name = "FILE", requires = "ranks", value_parser = files::argument())]
    link_output: Option<PathBuf>,
    /// Number of repeats of each measurement
    #[arg(long, value_parser = within(REPEATS), default_value = "10", conflicts_with = "device")]
    repeats: usize,
    /// Maximum number of measurements of the profile. It is measured again if other work disturbed
    /// it, so that the sum of the layers differs from the whole network
    #[arg(long, value_parser = within(ATTEMPTS), default_value = "3", conflicts_with = "device")]
    attempts: usize,
    /// File of the profile; - is standard output
    #[arg(short, long, value_name = "FILE", value_parser = files::argument())]
    output: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Names of the options of measurements, without dashes.
const KINETO_CONFLICTS: [&str; 7] =
    ["engine", "threads", "cuda", "precision", "for_plan", "ranks", "link_output"];

/// Valid numbers of repeats. Fewer do not determine the spread.
const REPEATS: RangeInclusive<usize> = 10..=10_000;

/// Valid numbers of attempts.
const ATTEMPTS: RangeInclusive<usize> = 1..=100;

/// Maximum time for which processes wait for the one that computes alone.
const TIMEOUT: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, ValueEnum)]
enum EngineName {
    /// Processor of this machine
    Cpu,
    /// libtorch on the processor or a GPU of this machine; needs the feature torch
    Torch,
    /// Kernels of layer-engine on an NVIDIA GPU; needs the feature cuda
    Cuda,
}

/// Parts that are measured in addition to all layers, and the numbers of samples.
struct Subjects {
    /// Ascending if the user gave them so.
    batches: Vec<usize>,
    /// Parts of split layers.
    parts: Vec<Layer>,
}

/// Returns the parts of the split layers of a plan, and the numbers of samples of all its layers.
fn needed_by_plan(path: &Path, network: &LayerGraph) -> anyhow::Result<Subjects> {
    let plan = inputs::plan(path)?;
    let placement = with_plan_path(Some(path), plan.placement(network))?;
    let options = plan.lowering.options(LowerOptions::default().optimizer);
    let training = LoweredTraining::new(network, placement, plan.batch, options);
    let (mut batches, mut parts) = (BTreeSet::new(), Vec::new());
    for rank in training.programs()?.iter().flat_map(|program| &program.ranks) {
        parts.extend(rank.parts.values().map(|part| part.layer.clone()));
        batches.extend(rank.steps.iter().filter_map(|step| match &step.op {
            Op::Forward { shard, .. } | Op::Backward { shard, .. } => Some(shard.samples),
            _ => None,
        }));
    }
    Ok(Subjects { batches: batches.into_iter().collect(), parts })
}

/// Returns the path of the journal of a profile: its file name with `.partial` appended.
fn journal_path(profile: &Path) -> PathBuf {
    let mut path = profile.as_os_str().to_owned();
    path.push(".partial");
    path.into()
}

impl Profile {
    /// Returns what to measure: all layers, and the parts of the split layers of a plan, at several
    /// batch sizes.
    ///
    /// # Errors
    /// If the plan cannot be read, or is of another network.
    fn subjects(&self, network: &LayerGraph) -> anyhow::Result<Subjects> {
        let mut needed = match &self.for_plan {
            Some(path) => needed_by_plan(path, network)?,
            None => Subjects { batches: vec![1, 2, 4, 8, 16, 32], parts: Vec::new() },
        };
        if let Some(batches) = &self.batches {
            needed.batches.clone_from(batches);
        }
        Ok(needed)
    }

    /// Measures or models the layer times, writes them as a profile, and prints them.
    ///
    /// # Errors
    /// If this build lacks the engine, memory does not suffice, a measurement fails, or writing
    /// fails.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let launched = self.launched()?;
        let engine = match (self.engine, &self.device) {
            (None, None) if self.emulated.is_requested() => Some(EngineName::Cuda),
            (engine, _) => engine,
        };
        self.emulated.emulate(matches!(engine, Some(EngineName::Cuda)))?;
        let network = self.network.load()?;
        if is_first() {
            check_outputs([&self.output].into_iter().chain(&self.link_output), self.json)?;
        }
        if !self.kineto.is_empty() {
            let device = self.device.as_deref().map(inputs::device).transpose()?;
            let import = TraceImport {
                traces: &self.kineto,
                batches: self.batches.as_deref(),
                device: device.as_ref(),
                output: &self.output,
            };
            return import.run(&network, self.json);
        }
        let subjects = self.subjects(&network)?;
        if let Some(ranks) = self.ranks {
            return self.measure_ranks(ranks, launched, &network, &subjects.batches);
        }
        match (engine, &self.device) {
            (Some(engine), _) => self.measure(engine, &network, &subjects),
            (None, Some(device)) => self.model(device, &network, &subjects.batches),
            (None, None) => {
                bail!(
                    "give --engine cpu, torch or cuda to measure here, --device NAME to model, or --kineto \
                     TRACE to import"
                )
            }
        }
    }

    fn measure(&self, engine: EngineName, network: &LayerGraph, subjects: &Subjects) -> anyhow::Result<()> {
        let threads = self.threads.unwrap_or(1);
        let is_cuda = matches!(engine, EngineName::Cuda);
        // libtorch computes in the precisions of processors, also on GPUs.
        let like = if is_cuda { RankEngine::Cuda } else { RankEngine::Cpu };
        self.precision.map(|precision| precision.of(like)).transpose()?;
        if self.cuda.is_none() && !is_cuda {
            let max_batch = subjects.batches.iter().copied().max().unwrap_or(1);
            let one = Placement::single(network)?;
            let whole = lower_training(network, &one, max_batch, &LowerOptions::default())?;
            check_free_memory(whole.of_rank(0)?.memory().total_bytes())?;
        }
        let once = || match (engine, self.cuda) {
            (EngineName::Cpu, None) => {
                self.measure_on(&CpuEngine::<f32>::with_threads(threads)?, network, subjects)
            }
            (EngineName::Cpu, Some(_)) => bail!("--cuda needs --engine torch or cuda"),
            (EngineName::Cuda, _) if self.threads.is_some() => {
                bail!("--threads are of --engine cpu or torch")
            }
            (EngineName::Cuda, index) => self.measure_with_cuda(index.unwrap_or(0), network, subjects),
            (EngineName::Torch, cuda) => self.measure_with_torch((cuda, threads), network, subjects),
        };
        let mut run = once()?;
        for attempt in 2..=self.attempts {
            let Err(disturbed) = run.table.check_undisturbed() else { break };
            eprintln!("warning: {disturbed}; attempt {attempt} of {}", self.attempts);
            run = once()?;
        }
        let ProfileRun { table, measured, resumed, .. } = run;
        if self.json {
            let profile: Value = serde_json::from_str(&table.to_json())?;
            print_json(&json!({
                "output": self.output, "measured": measured, "resumed": resumed, "profile": profile,
            }));
            return Ok(());
        }
        print_measured(&table)?;
        if let Err(disturbed) = table.check_undisturbed() {
            eprintln!("warning: {disturbed}");
        }
        if resumed > 0 {
            print_message!(
                "\nmeasurements: {measured} made now, {resumed} by an earlier run that was stopped"
            );
        }
        print_message!("\nwrote {}", self.output.display());
        Ok(())
    }

    /// Returns the place of this process among those of a launcher, which measure together with
    /// `--ranks`.
    fn launched(&self) -> anyhow::Result<Option<Launched>> {
        let Some(ranks) = self.ranks else { return check_alone("profile").map(|()| None) };
        let launched = launched()?;
        match launched {
            Some(Launched { launcher: Launcher::Torchrun, .. }) => {
                bail!(
                    "torchrun started this: start processes with `deeppool launch --ranks {ranks} -- profile`"
                )
            }
            Some(Launched { ranks: processes, .. }) if processes != ranks => {
                bail!("--ranks is {ranks}, and {processes} processes were started: give --ranks {processes}")
            }
            _ => Ok(launched),
        }
    }

    /// Measures several ranks, writes the profile and the link model, and prints them.
    fn measure_ranks(
        &self,
        ranks: usize,
        launched: Option<Launched>,
        network: &LayerGraph,
        batches: &[usize],
    ) -> anyhow::Result<()> {
        if !matches!(self.engine, None | Some(EngineName::Cpu)) {
            bail!("--ranks measures ranks of the processor: give --engine cpu");
        }
        let options = MeasureOptions::new(batches.to_vec(), ranks)
            .with_repeats(self.repeats)
            .with_threads_per_rank(self.threads.unwrap_or(1));
        let largest = batches.iter().copied().max().unwrap_or(1);
        let one = Placement::single(network)?;
        let whole = lower_training(network, &one, largest, &LowerOptions::default())?;
        check_free_memory(whole.of_rank(0)?.memory().total_bytes() * ranks as u64)?;
        let bar = progress_bar_of(0, "runs");
        let measured = on_processors(launched, options.threads_per_rank, TIMEOUT, |train| {
            measure_machine(network, &options, &|config| train(config, &|_| {}), &|done, all| {
                bar.set_length(all as u64);
                bar.set_position(done as u64);
            })
        })?;
        bar.finish_and_clear();
        if !is_first() {
            return Ok(());
        }
        let MachineProfile { profile, link, collectives, .. } = &measured;
        files::write(&self.output, profile.to_json())?;
        if let Some(path) = &self.link_output {
            files::write(path, link.to_json() + "\n")?;
        }
        if self.json {
            let document: Value = serde_json::from_str(&profile.to_json())?;
            let link: Value = serde_json::from_str(&link.to_json())?;
            print_json(&json!({ "output": self.output, "profile": document, "link": link }));
            return Ok(());
        }
        print_ranks(profile, link, collectives)?;
        for path in std::iter::once(&self.output).chain(&self.link_output) {
            print_message!("wrote {}", path.display());
        }
        Ok(())
    }

    fn measure_on<E: Engine<Scalar = f32>>(
        &self,
        engine: &E,
        network: &LayerGraph,
        subjects: &Subjects,
    ) -> anyhow::Result<ProfileRun> {
        let profiler = Profiler::new(engine).batches(subjects.batches.clone()).parts(subjects.parts.clone());
        let precision = self.precision.map_or(Precision::F32, LayerPrecision::precision);
        let profiler = profiler.repeats(self.repeats).precision(precision).progress(true);
        profiler.check(network)?;
        let path = journal_path(&self.output);
        let in_journal = || path.display().to_string();
        let is_file = files::is_file(&self.output)?;
        let mut journal = is_file.then(|| LockedFile::open(&path)).transpose()?;
        let run = profiler.profile_with_journal(network, journal.as_mut().map(LockedFile::file_mut));
        let run = match run {
            Err(error @ (ProfileError::Journal { .. } | ProfileError::JournalFile(_))) => {
                return Err(error).with_context(in_journal);
            }
            run => run?,
        };
        files::write(&self.output, run.table.to_json())?;
        journal.map_or(Ok(()), |journal| journal.remove())?;
        Ok(run)
    }

    #[cfg(feature = "torch")]
    fn measure_with_torch(
        &self,
        (cuda, threads): (Option<usize>, usize),
        network: &LayerGraph,
        subjects: &Subjects,
    ) -> anyhow::Result<ProfileRun> {
        use layer_engine::{TorchDevice, TorchEngine};
        let engine = match cuda {
            Some(index) => TorchEngine::<f32>::new(TorchDevice::Cuda(index))?,
            None => TorchEngine::<f32>::with_threads(threads)?,
        };
        self.measure_on(&engine, network, subjects)
    }

    #[cfg(not(feature = "torch"))]
    #[allow(clippy::unused_self, reason = "same signature as with the feature")]
    fn measure_with_torch(
        &self,
        _: (Option<usize>, usize),
        _: &LayerGraph,
        _: &Subjects,
    ) -> anyhow::Result<ProfileRun> {
        bail!(
            "this deeppool was built without libtorch: run `scripts/libtorch.sh`, export what it prints, and \
             build \
             with `--features torch`"
        )
    }

    /// Measures in the order of images that is fastest over all batch sizes.
    #[cfg(feature = "cuda")]
    fn measure_with_cuda(
        &self,
        index: usize,
        network: &LayerGraph,
        subjects: &Subjects,
    ) -> anyhow::Result<ProfileRun> {
        let engine = deeppool::runtime::cuda_engine(index)?;
        let precision = self.precision.map_or(Precision::F32, LayerPrecision::precision);
        let one = Placement::single(network)?;
        let options = LowerOptions::default().with_precision(precision);
        let programs = subjects.batches.iter().map(|&batch| lower_training(network, &one, batch, &options));
        let programs = programs.collect::<Result<Vec<_>, _>>()?;
        let order = deeppool::runtime::fastest_image_order(&engine, network, &programs, &[])?;
        if !self.json && order.times.is_some() {
            print_message!("order of images: {}\n", image_order_text(&order));
        }
        self.measure_on(&engine.with_image_layout(order.layout), network, subjects)
    }

    #[cfg(not(feature = "cuda"))]
    #[allow(clippy::unused_self, reason = "same signature as with the feature")]
    fn measure_with_cuda(&self, _: usize, _: &LayerGraph, _: &Subjects) -> anyhow::Result<ProfileRun> {
        bail!(super::ranks::WITHOUT_CUDA)
    }

    fn model(&self, device: &str, network: &LayerGraph, batches: &[usize]) -> anyhow::Result<()> {
        let device = device_in_precision(device, self.precision, false)?;
        let profile = inputs::device(&device)?.profile(network, batches)?;
        files::write(&self.output, profile.to_json())?;
        if self.json {
            let document: Value = serde_json::from_str(&profile.to_json())?;
            print_json(&json!({ "output": self.output, "profile": document }));
            return Ok(());
        }
        let mut shown = table(&["batch", "forward", "backward", "update", "iteration"]);
        for row in profile.network() {
            let all = row.time;
            let times = [all.forward, all.backward, all.update, all.total()].map(time);
            shown.add_row(std::iter::once(row.batch.to_string()).chain(times));
        }
        print_message!("{} on {}, {}", profile.model(), profile.device(), profile.origin());
        if let Some(accuracy) = profile.accuracy() {
            print_message!("{accuracy}");
        }
        print_message!("{shown}\n\nwrote {}", self.output.display());
        Ok(())
    }
}
