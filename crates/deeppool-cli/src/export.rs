use std::path::PathBuf;

use clap::Args;
use deeppool::train::Weights;
use serde_json::json;

use super::checkpoints::weights_of;
use super::network::NetworkArgs;
use super::output::{check_outputs, print_json, say};

/// Write the parameters of a network as one safetensors file, which PyTorch reads
///
/// Layouts are PyTorch's. Names are those of the layers, `conv1.weight`, `bn1.running_mean`: of VGG, ResNet, Inception and `ViT` they are
/// torchvision's, whose models load the file with `load_state_dict`; of ONNX networks those of the exporter.
#[derive(Args)]
#[command(after_help = "Examples:
  deeppool export --model digits-cnn --checkpoint run1 -o weights.safetensors     # what was learned
  deeppool export --model resnet-18 --seed 0 -o initial.safetensors               # what a run with this seed begins with
  deeppool train --model resnet-18 --data synthetic --ranks 2 --batch 8 --init initial.safetensors")]
pub(crate) struct Export {
    #[command(flatten)]
    network: NetworkArgs,
    /// Of the newest checkpoint in this folder
    #[arg(long, value_name = "DIR", conflicts_with = "seed")]
    checkpoint: Option<PathBuf>,
    /// Take the checkpoint with the highest test accuracy, not the newest (see `train --checkpoint-best`)
    #[arg(long, requires = "checkpoint")]
    best: bool,
    /// As drawn by this seed, without a checkpoint
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Where they go; - is standard output
    #[arg(short, long, value_name = "FILE", value_parser = command_line::files::argument())]
    output: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Export {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let network = self.network.load()?;
        check_outputs([&self.output], self.json)?;
        let weights = match &self.checkpoint {
            Some(folder) => weights_of(folder, self.best)?,
            None => Weights::initial(&network, self.seed)?,
        };
        weights.check(&network)?;
        command_line::files::write(&self.output, weights.to_safetensors()?)?;
        if self.json {
            print_json(&json!({ "output": self.output, "model": network.name(), "tensors": weights.len() }));
        } else {
            say!("wrote {} tensors of {} to {}", weights.len(), network.name(), self.output.display());
        }
        Ok(())
    }
}
