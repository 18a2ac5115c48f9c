//! The command `op-bench`: times every kernel of a network's training iteration on a GPU.

mod measure;
mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use command_line::files::read_as;
use command_line::names::get_by_name;
use command_line::numbers::within;
use layer_engine::{CudaEngine, ImageLayout, Precision};
use layer_graph::{LayerGraph, onnx, zoo};

use crate::command::{self, bad_input, check_results};
use crate::report_file::to_json;
pub use measure::measure;
pub use report::{OpCandidate, OpPart, OpReport, OpRow};

#[derive(Parser)]
#[command(version, name = "op-bench", max_term_width = 110, after_help = EXAMPLES)]
#[command(about = "Time every kernel of a network's training iteration on a GPU")]
struct Cli {
    /// Built-in network, such as resnet-18
    #[arg(long, required_unless_present = "onnx", conflicts_with = "onnx")]
    model: Option<String>,
    /// Network in an ONNX file
    #[arg(long, value_name = "FILE")]
    onnx: Option<PathBuf>,
    /// Number of samples
    #[arg(long, default_value = "32", value_parser = within(1..=1 << 20))]
    batch: usize,
    /// Number format of products: f32, tf32 or bf16. bf16 also stores activations in 16 bits
    #[arg(long, value_name = "FORMAT", default_value = "f32", value_parser = precision)]
    precision: Precision,
    /// Order of the elements of images and filters: channels-first or channels-last [default: the
    /// fastest with tf32 and bf16, channels-first with f32]
    #[arg(long, value_name = "ORDER", value_parser = image_layout)]
    image_layout: Option<ImageLayout>,
    /// Index of the GPU
    #[arg(long, value_name = "INDEX", default_value = "0")]
    gpu: usize,
    /// Number of repeats of each measurement
    #[arg(long, default_value = "10", value_parser = within(1..=10_000))]
    repeats: usize,
    /// Also time kernels of cuDNN whose results differ from run to run
    #[arg(long)]
    nondeterministic: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write the results as JSON to this file; - is standard output
    #[arg(short, long, value_name = "FILE", value_parser = command_line::files::argument())]
    out: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Every kernel is timed alone, as replays of a CUDA graph, and so is every candidate for its products: the
algorithms of cuDNN and cuBLASLt, and own kernels. Kernels of equal shape are timed once. Times of
emulated GPUs are virtual.

Examples:
  op-bench --model resnet-18 --batch 8
  op-bench --onnx resnet18-cifar.onnx --batch 128 --json --out resnet18-cifar.json
  DEEPPOOL_EMULATED_GPUS=1 op-bench --model digits-cnn --batch 2

The exit code is 2 for invalid options or files, and 1 for a failure, for example if there is no GPU.";

/// Runs the command on the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    command::run(|cli: Cli| cli.run())
}

impl Cli {
    fn run(&self) -> anyhow::Result<()> {
        let network = self.network()?;
        let printer = check_results(&self.out, self.json)?;
        let engine = CudaEngine::new(self.gpu)?.with_nondeterministic(self.nondeterministic);
        let report =
            measure(&engine, &network, (self.batch, self.precision, self.image_layout), self.repeats)?;
        let shown = if self.json { to_json(&report) } else { report.table() };
        printer.line(format_args!("{shown}"))?;
        if let Some(path) = &self.out {
            command_line::files::write(path, to_json(&report) + "\n")?;
        }
        Ok(())
    }

    fn network(&self) -> anyhow::Result<LayerGraph> {
        let network = match (&self.model, &self.onnx) {
            (_, Some(path)) => import(path),
            (model, None) => get_by_name(model.as_deref().unwrap_or_default(), zoo::names(), zoo::model),
        };
        network.map_err(|error| bad_input(error.to_string()))
    }
}

/// Parses a precision of GPUs.
fn precision(text: &str) -> Result<Precision, String> {
    let all = [Precision::F32, Precision::Tf32, Precision::Bf16];
    let found = all.into_iter().find(|precision| precision.label() == text);
    found.ok_or_else(|| "expected f32, tf32 or bf16".into())
}

/// Parses an order of images.
fn image_layout(text: &str) -> Result<ImageLayout, String> {
    let all = [ImageLayout::ChannelsFirst, ImageLayout::ChannelsLast];
    let found = all.into_iter().find(|layout| layout.label() == text);
    found.ok_or_else(|| "expected channels-first or channels-last".into())
}

fn import(path: &Path) -> Result<LayerGraph, command_line::InputError> {
    let name = path.file_stem().map_or("onnx".into(), |stem| stem.to_string_lossy());
    Ok(read_as(path, |content| onnx::from_vec(&name, content))?.graph)
}
