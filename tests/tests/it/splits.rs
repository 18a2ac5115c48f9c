//! Times of plans with split layers, by the device model.

use std::time::Duration;

use collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::job::Job;
use deeppool::plan::{Mode, PlanRequest};
use deeppool::planning::find_plan;
use deeppool::program::{LowerOptions, Placement, lower_for_simulation};
use deeppool::simulate::{SimulateOptions, simulate};
use layer_graph::{Division, LayerGraph, LayerId, NetworkSplits, Split, zoo};
use layer_profile::{DeviceModel, LayerProfile};

const BATCH: usize = 32;
const GPUS: usize = 8;

fn iteration(costs: &Costs<'_>, placement: &Placement) -> Duration {
    let program = lower_for_simulation(costs.network(), placement, BATCH, &LowerOptions::default()).unwrap();
    simulate(&program, costs, &SimulateOptions::default().with_iterations(4)).unwrap().iteration
}

/// Returns the divisions of the classifier of VGG: the first linear layer and those after it by
/// features, the second one by inputs.
fn of_classifier(network: &LayerGraph) -> Vec<(LayerId, Division)> {
    let splits = [("classifier.0", Split::Features), ("classifier.1", Split::Features)];
    let splits =
        splits.into_iter().chain([("classifier.2", Split::Features), ("classifier.3", Split::Inputs)]);
    splits.map(|(name, split)| (network.find(name).unwrap(), Division { split, parts: GPUS })).collect()
}

/// A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014: large
/// linear layers are split by features, and convolutions by samples.
#[test]
fn split_linear_layers_are_faster_than_data_parallelism() {
    let network = zoo::model("vgg16").unwrap();
    let profile = DeviceModel::named("a100").unwrap().profile(&network, &shard_sizes(BATCH, GPUS)).unwrap();
    let link = LinkModel::dgx_a100();
    let costs = Costs::new(&network, &profile, &link);
    let data_parallel = Placement::first_ranks(&network, GPUS, &vec![GPUS; network.len() - 1]).unwrap();
    let split = data_parallel.clone().with_divisions(&network, of_classifier(&network)).unwrap();
    let [whole, parts] = [data_parallel, split].map(|placement| iteration(&costs, &placement));
    let ratio = whole.as_secs_f64() / parts.as_secs_f64();
    assert!(ratio >= 1.27, "{whole:?} and {parts:?}: {ratio}");
}

/// Times of parts take the place of modelled ones, for the planner and for the simulator.
#[test]
fn plans_by_profiles_with_times_of_parts_are_simulated_as_planned() {
    let network = zoo::model("alexnet").unwrap();
    let profile = DeviceModel::named("a100").unwrap().profile(&network, &shard_sizes(BATCH, GPUS)).unwrap();
    let splits = NetworkSplits::new(&network);
    let link = LinkModel::dgx_a100();
    // Parts of equal layers take different times, of the whole layer's.
    let with_parts = |percent: u32| {
        let mut rows: Vec<LayerProfile> = Vec::new();
        for (id, layer) in network.layers() {
            let divisions = splits.splits(id).into_iter().flat_map(|split| [2, 4, 8].map(|n| (split, n)));
            for (split, parts) in divisions.filter(|&(split, parts)| splits.max_parts(id, split) >= parts) {
                let scale = percent + 7 * (rows.len() as u32 % 5);
                for index in 0..parts {
                    let part = splits.part(id, Division { split, parts }, index).unwrap();
                    let mut row = profile.layer(layer.name()).unwrap().clone();
                    for time in &mut row.times {
                        (time.forward, time.backward) =
                            (time.forward * scale / 100, time.backward * scale / 100);
                    }
                    let update = row.update.map(|time| time * scale / 100);
                    let row = LayerProfile::of_part(&part.layer, update, row.times);
                    // Different splits have parts of the same shapes.
                    let is_same =
                        |known: &LayerProfile| (&known.name, &known.structure) == (&row.name, &row.structure);
                    if !rows.iter().any(is_same) {
                        rows.push(row);
                    }
                }
            }
        }
        profile.clone().with_parts(rows).unwrap()
    };
    let mut split_layers = Vec::new();
    for percent in [5, 40, 300] {
        let profile = with_parts(percent);
        let job = Job::new(Costs::new(&network, &profile, &link), BATCH, LowerOptions::default());
        let request = PlanRequest::new(GPUS, Mode::Burst { amplification: 2.0 });
        let plan = find_plan(&job, &request.with_splits(Split::ALL.to_vec())).unwrap();
        let placement = plan.placement(&network).unwrap();
        let simulated = iteration(job.costs(), &placement).as_secs_f64() * 1e6;
        let off = plan.iteration_us / simulated - 1.0;
        assert!(off.abs() < 1e-3, "{percent}: planned {} us, simulated {simulated} us", plan.iteration_us);
        split_layers.push(placement.parts(&splits).unwrap().len());
    }
    // No layer is split if its parts take longer than the whole.
    assert!(split_layers[0] > 0 && split_layers[2] == 0, "{split_layers:?}");
}

/// The embedding and the last layer share their parameters, so their splits must fit each other.
#[test]
fn a_tied_transformer_on_more_gpus_than_samples_is_never_slower_with_all_splits() {
    let network = zoo::gpt2_of_blocks(2).unwrap();
    let (batch, gpus) = (4, 16);
    let profile = DeviceModel::named("a100").unwrap().profile(&network, &shard_sizes(batch, gpus)).unwrap();
    let link = LinkModel::dgx_a100_pod();
    let job = Job::new(Costs::new(&network, &profile, &link), batch, LowerOptions::default());
    let iteration_us = |splits: &[Split]| {
        let request = PlanRequest::new(gpus, Mode::Burst { amplification: 100.0 });
        let plan = find_plan(&job, &request.with_splits(splits.to_vec())).unwrap();
        plan.placement(&network).unwrap();
        plan.iteration_us
    };
    assert!(iteration_us(&Split::ALL) <= iteration_us(&[]));
}
