//! Training on emulated GPUs in virtual time, compared with the simulation of the same plan.

use std::time::Duration;

use deeppool::costs::{Costs, default_link, shard_sizes};
use deeppool::data::Dataset;
use deeppool::job::Job;
use deeppool::plan::{Mode, PlanRequest};
use deeppool::planning::find_plan;
use deeppool::program::{LowerOptions, LoweredTraining, Placement, lower_training};
use deeppool::simulate::{BackgroundCosts, SimulateOptions, Simulation, simulate};
use deeppool::train::{BackgroundConfig, EmulatedTimes, Length, TrainConfig, TrainReport, train_on_gpus};
use layer_graph::zoo;
use layer_profile::DeviceModel;

use crate::emulated::on_emulated_gpus;
use crate::shrunk::shrunk;

const BATCH: usize = 32;

/// Simulates and trains the plan of VGG-16 for `gpus` GPUs, with the step times of the full
/// network. `background` is the batch of a background job of the same network; `None` for none.
fn both(gpus: usize, amplification: f64, background: Option<usize>) -> (Simulation, TrainReport) {
    let (full, small) = (zoo::model("vgg16").unwrap(), shrunk("vgg16", 32, 32));
    // Without buckets, which would differ for the small network's gradients.
    let lowering = LowerOptions::default().with_bucket_bytes(0);
    let profile = DeviceModel::named("a100").unwrap().profile(&full, &shard_sizes(BATCH, gpus)).unwrap();
    let link = default_link("a100", gpus).unwrap();
    let costs = Costs::new(&full, &profile, &link);
    let job = Job::new(costs.clone(), BATCH, lowering.clone());
    let plan = find_plan(&job, &PlanRequest::new(gpus, Mode::Burst { amplification })).unwrap();
    let program = plan.training().first_program().unwrap();
    let beside = background.map(|batch| BackgroundCosts::new(&costs, batch).unwrap());
    let options = SimulateOptions::default().with_background(beside);
    let simulated = simulate(program, &costs, &options).unwrap();

    let alone = |batch| lower_training(&full, &Placement::single(&full).unwrap(), batch, &lowering).unwrap();
    let of_background = background.map(|batch| costs.step_times(&alone(batch)).unwrap().remove(0));
    let times = EmulatedTimes {
        training: vec![costs.step_times(program).unwrap()],
        background: of_background.into_iter().collect(),
    };
    let data = Dataset::synthetic_for(&small, 1024, 0).unwrap();
    let training = LoweredTraining::new(&small, plan.training().placement().clone(), BATCH, lowering);
    let config = TrainConfig::new(&data, &training)
        .with_length(Length::Iterations(6))
        .with_emulated_times(Some(&times))
        .with_background(background.map(|batch| BackgroundConfig::new(&small, &data, batch)));
    let trained = train_on_gpus(&config, Duration::from_secs(60), &|_| {}).unwrap();
    (simulated, trained)
}

#[test]
fn emulated_iteration_times_match_the_simulation() {
    on_emulated_gpus("virtual_time::emulated_iteration_times_match_the_simulation", 8, |_| {
        for (gpus, amplification, background) in [(4, 1.2, None), (8, 2.0, None), (8, 2.0, Some(8))] {
            let (simulated, trained) = both(gpus, amplification, background);
            let (expected, got) = (simulated.iteration, trained.iteration_times.median());
            let ratio = got.as_secs_f64() / expected.as_secs_f64();
            println!(
                "{gpus} GPUs, limit {amplification}, background {background:?}: {expected:?} \
                 simulated, {got:?} emulated: {ratio:.4}; background {:.0} and {:.0} samples/s",
                simulated.background_samples_per_s, trained.background_samples_per_s
            );
            // With a background job, the emulated device runs one kernel at a time, while the
            // simulated one shares its multiprocessors.
            let limit = if background.is_some() { 0.04 } else { 1e-4 };
            assert!((ratio - 1.0).abs() <= limit, "{ratio}");
            assert_eq!(trained.background_samples_per_s > 0.0, background.is_some());
        }
    });
}
