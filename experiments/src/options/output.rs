//! Options of the output.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

use crate::style::Style;

/// Destination of the results, and form of the printed output.
#[derive(Debug, Clone, Args)]
pub(crate) struct OutputOptions {
    /// Folder for CSV, SVG, PDF and JSON files; it is created if it does not exist
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub(crate) out: PathBuf,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Style of figures: `screen` has a header with the origin of the data; `paper` has it in the
    /// file's description only, and is written as SVG and, with the feature `pdf`, as PDF
    #[arg(long, value_name = "STYLE", default_value = "screen")]
    pub(crate) style: Style,
}

/// Options that all experiments have.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunOptions {
    /// Options of the output.
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    /// Run the experiment for every combination of the values in a TOML file, such as `gpus = [8,
    /// 16]` and `model = "vgg16"`, with a folder for each and one CSV file of all
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) sweep: Option<PathBuf>,
}

/// Creates the folder if it does not exist, and checks that files can be created in it.
///
/// # Errors
/// If that fails; the message names the folder.
pub(crate) fn make_folder(folder: &Path) -> anyhow::Result<()> {
    let name = folder.display();
    std::fs::create_dir_all(folder).with_context(|| format!("{name}: cannot make this folder"))?;
    let probe = folder.join(".writable");
    std::fs::write(&probe, []).with_context(|| format!("{name}: cannot write to this folder"))?;
    std::fs::remove_file(&probe).with_context(|| format!("{name}: cannot write to this folder"))
}
