//! JSON documents with other text around them: a byte order mark, as some editors write it, or the
//! rest of another document.

use std::fmt::{Debug, Display};

use burst_planner::PlanProblem;
use collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::job::Job;
use deeppool::plan::{ExecutionPlan, Mode, PlanRequest};
use deeppool::planning::find_plan;
use deeppool::program::LowerOptions;
use gpu_mux::{DeviceParameters, ParametersFile, Workload};
use layer_graph::{LayerGraph, zoo};
use layer_profile::{DeviceModel, ProfileTable};
use time_to_accuracy::EpochCurve;

/// Checks that the same document with a byte order mark, but not with two, is the same value, and
/// that text after it is refused.
fn check<T, E: Debug + Display>(
    json: &str,
    parse: impl Fn(&str) -> Result<T, E>,
    print: impl Fn(&T) -> String,
) {
    let plain = print(&parse(json).unwrap());
    assert_eq!(print(&parse(&format!("\u{feff}{json}")).unwrap()), plain);
    assert!(parse(&format!("\u{feff}\u{feff}{json}")).is_err());
    assert_eq!(print(&parse(&format!("{json}\n \t\n")).unwrap()), plain);
    for after in ["x", "{}", "\n]", ",", "\u{feff}", json] {
        let error = parse(&format!("{json}{after}")).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("trailing characters"), "{after}: {error}");
    }
}

#[test]
fn documents_may_begin_with_a_byte_order_mark_and_end_the_text() {
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
    let parameters = ParametersFile::new("a100".into(), DeviceParameters::a100());
    check(&parameters.to_json(), ParametersFile::from_json, ParametersFile::to_json);
}
