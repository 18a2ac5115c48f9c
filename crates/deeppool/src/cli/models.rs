use clap::Args;
use layer_graph::zoo;
use serde_json::json;

use super::output::{print_json, table};

/// List the built-in networks
#[derive(Args)]
pub(crate) struct Models {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Models {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut rows = Vec::new();
        let mut shown = table(&["model", "layers", "parameters", "GFLOP forward", "activations"]);
        for name in zoo::names() {
            let network = zoo::model(name)?;
            let input = network.layer(network.input()).output_shape();
            shown.add_row([
                name.to_owned(),
                (network.len() - 1).to_string(),
                network.parameter_count().to_string(),
                format!("{:.3}", network.forward_flops() as f64 / 1e9),
                format!("{:.1} MiB", network.activation_bytes() as f64 / f64::from(1 << 20)),
            ]);
            rows.push(json!({"name": name, "input": input.dims(), "layers": network.len() - 1,
                "parameters": network.parameter_count(), "forward_flops": network.forward_flops(),
                "backward_flops": network.backward_flops(), "activation_bytes": network.activation_bytes()}));
        }
        if self.json {
            print_json(&json!({"models": rows}));
        } else {
            println!("{shown}\n\nFLOP and activations are of one sample, in single precision.");
        }
        Ok(())
    }
}
