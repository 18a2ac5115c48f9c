use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use layer_graph::LayerGraph;

use super::inputs;

/// Which network a command is about.
#[derive(Args)]
pub(crate) struct NetworkArgs {
    /// A network of `deeppool models`
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// A network from an ONNX file, instead of a built-in one
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    pub(crate) onnx: Option<PathBuf>,
    /// A network from a file of the format deeppool/graph/v1, such as the Python package makes of a PyTorch module
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "onnx"])]
    pub(crate) graph: Option<PathBuf>,
}

impl NetworkArgs {
    pub(crate) fn load(&self) -> anyhow::Result<LayerGraph> {
        match (&self.model, &self.onnx, &self.graph) {
            (_, _, Some(path)) => Ok(inputs::graph(path)?),
            (_, Some(path), None) => import(path),
            (Some(model), None, None) => Ok(inputs::model(model)?),
            (None, None, None) => bail!("give --model NAME, --onnx FILE or --graph FILE"),
        }
    }
}

/// The network of an ONNX file, with a warning where it is another than was exported.
pub(crate) fn import(path: &Path) -> anyhow::Result<LayerGraph> {
    let imported = inputs::onnx(path)?;
    if let Some(warning) = imported.warning() {
        if super::launched::is_first() {
            eprintln!("warning: {}: {warning}", path.display());
        }
    }
    Ok(imported.graph)
}

/// What there is to say about layers of which only the cost is known; nothing where there are none.
pub(crate) fn opaque_line(network: &LayerGraph) -> Option<String> {
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    for (_, opaque) in network.opaque_layers() {
        *counts.entry(&opaque.op).or_default() += 1;
    }
    let ops: Vec<String> = counts.iter().map(|(op, count)| format!("{count} {op}")).collect();
    let count: usize = counts.values().sum();
    let layers = if count == 1 { "layer is" } else { "layers are" };
    (count > 0).then(|| {
        format!("{count} {layers} opaque, known by what they compute and move alone: {}", ops.join(", "))
    })
}

/// The names of the layers of which only the cost is known.
pub(crate) fn opaque_names(network: &LayerGraph) -> Vec<&str> {
    network.opaque_layers().map(|(layer, _)| layer.name()).collect()
}
