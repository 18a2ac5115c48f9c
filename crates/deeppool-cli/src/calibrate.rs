//! The option `--calibrate`: layer times and links from earlier runs on this machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use command_line::files;
use deeppool::costs::Costs;
use deeppool::job::{Job, LoweredPlan};
use deeppool::machine::{Calibration, CalibrationRun, CostRatios};
use deeppool::simulate::{SimulateOptions, Simulation, simulate_plan};
use deeppool::train::TrainReport;
use serde_json::{Value, json};

use super::costs::CostTables;
use super::inputs;
use super::output::{micros, print_message};

/// A run that is predicted from the earlier runs of a file, and then added to it.
pub(crate) struct CalibratedRun {
    path: PathBuf,
    earlier: Calibration,
    /// Layer times and links without calibration.
    tables: CostTables,
}

/// The calibration with the run, for its report.
pub(crate) struct CalibrationReport {
    path: PathBuf,
    calibration: Calibration,
}

impl CalibratedRun {
    /// Reads the earlier runs, of which there are none without the file, and scales the times and
    /// links of a run.
    ///
    /// # Errors
    /// If the file cannot be read or is not of this format.
    pub(crate) fn new(path: &Path, tables: CostTables) -> anyhow::Result<(Self, CostTables)> {
        let earlier = if path.try_exists().unwrap_or(true) {
            inputs::calibration(path)?
        } else {
            Calibration::default()
        };
        let scaled = tables.calibrated(&earlier).with_context(|| path.display().to_string())?;
        Ok((Self { path: path.to_owned(), earlier, tables }, scaled))
    }

    /// Adds the run to the file. `simulated` is its prediction with the scaled times, for which the
    /// given options were used.
    ///
    /// # Errors
    /// If the run has too few iterations, or the file cannot be written.
    pub(crate) fn finish(
        self,
        job: &Job<'_>,
        plan: &LoweredPlan<'_>,
        (simulated, options): (&Simulation, &SimulateOptions),
        report: &TrainReport,
    ) -> anyhow::Result<CalibrationReport> {
        let Self { path, earlier, tables } = self;
        let network = job.costs().network();
        let costs = Costs::new(network, &tables.profile, &tables.link);
        let program = plan.training().first_program()?;
        let ratios = match &report.timeline {
            Some(timeline) => CostRatios::measured(program, &costs, timeline)?,
            None => None,
        };
        let Some(ratios) = ratios else { bail!("--calibrate found no complete iteration in the run") };
        let us = |simulated: &Simulation| simulated.iteration.as_secs_f64() * 1e6;
        let uncalibrated = {
            let job = Job::of_plan(costs, plan, job.lowering().optimizer)?;
            simulate_plan(&job, plan, options)?
        };
        let mut calibration = earlier;
        calibration.add(CalibrationRun {
            model: network.name().into(),
            batch: plan.batch,
            ranks: plan.gpus,
            uncalibrated_us: us(&uncalibrated),
            predicted_us: us(simulated),
            measured_us: report.iteration_times.median().as_secs_f64() * 1e6,
            ratios,
        })?;
        files::write(&path, calibration.to_json()? + "\n")?;
        Ok(CalibrationReport { path, calibration })
    }
}

impl CalibrationReport {
    /// Prints how good the prediction was, and those of all runs of the file.
    pub(crate) fn show(&self) {
        let Some(run) = self.calibration.runs().last() else { return };
        let percent = |predicted: f64| format!("{:+.1}%", 100.0 * (predicted / run.measured_us - 1.0));
        print_message!(
            "prediction from {} earlier runs     {} ({}); without calibration {} ({})",
            self.calibration.runs().len() - 1,
            micros(run.predicted_us),
            percent(run.predicted_us),
            micros(run.uncalibrated_us),
            percent(run.uncalibrated_us)
        );
        if let Some(errors) = self.calibration.errors() {
            print_message!(
                "predictions from earlier runs       median error {:.1}% over {} runs; without calibration \
                 {:.1}%",
                100.0 * errors.median,
                errors.runs,
                100.0 * errors.uncalibrated_median
            );
        }
        let factors = self.calibration.factors();
        print_message!(
            "next prediction in {}: layers {:.2} times, transfers {:.2} times as long as without calibration",
            self.path.display(),
            factors.layers,
            factors.transfers.unwrap_or(1.0)
        );
    }

    /// Returns the report as JSON.
    pub(crate) fn to_json(&self) -> Value {
        let factors = self.calibration.factors();
        json!({
            "file": self.path, "run": self.calibration.runs().last(),
            "errors": self.calibration.errors().map(|errors| json!({
                "runs": errors.runs, "median": errors.median,
                "uncalibrated_median": errors.uncalibrated_median,
            })),
            "next": { "layers": factors.layers, "transfers": factors.transfers },
        })
    }
}
