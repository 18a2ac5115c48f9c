//! The subcommand `mux-bench fit`: fits the virtual device to a GPU's calibration.

use std::path::PathBuf;

use clap::Args;
use gpu_mux::ParametersFile;

use crate::command::{bad_input, check_results};
use crate::mux::MuxReport;

/// Fit the virtual device's parameters to a calibration by `mux-bench --device cuda`
#[derive(Args)]
pub(crate) struct Fit {
    /// File written by `mux-bench --device cuda --out FILE`
    measured: PathBuf,
    /// Write the parameters to this file instead of standard output
    #[arg(short, long, value_name = "FILE", value_parser = command_line::files::argument())]
    out: Option<PathBuf>,
}

impl Fit {
    /// Reads a report, fits the parameters and prints or writes them.
    ///
    /// # Errors
    /// Bad input, if the file has no calibration or an invalid one.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let report = MuxReport::load(&self.measured)?;
        let file = self.measured.display();
        let calibration = report.calibration.as_ref().ok_or_else(|| {
            bad_input(format!("{file}: no calibration in it: only `mux-bench --device cuda` measures one"))
        })?;
        let parameters = calibration.parameters().map_err(|error| bad_input(format!("{file}: {error}")))?;
        let printer = check_results(&self.out, false)?;
        let text = ParametersFile::new(format!("fitted to {}", report.device), parameters).to_json();
        match &self.out {
            Some(path) => Ok(command_line::files::write(path, text + "\n")?),
            None => Ok(printer.line(format_args!("{text}"))?),
        }
    }
}
