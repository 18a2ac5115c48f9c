//! Times of plans with split layers, by the device model.

use std::time::Duration;

use collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::job::Job;
use deeppool::plan::{Mode, PlanRequest};
use deeppool::planning::find_plan;
use deeppool::program::{LowerOptions, Placement, lower_for_simulation};
use deeppool::simulate::{SimulateOptions, simulate};
use layer_graph::{Division, LayerGraph, LayerId, Split, zoo};
use layer_profile::DeviceModel;

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
