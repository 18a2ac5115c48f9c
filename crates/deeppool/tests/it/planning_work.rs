//! The work of planning, which is the same on every machine: a change that plans slower is seen
//! without a clock.

use collectives::LinkModel;
use deeppool::burst_planner::ProofBudget;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::job::Job;
use deeppool::plan::{ExecutionPlan, Mode, PlanRequest};
use deeppool::planning::find_plan;
use deeppool::program::LowerOptions;
use layer_graph::{LayerGraph, zoo};
use layer_profile::DeviceModel;

fn plan(
    network: &LayerGraph,
    (gpus, batch): (usize, usize),
    link: &str,
    proof: ProofBudget,
) -> ExecutionPlan {
    let link = LinkModel::named(link).unwrap();
    let profile = DeviceModel::named("a100").unwrap();
    let profile = profile.profile(network, &shard_sizes(batch, gpus)).unwrap();
    let job = Job::new(Costs::new(network, &profile, &link), batch, LowerOptions::default());
    let request = PlanRequest::new(gpus, Mode::Burst { amplification: 2.0 }).with_proof(proof);
    find_plan(&job, &request).unwrap().into_plan()
}

#[test]
fn planning_takes_no_more_work_than_before() {
    let model = |name: &str| zoo::model(name).unwrap();
    let mut grown = Vec::new();
    for (network, size, link, evaluations, operations) in [
        (model("vgg16"), (8, 32), "dgx-a100", 5_332, 339_599),
        (model("vgg16"), (64, 64), "dgx-a100-pod", 9_206, 1_690_868),
        (model("inception-v3"), (8, 32), "dgx-a100", 10_086, 2_285_747),
        (model("resnet-50"), (64, 256), "dgx-a100-pod", 9_105, 1_871_630),
        (model("digits-cnn"), (8, 32), "dgx-a100", 68_380, 177_409),
        (zoo::gpt2_of_blocks(96).unwrap(), (64, 64), "dgx-a100-pod", 9_005, 1_845_984),
    ] {
        let work = plan(&network, size, link, ProofBudget::Default).planning.unwrap();
        if 2 * work.evaluations > 3 * evaluations || 2 * work.proof_operations > 3 * operations {
            grown.push(format!("{} {size:?}: {evaluations}, {operations}; now {work:?}", network.name()));
        }
    }
    assert!(grown.is_empty(), "planning takes half as much work again: {grown:#?}");
}

#[test]
fn the_proof_changes_no_plan() {
    let network = zoo::model("resnet-18").unwrap();
    let usual = plan(&network, (4, 32), "dgx-a100", ProofBudget::Default);
    assert_eq!(usual, plan(&network, (4, 32), "dgx-a100", ProofBudget::Default));
    let mut off = plan(&network, (4, 32), "dgx-a100", ProofBudget::Off);
    assert!(usual.lower_bound_us.is_some() && off.lower_bound_us.is_none());
    (off.lower_bound_us, off.gap, off.planning) = (usual.lower_bound_us, usual.gap, usual.planning);
    assert_eq!(usual, off);
}
