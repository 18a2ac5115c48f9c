//! Measurement on the virtual device, a GPU modelled in virtual time.

use std::path::Path;

use anyhow::Context;
use gpu_mux::{
    DeviceParameters, ForegroundState, Jobs, ParametersFile, Policy, SimulationOptions, SimulationReport,
    Workload,
};

use crate::command::bad_input;
use crate::mux::MuxReport;
use crate::mux::row::{Alone, Collocated, row, times};
use crate::mux::task::BenchTask;
use crate::progress;
use crate::report_file::micros;
use command_line::files::read_text_as;

/// Number of iterations in which a policy learns the workload.
const WARM_UP: usize = 10;

/// Simulates the workload under each policy. `parameters` is a file of the device's parameters;
/// without it, they are those of an A100.
///
/// # Errors
/// Bad input, if the file or the workload is invalid.
pub(crate) fn measure(
    workload: &Workload,
    parameters: Option<&Path>,
    task: &BenchTask<'_>,
) -> anyhow::Result<MuxReport> {
    let device = match parameters {
        Some(path) => {
            read_text_as(path, ParametersFile::from_json).map_err(|error| bad_input(error.to_string()))?
        }
        None => ParametersFile::new("A100-SXM4-40GB, from data sheets".to_owned(), DeviceParameters::a100()),
    };
    let parameters = device.parameters;
    let is_scaled = device.kernel_time.to_bits() != 1.0_f64.to_bits();
    let workload =
        &if is_scaled { workload.clone().with_kernel_times(device.kernel_time) } else { workload.clone() };
    let options = SimulationOptions::default()
        .with_parameters(parameters)
        .with_iterations(task.iterations)
        .with_warm_up(WARM_UP);
    let alone = Alone {
        foreground: {
            let alone = workload.simulate(&options.with_jobs(Jobs::Foreground));
            times(&alone.map_err(|error| bad_input(error.to_string()))?.iterations)?
        },
        drift: None,
        background_samples_per_s: {
            let policy = Policy { captured_graphs: true, ..Policy::naive() };
            let alone = options.with_jobs(Jobs::Background).with_policy(policy);
            workload
                .simulate(&alone)
                .map_err(|error| bad_input(error.to_string()))?
                .background_samples_per_s()
        },
    };
    let progress = progress::bar(task.policies.len());
    let rows = task.policies.iter().map(|(name, policy)| {
        progress.set_message(name.clone());
        let both = workload.simulate(&options.with_policy(*policy)).with_context(|| name.clone())?;
        progress.inc(1);
        Ok(row(name, true, &alone, &collocated(&both)?))
    });
    let rows = rows.collect::<anyhow::Result<Vec<_>>>()?;
    progress.finish_and_clear();
    let mut report = MuxReport::new(format!("virtual: {}", device.device), true, workload.name.clone(), rows);
    report.parameters = Some(parameters);
    report.kernel_time = is_scaled.then_some(device.kernel_time);
    Ok(report)
}

fn collocated(both: &SimulationReport) -> anyhow::Result<Collocated> {
    let occupancy = &both.occupancy;
    let states = |states: &[ForegroundState]| {
        let all = states.iter();
        all.fold((0.0, 0.0), |(time, background), &state| {
            (time + micros(occupancy.time(state)), background + micros(occupancy.background(state)))
        })
    };
    let (idle_us, background_in_idle_us) = states(&[ForegroundState::Idle, ForegroundState::Waiting]);
    Ok(Collocated {
        foreground: times(&both.iterations)?,
        iterations: both.iterations.len(),
        idle_us,
        background_in_idle_us,
        waiting_us: Some(states(&[ForegroundState::Waiting]).0),
        transfer_us: Some(states(&[ForegroundState::Transferring])),
        background_samples_per_s: both.background_samples_per_s(),
        background_pieces: both.background_pieces,
        over_long_pieces: both.over_limit,
    })
}
