//! The network that a command is about. An opaque layer is an imported operation that the engine
//! cannot execute: only its costs and shapes are known.

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use command_line::numbers::within;
use layer_graph::{LayerGraph, zoo};

use super::inputs;
use super::left_out::warn;

/// Maximum number of blocks of a network.
const MAX_BLOCKS: usize = 10_000;

/// Maximum number of tokens of a sample.
pub(crate) const MAX_TOKENS: usize = 1 << 24;

/// Options for the network.
#[derive(Args)]
pub(crate) struct NetworkArgs {
    /// Built-in network (see `deeppool models`)
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Number of transformer blocks of --model gpt2, instead of 12
    #[arg(long, requires = "model", conflicts_with_all = ["onnx", "pt2", "graph", "hf"],
        value_parser = within(1..=MAX_BLOCKS))]
    pub(crate) blocks: Option<usize>,
    /// Network in an ONNX file
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    pub(crate) onnx: Option<PathBuf>,
    /// Network in a .pt2 file, as torch.export.save writes it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "onnx"])]
    pub(crate) pt2: Option<PathBuf>,
    /// Network in a file of the format deeppool/graph/v1, as the Python package writes for PyTorch
    /// modules
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "onnx", "pt2"])]
    pub(crate) graph: Option<PathBuf>,
    /// Network in a config.json of the package transformers, of the families bert, gemma, gpt2,
    /// `gpt_neo`, `gpt_neox`, llama, mistral, mixtral, opt, qwen2, roberta, t5 and vit
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "onnx", "pt2", "graph"])]
    pub(crate) hf: Option<PathBuf>,
    /// Number of tokens of a sample of --hf; none for vit, which reads images
    #[arg(long, value_name = "TOKENS", requires = "hf",
        conflicts_with_all = ["model", "onnx", "pt2", "graph"], value_parser = within(1..=MAX_TOKENS))]
    pub(crate) sequence: Option<usize>,
}

impl NetworkArgs {
    /// Builds or reads the network of the option that is given, without the layers that no loss
    /// depends on. Prints a warning on rank 0 if there are such layers.
    ///
    /// # Errors
    /// If no option is given, the name is unknown, or the file cannot be read.
    pub(crate) fn load(&self) -> anyhow::Result<LayerGraph> {
        let network = self.whole()?;
        let unused = network.unused_layers();
        let Some(&first) = unused.first() else { return Ok(network) };
        let (name, first) = (network.name(), network.layer(first).name());
        match unused.len() {
            1 => warn(format_args!("{name}: left out `{first}`: no loss depends on it")),
            count => warn(format_args!(
                "{name}: left out `{first}` and {} more layers: no loss depends on them",
                count - 1
            )),
        }
        Ok(network.without_unused_layers()?)
    }

    /// Builds or reads the network of the option that is given, with all its layers.
    fn whole(&self) -> anyhow::Result<LayerGraph> {
        if let Some(path) = &self.hf {
            return configured(path, self.sequence);
        }
        if let Some(path) = &self.pt2 {
            return import_pt2(path);
        }
        match (&self.model, &self.onnx, &self.graph) {
            (_, _, Some(path)) => Ok(inputs::graph(path)?),
            (_, Some(path), None) => import(path),
            (Some(model), None, None) => match self.blocks {
                Some(blocks) if model == "gpt2" => Ok(zoo::gpt2_of_blocks(blocks)?),
                Some(_) => bail!("--blocks is for --model gpt2: leave it out"),
                None => Ok(inputs::model(model)?),
            },
            (None, None, None) => {
                bail!("give --model NAME, --onnx FILE, --pt2 FILE, --graph FILE or --hf FILE")
            }
        }
    }
}

/// Builds the built-in network with this name, or reads the one of an ONNX, `.pt2` or JSON file.
///
/// # Errors
/// If the name is unknown, or the file cannot be read.
pub(crate) fn named_network(name_or_file: &str) -> anyhow::Result<LayerGraph> {
    let path = Path::new(name_or_file);
    match path.extension().and_then(std::ffi::OsStr::to_str) {
        Some("onnx") => import(path),
        Some("pt2") => import_pt2(path),
        Some("json") => Ok(inputs::graph(path)?),
        _ => Ok(inputs::model(name_or_file)?),
    }
}

/// Imports an ONNX file, and prints a warning on rank 0 if the network for training differs from
/// the exported one.
///
/// # Errors
/// If the file cannot be read or imported.
pub(crate) fn import(path: &Path) -> anyhow::Result<LayerGraph> {
    let imported = inputs::onnx(path)?;
    if let Some(warning) = imported.warning() {
        warn(format_args!("{}: {warning}", path.display()));
    }
    Ok(imported.graph)
}

/// Imports a `.pt2` file, and prints a warning on rank 0 if the network for training differs from
/// the exported one.
///
/// # Errors
/// If the file cannot be read or imported.
pub(crate) fn import_pt2(path: &Path) -> anyhow::Result<LayerGraph> {
    let imported = inputs::pt2(path)?;
    if let Some(warning) = imported.warning() {
        warn(format_args!("{}: {warning}", path.display()));
    }
    Ok(imported.graph)
}

/// Builds the network of a `config.json`, and prints a warning on rank 0 if parts of it are not
/// supported. `positions` is the number of tokens of a sample, or `None` for images.
///
/// # Errors
/// If the file cannot be read or is not a configuration of a known family, or if `positions` does
/// not fit the family.
pub(crate) fn configured(path: &Path, positions: Option<usize>) -> anyhow::Result<LayerGraph> {
    let configured = inputs::configured(path, positions)?;
    if !configured.left_out.is_empty() {
        warn(format_args!("{}: the network is without {}", path.display(), configured.left_out.join(", ")));
    }
    Ok(configured.network)
}

/// Describes the opaque layers of a network in one line: their number by operation. Returns `None`
/// if there are none.
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

/// Returns the names of the opaque layers of a network.
pub(crate) fn opaque_names(network: &LayerGraph) -> Vec<&str> {
    network.opaque_layers().map(|(layer, _)| layer.name()).collect()
}
