//! Options of the default command, which measures.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use gpu_mux::Workload;

use super::task::{BenchTask, GpuOptions};
use super::{chart, cpu, policies, table, virtual_device, workload};
use crate::command::{bad_input, check_results};

/// Options of the default command, which measures policies.
#[derive(Args)]
pub(crate) struct Bench {
    /// Device of the jobs
    #[arg(long, default_value = "virtual")]
    device: DeviceKind,
    /// Workload file (deeppool/workload/v1), as written by `deeppool simulate --workload`
    /// [default: VGG-16, rank 1 of 8 GPUs, beside another VGG-16]
    #[arg(long, value_name = "FILE")]
    workload: Option<PathBuf>,
    /// Policy: a preset, or a technique of the ladder. May be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    policy: Vec<String>,
    /// Foreground iterations for each policy
    #[arg(long, value_name = "N", default_value = "100")]
    iterations: NonZeroUsize,
    /// Parameters of the virtual device, as written by `mux-bench fit` [default: an A100, from data
    /// sheets]
    #[arg(long, value_name = "FILE")]
    parameters: Option<PathBuf>,
    /// Ranks of --device cpu: threads, at most 4 a core; best with a core for each [default: 2]
    #[arg(long, value_name = "N")]
    ranks: Option<NonZeroUsize>,
    #[command(flatten)]
    gpu: GpuOptions,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Also write the JSON object to this file
    #[arg(short, long, value_name = "FILE", value_parser = command_line::files::argument())]
    out: Option<PathBuf>,
    /// Also draw a chart into this file
    #[arg(long, value_name = "FILE", value_parser = command_line::files::argument())]
    svg: Option<PathBuf>,
}

/// Default number of ranks of the device `cpu`.
const RANKS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);

/// Device of the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DeviceKind {
    /// A modelled GPU in virtual time
    Virtual,
    /// The first NVIDIA GPU, with kernels of the time and resource demand of the workload's
    /// (feature `cuda`)
    Cuda,
    /// Threads of this machine, one for each rank, with built-in jobs
    Cpu,
}

impl Bench {
    /// Measures the policies, prints the report and writes the files.
    ///
    /// # Errors
    /// Bad input, if an option or a file is invalid; otherwise if the measurement fails.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let policies = policies::named(&self.policy)?;
        self.check()?;
        let printer = check_results(self.out.iter().chain(&self.svg), self.json)?;
        let task = BenchTask { policies: &policies, iterations: self.iterations.get() };
        let report = match self.device {
            DeviceKind::Cuda => on_gpu(&self.workload()?, self.gpu, &task)?,
            DeviceKind::Virtual => {
                virtual_device::measure(&self.workload()?, self.parameters.as_deref(), &task)?
            }
            DeviceKind::Cpu => cpu::measure(self.ranks.unwrap_or(RANKS), &task)?,
        };
        // The measurements are printed even if something else fails.
        let shown = if self.json { report.to_json() } else { table::format(&report) };
        printer.line(format_args!("{shown}"))?;
        if self.device == DeviceKind::Cpu && !self.json {
            printer.line(format_args!("{}", cpu::NOTE))?;
            cpu::verdict(&report).map_or(Ok(()), |verdict| printer.line(format_args!("{verdict}")))?;
        }
        if let Some(path) = &self.out {
            command_line::files::write(path, report.to_json() + "\n")?;
        }
        if let Some(path) = &self.svg {
            command_line::files::write(path, chart::svg(&report)?)?;
        }
        Ok(())
    }

    fn check(&self) -> anyhow::Result<()> {
        let given = [
            ("--workload", self.workload.is_some(), self.device != DeviceKind::Cpu),
            ("--parameters", self.parameters.is_some(), self.device == DeviceKind::Virtual),
            ("--ranks", self.ranks.is_some(), self.device == DeviceKind::Cpu),
            ("--gate", self.gpu.gate, self.device == DeviceKind::Cuda),
            (
                "--background-multiprocessors",
                self.gpu.background_multiprocessors.is_some(),
                self.device == DeviceKind::Cuda,
            ),
        ];
        if let Some((option, ..)) = given.iter().find(|(_, given, fits)| *given && !fits) {
            return Err(bad_input(format!("{option} has no meaning for this --device: leave it out")));
        }
        Ok(())
    }

    fn workload(&self) -> anyhow::Result<Workload> {
        workload::read(self.workload.as_deref())
    }
}

#[cfg(feature = "cuda")]
use crate::mux::cuda::measure as on_gpu;

#[cfg(not(feature = "cuda"))]
fn on_gpu(_: &Workload, _: GpuOptions, _: &BenchTask<'_>) -> anyhow::Result<super::MuxReport> {
    Err(bad_input(
        "this mux-bench was built without CUDA: build it with \
         `cargo build --release -p benches --features cuda`",
    ))
}
