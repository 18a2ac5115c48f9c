//! The command `deeppool import-profile`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};

use super::inputs;
use super::left_out::warn;
use super::network::NetworkArgs;
use super::output::{check_outputs, print_json, print_message, table, time};

/// Convert layer times in the format of the original DeepPool to a profile
///
/// Rows are matched to layers by position. The first row that differs from the network is an error.
#[derive(Args)]
#[command(after_help = "Examples:
  deeppool import-profile --model vgg16 --from A100_vgg.prof --device a100 -o vgg16-a100.json
  deeppool plan --model vgg16 --profile vgg16-a100.json --gpus 8 --batch 32")]
pub(crate) struct ImportProfile {
    #[command(flatten)]
    network: NetworkArgs,
    /// Input file
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Device of the times. Its model provides times that the file lacks, and divides rows of
    /// several layers
    #[arg(long)]
    device: String,
    /// File of the profile; - is standard output
    #[arg(short, long, value_name = "FILE", value_parser = command_line::files::argument())]
    output: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl ImportProfile {
    /// Converts the input file to a profile, writes it, and prints a summary.
    ///
    /// # Errors
    /// If the file cannot be read or does not match the network, or writing fails.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let network = self.network.load()?;
        let model = inputs::device(&self.device)?;
        check_outputs([&self.output], self.json)?;
        let published = inputs::published_profile(&self.from)?;
        let imported =
            published.for_network(&network, &model).with_context(|| self.from.display().to_string())?;
        command_line::files::write(&self.output, imported.table.to_json())?;
        let (layers, backward) = (imported.modelled.len(), imported.modelled_backward.len());
        if layers + backward > 0 {
            warn(format_args!(
                "{}: no times of {layers} of {} layers, and no backward times of {backward}: they are \
                 modelled, at most {:.1}% of forward and backward",
                self.from.display(),
                imported.table.layers().len(),
                100.0 * imported.modelled_share,
            ));
        }
        if self.json {
            let profile: Value = serde_json::from_str(&imported.table.to_json())?;
            print_json(&json!({
                "output": self.output, "modelled": imported.modelled,
                "modelled_backward": imported.modelled_backward, "modelled_share": imported.modelled_share,
                "profile": profile,
            }));
            return Ok(());
        }
        let mut shown = table(&["batch", "forward", "backward", "update", "iteration"]);
        for row in imported.table.network() {
            let times = [row.time.forward, row.time.backward, row.time.update, row.time.total()].map(time);
            shown.add_row(std::iter::once(row.batch.to_string()).chain(times));
        }
        print_message!("{} on {}, imported from {}", network.name(), self.device, self.from.display());
        print_message!("{shown}\n\nsums of the layers' times; not in the file, and modelled:");
        print_message!("  update: the optimiser's step of all layers");
        if let Some(layers) = listed(&imported.modelled) {
            print_message!("  forward and backward of {layers}");
        }
        if let Some(layers) = listed(&imported.modelled_backward) {
            print_message!("  backward of {layers}");
        }
        print_message!("  in all at most {:.1}% of forward and backward", 100.0 * imported.modelled_share);
        print_message!("model of {}: {}", model.name(), model.accuracy());
        print_message!("\nwrote {}", self.output.display());
        Ok(())
    }
}

/// Lists up to 8 names, or the number of names with the first and the last one.
fn listed(layers: &[String]) -> Option<String> {
    const MAX_LISTED: usize = 8;
    match layers.len() {
        0 => None,
        1..=MAX_LISTED => Some(layers.join(", ")),
        count => Some(format!("{count} layers, {} to {}", layers[0], layers[count - 1])),
    }
}
