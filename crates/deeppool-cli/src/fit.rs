//! The command `deeppool fit`.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use layer_profile::{DeviceModel, FitReport, NetworkErrors, Observations};
use serde_json::{Value, json};

use super::inputs;
use super::output::{check_outputs, print_json, print_message, table};

/// Fit a device model to measured layer times, and print its errors
#[derive(Args)]
#[command(after_help = "Examples:
  deeppool fit --profile resnet-18.json --profile vgg11.json --name my-cpu -o my-cpu.json
  deeppool plan --model resnet-50 --device my-cpu.json --link shared-memory --gpus 4 --batch 32")]
pub(crate) struct Fit {
    /// File of measured layer times (see `deeppool profile`); repeat the option for several
    /// networks on the same device and engine
    #[arg(long = "profile", value_name = "FILE", required = true)]
    profiles: Vec<PathBuf>,
    /// Name of the model [default: the device of the profiles]
    #[arg(long)]
    name: Option<String>,
    /// GPU whose data sheet bounds the costs: a100 (40 GB), a100-80gb, h100, h200, v100 (16 GB),
    /// v100-32gb
    #[arg(long, value_name = "GPU")]
    data_sheet: Option<String>,
    /// File of the model; - is standard output
    #[arg(short, long, value_name = "FILE", value_parser = command_line::files::argument())]
    output: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Fit {
    /// Fits a device model to the profiles, writes it, and prints its errors.
    ///
    /// # Errors
    /// If a profile cannot be read or is not measured, or the name is that of a built-in model.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        check_outputs([&self.output], self.json)?;
        let sheet = self.data_sheet.as_deref().map(inputs::data_sheet).transpose()?;
        let (device, observations) = self.observations()?;
        let name = self.name.as_deref().unwrap_or(&device);
        if DeviceModel::names().contains(&name) {
            bail!("`{name}` is built in: give the model another name with --name NAME");
        }
        let (model, report) = DeviceModel::fit(name, sheet.as_ref(), &observations)?;
        command_line::files::write(&self.output, model.to_json()?)?;
        if self.json {
            print_json(&json!({
                "schema": "deeppool/report/v1", "experiment": "fit", "device": name,
                "accuracy": model.accuracy(),
                "fitted": errors_json(&report.fitted), "held_out": errors_json(&report.held_out),
            }));
        } else {
            print_message!("{name}: {}\n\n{}", model.accuracy(), shown(&report));
            print_message!("\nwrote {}", self.output.display());
        }
        Ok(())
    }

    /// Returns the device and the observations of all profiles.
    fn observations(&self) -> anyhow::Result<(String, Observations)> {
        let tables: Vec<_> =
            self.profiles.iter().map(|path| inputs::profile(path)).collect::<Result<_, _>>()?;
        // clap requires at least one.
        let device = tables.first().map_or_else(String::new, |table| table.device().to_owned());
        let mut observations = Observations::new(format!("times measured on {device}"));
        for (table, path) in tables.iter().zip(&self.profiles) {
            let in_file = || path.display().to_string();
            let network = inputs::model(table.model()).with_context(in_file)?;
            observations.add_table(&network, table).with_context(in_file)?;
        }
        Ok((device, observations))
    }
}

fn shown(report: &FitReport) -> comfy_table::Table {
    let percent = |error: f64| format!("{:.1}%", 100.0 * error);
    let both = |errors: &NetworkErrors| [errors.median(), errors.max_error()].map(percent);
    let mut shown =
        table(&["network", "layers, median", "whole, worst", "left out: layers, median", "whole, worst"]);
    for fitted in &report.fitted {
        let held_out = report.held_out.iter().find(|left_out| left_out.network == fitted.network);
        let held_out = held_out.map_or_else(|| ["-", "-"].map(String::from), both);
        shown.add_row(std::iter::once(fitted.network.clone()).chain(both(fitted)).chain(held_out));
    }
    shown
}

fn errors_json(networks: &[NetworkErrors]) -> Value {
    let network = |errors: &NetworkErrors| {
        let whole = errors.whole.iter().map(|(batch, error)| json!({"batch": batch, "error": error}));
        json!({
            "model": errors.network, "layers_median": errors.median(), "network_worst": errors.max_error(),
            "network": whole.collect::<Vec<_>>(),
        })
    };
    networks.iter().map(network).collect()
}
