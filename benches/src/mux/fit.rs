//! The subcommand `mux-bench fit`: fits the virtual device to a GPU's calibration, and to the
//! measurements of the foreground alone.

use std::path::PathBuf;

use clap::Args;
use gpu_mux::ParametersFile;

use super::{foreground_fit, workload};
use crate::command::{bad_input, check_results};
use crate::mux::MuxReport;

/// Fit the virtual device's parameters to a measurement by `mux-bench --device cuda`
///
/// Launch times, latencies and gaps are fitted to the calibration; the duration of kernels and
/// their jitter to the median and the 99th percentile of the foreground's iterations alone.
#[derive(Args)]
pub(crate) struct Fit {
    /// File written by `mux-bench --device cuda --out FILE`
    measured: PathBuf,
    /// Workload file of the measurement [default: the built-in workload]
    #[arg(long, value_name = "FILE")]
    workload: Option<PathBuf>,
    /// Write the parameters to this file instead of standard output
    #[arg(short, long, value_name = "FILE", value_parser = command_line::files::argument())]
    out: Option<PathBuf>,
}

impl Fit {
    /// Reads a report, fits the parameters and prints or writes them.
    ///
    /// # Errors
    /// Bad input, if the file has no calibration or an invalid one, or was measured on another
    /// workload.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let report = MuxReport::load(&self.measured)?;
        let file = self.measured.display();
        let calibration = report.calibration.as_ref().ok_or_else(|| {
            bad_input(format!("{file}: no calibration in it: only `mux-bench --device cuda` measures one"))
        })?;
        let parameters = calibration.parameters().map_err(|error| bad_input(format!("{file}: {error}")))?;
        let mut fitted = ParametersFile::new(format!("fitted to {}", report.device), parameters);
        if !report.rows.is_empty() {
            let workload = workload::read(self.workload.as_deref())?;
            if workload.name != report.workload {
                return Err(bad_input(format!(
                    "{file}: measured on the workload {:?}, not {:?}: give its file with --workload",
                    report.workload, workload.name
                )));
            }
            let alone = foreground_fit::fit(&report.rows, &workload, parameters);
            let alone = alone.map_err(|error| bad_input(format!("{file}: {error}")))?;
            (fitted.kernel_time, fitted.parameters.jitter) = (alone.kernel_time, alone.jitter);
        }
        let printer = check_results(&self.out, false)?;
        let text = fitted.to_json();
        match &self.out {
            Some(path) => Ok(command_line::files::write(path, text + "\n")?),
            None => Ok(printer.line(format_args!("{text}"))?),
        }
    }
}
