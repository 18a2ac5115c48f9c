//! Where results go.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

use crate::style::Style;

/// Where results go, and what is printed.
#[derive(Debug, Clone, Args)]
pub(crate) struct OutputOptions {
    /// The folder that CSV, SVG, PDF and JSON go to; it is made when it does not exist
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub(crate) out: PathBuf,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// How figures are drawn: `screen` with a header that says what they are from; `paper` without it (it is in the file's description),
    /// as SVG and, with the feature `pdf`, PDF
    #[arg(long, value_name = "STYLE", default_value = "screen")]
    pub(crate) style: Style,
}

/// The options that all experiments have.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    /// Run it for every combination of the values in a TOML file, such as `gpus = [8, 16]` and `model = "vgg16"`: a folder for each, and
    /// one CSV of all
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) sweep: Option<PathBuf>,
}

/// The folder, made if it is not there. That files can be made in it is seen before any work starts.
pub(crate) fn make_folder(folder: &Path) -> anyhow::Result<()> {
    let name = folder.display();
    std::fs::create_dir_all(folder).with_context(|| format!("{name}: cannot make this folder"))?;
    let probe = folder.join(".writable");
    std::fs::write(&probe, []).with_context(|| format!("{name}: cannot write to this folder"))?;
    std::fs::remove_file(&probe).with_context(|| format!("{name}: cannot write to this folder"))
}
