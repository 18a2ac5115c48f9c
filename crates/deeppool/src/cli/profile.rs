use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, ValueEnum};
use deeppool::files::check_folder;
use layer_engine::CpuEngine;
use layer_graph::zoo;
use layer_profile::{DeviceModel, Profiler};

use super::costs::at_least_one;
use super::output::{table, time};

/// Measure, or model, how long the layers of a network take
#[derive(Args)]
#[command(after_help = "Examples:
  deeppool profile --model digits-cnn --engine cpu --batches 1,2,4,8,16,32 -o profile.json
  deeppool profile --model vgg16 --device a100 --batches 1,2,4,8,16,32 -o vgg16-a100.json")]
pub(crate) struct Profile {
    /// A network of `deeppool models`
    #[arg(long)]
    model: String,
    /// Measure on this machine, with this engine
    #[arg(long, value_enum, conflicts_with = "device")]
    engine: Option<EngineName>,
    /// Model with a built-in device model: a100, cpu-core
    #[arg(long)]
    device: Option<String>,
    /// Batch sizes
    #[arg(long, value_delimiter = ',', value_parser = at_least_one, default_value = "1,2,4,8,16,32")]
    batches: Vec<usize>,
    /// How often each layer is timed
    #[arg(long, value_parser = at_least_one, default_value = "10")]
    repeats: usize,
    /// Where the profile goes
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum EngineName {
    /// One core of this machine
    Cpu,
}

impl Profile {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let network = zoo::model(&self.model)?;
        check_folder(&self.output)?;
        let profile = match (self.engine, &self.device) {
            (Some(EngineName::Cpu), _) => {
                let engine = CpuEngine::<f32>::new();
                let profiler = Profiler::new(&engine, "one core of this machine");
                profiler
                    .batches(self.batches.clone())
                    .repeats(self.repeats)
                    .progress(true)
                    .profile(&network)?
            }
            (None, Some(device)) => DeviceModel::named(device)?.profile(&network, &self.batches)?,
            (None, None) => bail!("give --engine cpu to measure here, or --device NAME to model"),
        };
        profile.save(&self.output)?;
        let mut shown = table(&["batch", "forward", "backward", "update", "iteration"]);
        for row in profile.network() {
            let all = row.time;
            let times = [all.forward, all.backward, all.update, all.total()].map(time);
            shown.add_row(std::iter::once(row.batch.to_string()).chain(times));
        }
        println!("{} on {}, {}", profile.model(), profile.device(), profile.origin());
        println!("{shown}\n\nwrote {}", self.output.display());
        Ok(())
    }
}
