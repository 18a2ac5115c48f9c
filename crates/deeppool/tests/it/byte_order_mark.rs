//! JSON documents that begin with a byte order mark, as some editors write them.

use std::fmt::Debug;

use burst_planner::PlanProblem;
use collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::job::Job;
use deeppool::plan::{ExecutionPlan, Mode, PlanRequest};
use deeppool::planning::find_plan;
use deeppool::program::LowerOptions;
use gpu_mux::Workload;
use layer_graph::{LayerGraph, zoo};
use layer_profile::{DeviceModel, ProfileTable};
use time_to_accuracy::EpochCurve;

/// Checks that the same document with a byte order mark, but not with two, is the same value.
fn check<T, E: Debug>(json: &str, parse: impl Fn(&str) -> Result<T, E>, print: impl Fn(&T) -> String) {
    let plain = print(&parse(json).unwrap());
    assert_eq!(print(&parse(&format!("\u{feff}{json}")).unwrap()), plain);
    assert!(parse(&format!("\u{feff}\u{feff}{json}")).is_err());
}

#[test]
fn byte_order_marks_of_documents_are_ignored() {
    let network = zoo::model("digits-cnn").unwrap();
    let device = DeviceModel::named("a100").unwrap();
    let profile = device.profile(&network, &shard_sizes(8, 2)).unwrap();
    let link = LinkModel::dgx_a100();
    let job = Job::new(Costs::new(&network, &profile, &link), 8, LowerOptions::default());
    let plan = find_plan(&job, &PlanRequest::new(2, Mode::DataParallel)).unwrap().into_plan();

    check(&network.to_json(), LayerGraph::from_json, LayerGraph::to_json);
    check(&profile.to_json(), ProfileTable::from_json, ProfileTable::to_json);
    check(&device.to_json().unwrap(), DeviceModel::from_json, |device| device.to_json().unwrap());
    check(&link.to_json(), LinkModel::from_json, LinkModel::to_json);
    check(&plan.to_json().unwrap(), ExecutionPlan::from_json, |plan| plan.to_json().unwrap());
    let curve = include_str!("../../../time-to-accuracy/data/resnet-50.json");
    check(curve, EpochCurve::from_json, EpochCurve::to_json);
    let problem = r#"{"schema":"deeppool/plan-problem/v2","gpus":1,"edges":[],
        "nodes":[{"name":"fc","options":[{"gpus":1,"forward_us":20.0,"backward_us":30.0}]}]}"#;
    check(problem, PlanProblem::from_json, |(problem, _)| format!("{problem:?}"));
    let workload = include_str!("../../../gpu-mux/workloads/vgg16-8-gpus-rank-1.json");
    check(workload, Workload::from_json, Workload::to_json);
}
