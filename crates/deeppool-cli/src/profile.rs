use std::fs::{self, OpenOptions};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use command_line::files;
use deeppool::program::{LowerOptions, Placement, lower_training};
use layer_engine::{CpuEngine, Engine};
use layer_graph::LayerGraph;
use layer_profile::{ProfileError, ProfileRun, Profiler};
use serde_json::{Value, json};

use super::counts::{BATCH, THREADS, within};
use super::free_memory::check_free_memory;
use super::inputs;
use super::measured::print_measured;
use super::network::NetworkArgs;
use super::output::{check_outputs, print_json, say, table, time};
use super::ranks::EmulatedArgs;

/// Measure, or model, how long the layers of a network take
///
/// A measurement can be stopped at any time: what is finished is kept in FILE.partial, and the same command goes on from
/// there.
#[derive(Args)]
#[command(after_help = "Examples:
  deeppool profile --model digits-cnn --engine cpu --batches 1,2,4,8,16,32 -o profile.json
  deeppool profile --model vgg16 --engine cpu --threads 4 --repeats 20 --batches 1,8 -o vgg16.json
  deeppool profile --model vgg16 --engine torch --cuda 0 --batches 1,8,32 -o vgg16-gpu.json
  deeppool profile --model vgg16 --engine cuda --batches 1,8,32 -o vgg16-cuda.json
  deeppool profile --model vgg16 --device a100 --batches 1,2,4,8,16,32 -o vgg16-a100.json
  deeppool profile --onnx resnet50.onnx --device a100 --batches 1,2,4,8,16,32 -o resnet50-a100.json
  deeppool plan --model digits-cnn --profile profile.json --gpus 4 --batch 32      # a plan from a measured profile")]
pub(crate) struct Profile {
    #[command(flatten)]
    network: NetworkArgs,
    /// Measure on this machine, with this engine
    #[arg(long, value_enum, conflicts_with = "device")]
    engine: Option<EngineName>,
    /// Threads of the processor that the engine works on [default: 1]
    #[arg(long, value_parser = within(THREADS), value_name = "COUNT", conflicts_with = "device")]
    threads: Option<usize>,
    /// The NVIDIA GPU that the engine works on, by its index; without it, the engine torch works on the processor, and cuda on the first
    #[arg(long, value_name = "INDEX", conflicts_with_all = ["device", "threads"])]
    cuda: Option<usize>,
    #[command(flatten)]
    emulated: EmulatedArgs,
    /// Model with a built-in device model: a100 (40 GB), a100-80gb, h100, h200, v100 (16 GB), v100-32gb, cpu-core; or the FILE.json
    /// of one (see `deeppool fit`)
    #[arg(long)]
    device: Option<String>,
    /// Batch sizes
    #[arg(long, value_delimiter = ',', value_parser = within(BATCH), default_value = "1,2,4,8,16,32")]
    batches: Vec<usize>,
    /// How often each time is measured
    #[arg(long, value_parser = within(REPEATS), default_value = "10", conflicts_with = "device")]
    repeats: usize,
    /// How often the profile is measured at most: again where something else kept the machine busy, so that the layers and the whole
    /// network take unlike times
    #[arg(long, value_parser = within(ATTEMPTS), default_value = "3", conflicts_with = "device")]
    attempts: usize,
    /// Where the profile goes; - is standard output
    #[arg(short, long, value_name = "FILE", value_parser = files::argument())]
    output: PathBuf,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

/// How often something is measured: the spread of fewer repeats says nothing.
const REPEATS: RangeInclusive<usize> = 10..=10_000;

/// How often a whole profile is measured.
const ATTEMPTS: RangeInclusive<usize> = 1..=100;

#[derive(Clone, Copy, ValueEnum)]
enum EngineName {
    /// The processor of this machine
    Cpu,
    /// libtorch, on the processor or a GPU of this machine, where the feature torch is built in
    Torch,
    /// Kernels of our own on an NVIDIA GPU, where the feature cuda is built in
    Cuda,
}

/// Returns the path of the journal of a profile: its file name with `.partial` appended.
fn journal_path(profile: &Path) -> PathBuf {
    let mut path = profile.as_os_str().to_owned();
    path.push(".partial");
    path.into()
}

impl Profile {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        self.emulated.emulate(matches!(self.engine, Some(EngineName::Cuda)))?;
        let network = self.network.load()?;
        check_outputs([&self.output], self.json)?;
        match (self.engine, &self.device) {
            (Some(engine), _) => self.measure(engine, &network),
            (None, Some(device)) => self.model(device, &network),
            (None, None) => {
                bail!("give --engine cpu, torch or cuda to measure here, or --device NAME to model")
            }
        }
    }

