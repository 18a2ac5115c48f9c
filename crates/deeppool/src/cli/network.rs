use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use layer_graph::{LayerGraph, onnx, zoo};

/// Which network a command is about.
#[derive(Args)]
pub(crate) struct NetworkArgs {
    /// A network of `deeppool models`
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// A network from an ONNX file, instead of a built-in one
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    pub(crate) onnx: Option<PathBuf>,
}

impl NetworkArgs {
    pub(crate) fn load(&self) -> anyhow::Result<LayerGraph> {
        match (&self.model, &self.onnx) {
            (_, Some(path)) => import(path),
            (Some(model), None) => Ok(zoo::model(model)?),
            (None, None) => bail!("give --model NAME or --onnx FILE"),
        }
    }
}

/// The network of an ONNX file, with a warning where it is another than was exported.
pub(crate) fn import(path: &Path) -> anyhow::Result<LayerGraph> {
    let imported = onnx::import(path)?;
    if let Some(warning) = imported.warning() {
        if super::launched::is_first() {
            eprintln!("warning: {}: {warning}", path.display());
        }
    }
    Ok(imported.graph)
}
