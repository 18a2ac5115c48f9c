//! The virtual device.

use std::path::Path;

use anyhow::Context;
use gpu_mux::{
    DeviceParameters, ForegroundState, Jobs, MuxReport, ParametersFile, Play, Played, Policy, Workload,
};

use crate::bad_input;
use crate::bench::Task;
use crate::row::{Alone, Collocated, Times, micros, row};

/// Iterations in which a policy learns the workload.
const WARM_UP: usize = 10;

pub(crate) fn measure(
    workload: &Workload,
    parameters: Option<&Path>,
    task: &Task<'_>,
) -> anyhow::Result<MuxReport> {
    let device = match parameters {
        Some(path) => ParametersFile::load(path).map_err(|error| bad_input(error.to_string()))?,
        None => ParametersFile::new("A100-SXM4-40GB, from data sheets".to_owned(), DeviceParameters::a100()),
    };
    let parameters = device.parameters;
    let play = Play { parameters, iterations: task.iterations, warm_up: WARM_UP, ..Play::default() };
    let alone = Alone {
        foreground: {
            let alone = workload.play(&Play { jobs: Jobs::Foreground, ..play });
            Times::of(&alone.map_err(|error| bad_input(error.to_string()))?.iterations)?
        },
        drift: None,
        background_samples_per_s: {
            let policy = Policy { captured_graphs: true, ..Policy::naive() };
            let alone = Play { jobs: Jobs::Background, policy, ..play };
            workload.play(&alone).map_err(|error| bad_input(error.to_string()))?.background_samples_per_s()
        },
    };
    let rows = task.policies.iter().map(|(name, policy)| {
        let both = workload.play(&Play { policy: *policy, ..play }).with_context(|| name.clone())?;
        Ok(row(name, true, &alone, &collocated(&both)?))
    });
    let rows = rows.collect::<anyhow::Result<Vec<_>>>()?;
    let mut report = MuxReport::new(format!("virtual: {}", device.device), true, workload.name.clone(), rows);
    report.parameters = Some(parameters);
    Ok(report)
}

fn collocated(both: &Played) -> anyhow::Result<Collocated> {
    let occupancy = &both.occupancy;
    let states = |states: &[ForegroundState]| {
        let all = states.iter();
        all.fold((0.0, 0.0), |(time, background), &state| {
            (time + micros(occupancy.time(state)), background + micros(occupancy.background(state)))
        })
    };
    let (idle_us, background_in_idle_us) = states(&[ForegroundState::Idle, ForegroundState::Waiting]);
    Ok(Collocated {
        foreground: Times::of(&both.iterations)?,
        iterations: both.iterations.len(),
        idle_us,
        background_in_idle_us,
        waiting_us: Some(states(&[ForegroundState::Waiting]).0),
        transfer_us: Some(states(&[ForegroundState::Transferring])),
        background_samples_per_s: both.background_samples_per_s(),
        background_pieces: both.background_pieces,
        over_long_pieces: both.over_long,
    })
}
