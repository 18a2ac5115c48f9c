//! The command `deeppool models`.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use command_line::numbers::within;
use layer_graph::{LayerGraph, zoo};
use serde_json::{Value, json};

use super::inputs;
use super::network::{MAX_TOKENS, configured, import, import_pt2, opaque_line, opaque_names};
use super::output::{print_json, print_message, table};

/// List the built-in networks, or those in files
#[derive(Args)]
#[command(after_help = "\
Examples:
  deeppool models
  deeppool models --json
  deeppool models --onnx resnet50.onnx mobilenet.onnx
  deeppool models --pt2 resnet50.pt2
  deeppool models --hf llama/config.json --sequence 2048")]
pub(crate) struct Models {
    /// ONNX files, instead of the built-in networks
    #[arg(long, value_name = "FILE", num_args = 1..)]
    onnx: Vec<PathBuf>,
    /// Files of torch.export.save, instead of the built-in networks
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pt2: Vec<PathBuf>,
    /// Files in the format deeppool/graph/v1, instead of the built-in networks
    #[arg(long, value_name = "FILE", num_args = 1..)]
    graph: Vec<PathBuf>,
    /// Networks in files config.json of the package transformers, instead of the built-in networks
    #[arg(long, value_name = "FILE", num_args = 1..)]
    hf: Vec<PathBuf>,
    /// Number of tokens of a sample of --hf; none for vit, which reads images
    #[arg(long, value_name = "TOKENS", requires = "hf", value_parser = within(1..=MAX_TOKENS))]
    sequence: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Models {
    /// Prints the built-in networks, or those in the given files.
    ///
    /// # Errors
    /// If a file cannot be read, after the networks of the other files are printed.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let (mut rows, mut unread, mut opaque) = (Vec::new(), Vec::new(), Vec::new());
        let mut shown = table(&["model", "layers", "parameters", "GFLOP forward", "activations"]);
        let files = [&self.onnx, &self.pt2, &self.graph, &self.hf];
        let networks = if files.iter().all(|files| files.is_empty()) {
            zoo::names().iter().map(|name| Ok(zoo::model(name)?)).collect::<anyhow::Result<Vec<_>>>()?
        } else {
            let of_onnx = self.onnx.iter().map(|path| import(path));
            let of_programs = self.pt2.iter().map(|path| import_pt2(path));
            let of_graphs = self.graph.iter().map(|path| Ok(inputs::graph(path)?));
            let of_configs = self.hf.iter().map(|path| configured(path, self.sequence));
            let mut read = |network: anyhow::Result<LayerGraph>| {
                network.map_err(|error| unread.push(error.to_string())).ok()
            };
            of_onnx.chain(of_programs).chain(of_graphs).chain(of_configs).filter_map(&mut read).collect()
        };
        for network in networks {
            let name = network.name();
            let input = network.layer(network.input()).output_shape();
            let further = network.inputs().skip(1).map(|id| network.layer(id));
            let further: Vec<Value> = further
                .map(|layer| json!({"name": layer.name(), "shape": layer.output_shape().dims()}))
                .collect();
            let layers = network.computing_layers().len();
            shown.add_row([
                name.to_owned(),
                layers.to_string(),
                network.parameter_count().to_string(),
                format!("{:.3}", network.forward_flops() as f64 / 1e9),
                format!("{:.1} MiB", network.activation_bytes() as f64 / f64::from(1 << 20)),
            ]);
            rows.push(json!({
                "name": name, "input": input.dims(), "further_inputs": further,
                "layers": layers, "parameters": network.parameter_count(),
                "forward_flops": network.forward_flops(), "backward_flops": network.backward_flops(),
                "activation_bytes": network.activation_bytes(), "opaque_layers": opaque_names(&network),
            }));
            opaque.extend(opaque_line(&network).map(|line| format!("{name}: {line}")));
        }
        if self.json {
            print_json(&json!({"models": rows, "unread": unread}));
        } else if !rows.is_empty() {
            print_message!("{shown}\n\nFLOP and activations are of one sample, in single precision.");
            for line in opaque {
                print_message!("{line}");
            }
        }
        match unread.split_first() {
            None => Ok(()),
            Some((problem, [])) => bail!("{problem}"),
            Some((problem, others)) => bail!("{problem}; and {} more like it", others.len()),
        }
    }
}
