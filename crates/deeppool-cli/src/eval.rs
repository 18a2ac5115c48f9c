//! The command `deeppool eval`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use command_line::numbers::within;
use deeppool::data::{DataSource, Dataset};
use deeppool::program::{LowerOptions, LoweredTraining, Placement};
use deeppool::train::{Evaluation, LossEvaluation, TrainConfig};
use serde_json::{Value, json};

use super::checkpoints::weights_of;
use super::counts::BATCH;
use super::inputs;
use super::network::NetworkArgs;
use super::output::{print_json, print_message};
use super::ranks::{EngineArgs, LayerPrecision, evaluate_on};

/// Compute the accuracy of a trained network on the held-out samples
#[derive(Args)]
#[command(after_help = "Examples:
  deeppool eval --model digits-cnn --data digits --checkpoint run1
  deeppool eval --model digits-cnn --data digits --weights weights.safetensors
  deeppool eval --model digits-cnn --data digits --weights weights.safetensors --engine cuda")]
pub(crate) struct Eval {
    #[command(flatten)]
    network: NetworkArgs,
    /// Data set: digits, mnist:DIR, cifar10:DIR, safetensors:FILE, synthetic, synthetic:SEED
    #[arg(long)]
    data: DataSource,
    /// Weights: a safetensors file (see `deeppool export`)
    #[arg(long, value_name = "FILE", required_unless_present = "checkpoint", conflicts_with = "checkpoint")]
    weights: Option<PathBuf>,
    /// Weights: the newest checkpoint in this folder
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// Use the checkpoint with the best test results instead of the newest one (see `train
    /// --checkpoint-best`)
    #[arg(long, requires = "checkpoint")]
    best: bool,
    #[command(flatten)]
    on: EngineArgs,
    /// Precision of layers
    #[arg(long, value_enum, default_value_t = LayerPrecision::F32)]
    precision: LayerPrecision,
    /// Number of samples per batch
    #[arg(long, value_parser = within(BATCH), default_value = "32")]
    batch: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Timeout of the start of the one rank.
const TIMEOUT: Duration = Duration::from_secs(60);

impl Eval {
    /// Evaluates the network with the given weights and prints the test results.
    ///
    /// # Errors
    /// If the data set or the weights do not fit the network, or the engine fails.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        self.on.emulate()?;
        self.on.engine().check(None)?;
        let network = self.network.load()?;
        let dataset = Dataset::open(&self.data, &network)?;
        let weights = match (&self.weights, &self.checkpoint) {
            (Some(file), _) => inputs::weights(file)?,
            (None, Some(folder)) => weights_of(folder, self.best)?,
            (None, None) => bail!("give --weights FILE or --checkpoint DIR"),
        };
        let placement = Placement::single(&network)?;
        let options = LowerOptions::default().with_precision(self.precision.of(self.on.engine())?);
        let training = LoweredTraining::new(&network, placement, self.batch, options);
        let config = TrainConfig::new(&dataset, &training).with_initial(Some(&weights));
        let Evaluation { loss, accuracy, of_losses, .. } = evaluate_on(self.on.engine(), &config, TIMEOUT)?;
        let samples = dataset.test().len();
        let several = Some(&of_losses).filter(|losses| losses.len() > 1);
        if self.json {
            let mut report = json!({
                "model": network.name(), "data": dataset.name(), "samples": samples, "loss": loss,
                "accuracy": accuracy,
            });
            if let Some(losses) = several {
                report["losses"] = losses.iter().map(loss_json).collect();
            }
            print_json(&report);
        } else {
            let (model, data) = (network.name(), dataset.name());
            let right = percentage(accuracy);
            print_message!("{model} on {data}: {right}{samples} held-out samples, mean loss {loss:.4}");
            for LossEvaluation { layer, weight, loss, accuracy, .. } in several.into_iter().flatten() {
                print_message!("  {layer} (weight {weight}): {}loss {loss:.4}", accuracy_text(*accuracy));
            }
        }
        Ok(())
    }
}

/// Returns the fraction of correct results, before their number; empty if there is none.
fn percentage(accuracy: Option<f64>) -> String {
    accuracy.map(|accuracy| format!("{:.2}% of ", accuracy * 100.0)).unwrap_or_default()
}

fn accuracy_text(accuracy: Option<f64>) -> String {
    accuracy.map(|accuracy| format!("accuracy {:.2}%, ", accuracy * 100.0)).unwrap_or_default()
}

fn loss_json(of: &LossEvaluation) -> Value {
    json!({ "layer": of.layer, "weight": of.weight, "loss": of.loss, "accuracy": of.accuracy })
}
