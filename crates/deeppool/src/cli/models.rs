use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use layer_graph::zoo;
use serde_json::json;

use super::network::import;
use super::output::{print_json, say, table};

/// List the built-in networks, or those of ONNX files
#[derive(Args)]
pub(crate) struct Models {
    /// ONNX files, instead of the built-in networks
    #[arg(long, value_name = "FILE", num_args = 1..)]
    onnx: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Models {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let (mut rows, mut unread) = (Vec::new(), Vec::new());
        let mut shown = table(&["model", "layers", "parameters", "GFLOP forward", "activations"]);
        let networks = if self.onnx.is_empty() {
            zoo::names().iter().map(|name| Ok(zoo::model(name)?)).collect::<anyhow::Result<Vec<_>>>()?
        } else {
            let mut read = |path: &PathBuf| import(path).map_err(|error| unread.push(error.to_string())).ok();
            self.onnx.iter().filter_map(&mut read).collect()
        };
        for network in networks {
            let name = network.name();
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
            print_json(&json!({"models": rows, "unread": unread}));
        } else if !rows.is_empty() {
            say!("{shown}\n\nFLOP and activations are of one sample, in single precision.");
        }
        match unread.split_first() {
            None => Ok(()),
            Some((problem, [])) => bail!("{problem}"),
            Some((problem, others)) => bail!("{problem}; and {} more like it", others.len()),
        }
    }
}
