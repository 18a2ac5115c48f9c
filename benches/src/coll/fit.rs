//! The subcommand `coll-bench fit`: fits a link model to measurements.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use collectives::{CollectiveKind, Fit, LinkModel, Measurement};
use comfy_table::Table;
use serde_json::json;

use crate::coll::backend::Wait;
use crate::coll::{CollOperation, CollReport, CollRow, Machine, size, table};
use crate::command::{bad_input, check_results};
use crate::report_file::micros;
use crate::table::aligned;

/// Fit startup time, latency and bandwidth of a link model to measurements, and print the errors
#[derive(Args)]
#[command(after_help = "Example:
  coll-bench --ranks 2,3,4 --wait park -o measured.json
  coll-bench fit measured.json --name my-machine -o link.json

The files must contain at least two group sizes and two message sizes. `deeppool plan --link link.json`
reads the written file, to which a level for the network between such hosts can be added.")]
pub(crate) struct FitFiles {
    /// Files written by `coll-bench -o FILE`, all measured on one machine
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Backend to fit, if the files have several: threads, mpi, open-mpi
    #[arg(long)]
    backend: Option<String>,
    /// Wait strategy to fit, if the files have several
    #[arg(long)]
    wait: Option<Wait>,
    /// Collectives to fit [default: all in the files]
    #[arg(long, value_name = "OP,..", value_delimiter = ',')]
    op: Vec<CollectiveKind>,
    /// Name of the model
    #[arg(long, default_value = "measured")]
    name: String,
    /// Write the link model to this file
    #[arg(short, long, value_name = "FILE", value_parser = command_line::files::argument())]
    output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl FitFiles {
    /// Reads the files, fits the link model, and prints or writes it.
    ///
    /// # Errors
    /// Bad input, if a file is invalid, if the files are of several machines or implementations, or
    /// if they do not determine a link model.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let printer = check_results(&self.output, self.json)?;
        let mut rows = self.rows()?;
        rows.retain(|row| self.wants(row));
        let implementation = only_implementation(&rows)?;
        let measurements: Vec<Measurement> = rows.iter().filter_map(CollRow::measurement).collect();
        let fit = LinkModel::fit(&self.name, &measurements).map_err(|error| bad_input(error.to_string()))?;
        if let Some(file) = &self.output {
            command_line::files::write(file, fit.link.to_json() + "\n")?;
        }
        if self.json {
            printer.line(format_args!("{:#}", self.report(&implementation, &rows, &fit)))?;
        } else {
            printer.line(format_args!("{}", format_fit(&implementation, &rows, &fit)))?;
        }
        Ok(())
    }

    /// Reads the rows of all files.
    fn rows(&self) -> anyhow::Result<Vec<CollRow>> {
        let mut rows = Vec::new();
        let mut first: Option<(&Path, Machine)> = None;
        for file in &self.files {
            let report = CollReport::load(file)?;
            rows.extend(report.rows);
            match &first {
                None => first = Some((file, report.machine)),
                Some((_, machine)) if *machine == report.machine => {}
                Some((other, machine)) => {
                    let shown = |machine: &Machine| format!("{}, {} cores", machine.processor, machine.cores);
                    return Err(bad_input(format!(
                        "{} was measured on another machine ({}) than {} ({}): fit them one by one",
                        file.display(),
                        shown(&report.machine),
                        other.display(),
                        shown(machine)
                    )));
                }
            }
        }
        Ok(rows)
    }

    fn wants(&self, row: &CollRow) -> bool {
        self.backend.as_ref().is_none_or(|backend| *backend == row.backend)
            && self.wait.is_none_or(|wait| row.wait.as_deref() == Some(wait.name()))
            && matches!(row.op, CollOperation::Collective(op) if self.op.is_empty() || self.op.contains(&op))
    }

    fn report(&self, implementation: &str, rows: &[CollRow], fit: &Fit) -> serde_json::Value {
        let rows = rows.iter().zip(&fit.relative_errors).map(|(row, error)| {
            json!({
                "op": row.op, "ranks": row.ranks, "bytes": row.bytes, "measured_us": row.time_us,
                "modelled_us": micros(modelled(&fit.link, row)), "error": error,
            })
        });
        json!({
            "schema": "deeppool/report/v1", "experiment": "link-fit",
            "link": self.name, "measured": implementation,
            "startup_us": micros(fit.link.startup()), "latency_us": micros(fit.link.latency()),
            "bandwidth_bytes_per_s": fit.link.bandwidth_bytes_per_s(),
            "median_error": fit.median_error(), "worst_error": fit.max_error(),
            "rows": rows.collect::<Vec<_>>(),
        })
    }
}

/// Returns the name of the rows' implementation. Different implementations have no common link
/// model.
fn only_implementation(rows: &[CollRow]) -> anyhow::Result<String> {
    let mut implementations: Vec<String> = Vec::new();
    for row in rows {
        let implementation = match &row.wait {
            Some(wait) => format!("{}, {wait}", row.backend),
            None => row.backend.clone(),
        };
        if !implementations.contains(&implementation) {
            implementations.push(implementation);
        }
    }
    match implementations.as_slice() {
        [] => Err(bad_input("the files hold no such measurements")),
        [implementation] => Ok(implementation.clone()),
        several => {
            let several = several.join("; ");
            Err(bad_input(format!("the files hold times of {several}: choose one with --backend and --wait")))
        }
    }
}

fn format_fit(implementation: &str, rows: &[CollRow], fit: &Fit) -> String {
    let (link, percent) = (&fit.link, |share: f64| format!("{:.1}%", 100.0 * share));
    let mut errors = Table::new();
    errors.set_header(["op", "ranks", "size", "measured (us)", "modelled (us)", "error"]);
    for (row, error) in rows.iter().zip(&fit.relative_errors) {
        errors.add_row([
            row.op.to_string(),
            row.ranks.to_string(),
            size::format(row.bytes),
            table::format_us(row.time_us),
            table::format_us(micros(modelled(link, row))),
            format!("{:+.1}%", 100.0 * error),
        ]);
    }
    format!(
        "# {}: fitted to {} times of {implementation}; error {} (median), {} (worst)\n\
         startup    {:>10.2} us\n\
         latency    {:>10.2} us a step\n\
         bandwidth  {:>10.2} GB/s\n\n{}",
        link.name(),
        rows.len(),
        percent(fit.median_error()),
        percent(fit.max_error()),
        micros(link.startup()),
        micros(link.latency()),
        link.bandwidth_bytes_per_s() / 1e9,
        aligned(errors, 0..=0)
    )
}

fn modelled(link: &LinkModel, row: &CollRow) -> Duration {
    row.measurement().map_or(Duration::ZERO, |of| link.cost(of.collective, of.ranks, of.bytes))
}