    fn measure(&self, engine: EngineName, network: &LayerGraph) -> anyhow::Result<()> {
        let threads = self.threads.unwrap_or(1);
        let is_cuda = matches!(engine, EngineName::Cuda);
        if self.cuda.is_none() && !is_cuda {
            let most = self.batches.iter().copied().max().unwrap_or(1);
            let one = Placement::single(network)?;
            let whole = lower_training(network, &one, most, &LowerOptions::default())?;
            check_free_memory(whole.of_rank(0)?.memory().total_bytes())?;
        }
        let once = || match (engine, self.cuda) {
            (EngineName::Cpu, None) => self.measure_on(&CpuEngine::<f32>::with_threads(threads)?, network),
            (EngineName::Cpu, Some(_)) => bail!("--cuda needs --engine torch or cuda"),
            (EngineName::Cuda, _) if self.threads.is_some() => {
                bail!("--threads are of --engine cpu or torch")
            }
            (EngineName::Cuda, index) => self.measure_with_cuda(index.unwrap_or(0), network),
            (EngineName::Torch, cuda) => self.measure_with_torch(cuda, threads, network),
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
            say!("\nmeasurements: {measured} made now, {resumed} by an earlier run that was stopped");
        }
        say!("\nwrote {}", self.output.display());
        Ok(())
    }

    fn measure_on<E: Engine<Scalar = f32>>(
        &self,
        engine: &E,
        network: &LayerGraph,
    ) -> anyhow::Result<ProfileRun> {
        let profiler = Profiler::new(engine).batches(self.batches.clone());
        let profiler = profiler.repeats(self.repeats).progress(true);
        let path = journal_path(&self.output);
        let in_journal = || path.display().to_string();
        let mut journal = if files::is_file(&self.output)? {
            let mut options = OpenOptions::new();
            Some(options.read(true).append(true).create(true).open(&path).with_context(in_journal)?)
        } else {
            None
        };
        let run = profiler.profile_with_journal(network, journal.as_mut());
        let run = match run {
            Err(error @ (ProfileError::Journal { .. } | ProfileError::JournalFile(_))) => {
                return Err(error).with_context(in_journal);
            }
            run => run?,
        };
        files::write(&self.output, run.table.to_json())?;
        if journal.is_some() {
            fs::remove_file(&path).with_context(in_journal)?;
        }
        Ok(run)
    }

    #[cfg(feature = "torch")]
    fn measure_with_torch(
        &self,
        cuda: Option<usize>,
        threads: usize,
        network: &LayerGraph,
    ) -> anyhow::Result<ProfileRun> {
        use layer_engine::{TorchDevice, TorchEngine};
        let engine = match cuda {
            Some(index) => TorchEngine::<f32>::new(TorchDevice::Cuda(index))?,
            None => TorchEngine::<f32>::with_threads(threads)?,
        };
        self.measure_on(&engine, network)
    }

    #[cfg(not(feature = "torch"))]
    #[allow(clippy::unused_self, reason = "with the feature it has work to do")]
    fn measure_with_torch(&self, _: Option<usize>, _: usize, _: &LayerGraph) -> anyhow::Result<ProfileRun> {
        bail!(
            "this deeppool was built without libtorch: run `scripts/libtorch.sh`, export what it prints, and build \
             with `--features torch`"
        )
    }

    #[cfg(feature = "cuda")]
    fn measure_with_cuda(&self, index: usize, network: &LayerGraph) -> anyhow::Result<ProfileRun> {
        self.measure_on(&layer_engine::CudaEngine::new(index)?, network)
    }

    #[cfg(not(feature = "cuda"))]
    #[allow(clippy::unused_self, reason = "with the feature it has work to do")]
    fn measure_with_cuda(&self, _: usize, _: &LayerGraph) -> anyhow::Result<ProfileRun> {
        bail!(super::ranks::WITHOUT_CUDA)
    }

    fn model(&self, device: &str, network: &LayerGraph) -> anyhow::Result<()> {
        let profile = inputs::device(device)?.profile(network, &self.batches)?;
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
        say!("{} on {}, {}", profile.model(), profile.device(), profile.origin());
        if let Some(accuracy) = profile.accuracy() {
            say!("{accuracy}");
        }
        say!("{shown}\n\nwrote {}", self.output.display());
        Ok(())
    }
}
