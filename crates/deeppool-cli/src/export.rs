//! The command `deeppool export`.

use std::path::PathBuf;

use clap::Args;
use deeppool::train::Weights;
use serde_json::json;

use super::checkpoints::weights_of;
use super::network::NetworkArgs;
use super::output::{check_outputs, print_json, print_message};

/// Write the parameters of a network to a safetensors file, which PyTorch reads
///
/// Layouts are those of PyTorch. Names consist of layer and tensor, such as `conv1.weight` and
/// `bn1.running_mean`. For VGG, ResNet, Inception and `ViT` they are those of torchvision, whose
/// models load the file with `load_state_dict`.
#[derive(Args)]
#[command(after_help = "Examples:
  deeppool export --model digits-cnn --checkpoint run1 -o weights.safetensors     # trained
  deeppool export --model resnet-18 --seed 0 -o initial.safetensors               # initial, for this seed
  deeppool train --model resnet-18 --data synthetic --ranks 2 --batch 8 --init initial.safetensors")]
pub(crate) struct Export {
    #[command(flatten)]
    network: NetworkArgs,
    /// Parameters of the newest checkpoint in this folder
    #[arg(long, value_name = "DIR", conflicts_with = "seed")]
    checkpoint: Option<PathBuf>,
    /// Use the checkpoint with the best test results instead of the newest one (see `train
    /// --checkpoint-best`)
    #[arg(long, requires = "checkpoint")]
    best: bool,
    /// Without a checkpoint: seed of the initial parameters
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Output file; - is standard output
    #[arg(short, long, value_name = "FILE", value_parser = command_line::files::argument())]
    output: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Export {
    /// Writes the weights of a checkpoint, or initial weights, to the output file.
    ///
    /// # Errors
    /// If there is no checkpoint, the weights do not fit the network, or writing fails.
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
            print_message!(
                "wrote {} tensors of {} to {}",
                weights.len(),
                network.name(),
                self.output.display()
            );
        }
        Ok(())
    }
}
