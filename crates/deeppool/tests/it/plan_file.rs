//! Plan files: round trips, and errors of invalid values with their paths.

use collectives::LinkModel;
use deeppool::Error;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::job::Job;
use deeppool::plan::{ExecutionPlan, Mode, PlanRequest};
use deeppool::planning::find_plan;
use deeppool::program::{LowerOptions, Op};
use layer_graph::{LayerGraph, zoo};
use layer_profile::DeviceModel;
use serde_json::{Value, json};

const BATCH: usize = 16;
const GPUS: usize = 4;

fn with_job<T>(model: &str, with: impl FnOnce(&LayerGraph, &Job<'_>) -> T) -> T {
    let network = zoo::model(model).unwrap();
    let profile = DeviceModel::named("a100").unwrap().profile(&network, &shard_sizes(BATCH, GPUS)).unwrap();
    let link = LinkModel::dgx_a100();
    let job = Job::new(Costs::new(&network, &profile, &link), BATCH, LowerOptions::default());
    with(&network, &job)
}

fn burst(job: &Job<'_>) -> ExecutionPlan {
    find_plan(job, &PlanRequest::new(GPUS, Mode::Burst { amplification: 1.3 })).unwrap().into_plan()
}

fn edited(plan: &ExecutionPlan, edit: impl FnOnce(&mut Value)) -> Result<ExecutionPlan, Error> {
    let mut document: Value = serde_json::from_str(&plan.to_json().unwrap()).unwrap();
    edit(&mut document);
    ExecutionPlan::from_json(&document.to_string())
}

#[test]
fn plan_files_round_trip() {
    with_job("vgg11", |_, job| {
        for mode in [
            Mode::DataParallel,
            Mode::Burst { amplification: 1.5 },
            Mode::Burst { amplification: f64::INFINITY },
            Mode::Deadline { iteration_us: 1e9 },
            Mode::Knee,
        ] {
            let plan = find_plan(job, &PlanRequest::new(GPUS, mode)).unwrap();
            let read = ExecutionPlan::from_json(&plan.to_json().unwrap()).unwrap();
            assert_eq!(read.layers, plan.layers);
            // Reading a number may change its last digit once.
            let text = read.to_json().unwrap();
            assert_eq!(ExecutionPlan::from_json(&text).unwrap().to_json().unwrap(), text);
        }
    });
}

#[test]
fn equal_requests_give_equal_plan_files() {
    let once = || with_job("resnet-18", |_, job| burst(job).to_json().unwrap());
    assert_eq!(once(), once());
}

#[test]
fn errors_name_the_path_of_invalid_values() {
    let plan = with_job("vgg11", |_, job| burst(job));
    assert!(edited(&plan, |_| {}).is_ok());
    let cases: [(&str, Value, &str); 31] = [
        ("/schema", json!("deeppool/profile/v1"), "schema"),
        ("/batch", json!(0), "batch"),
        ("/batch", json!(-4), "batch"),
        ("/batch", json!(1_048_577), "batch"),
        ("/batch", json!(u64::MAX), "batch"),
        ("/gpus", json!(0), "gpus"),
        ("/gpus", json!(1_000_000_000), "gpus"),
        ("/gpus", json!(5000), "idle_us"),
        ("/mode", json!("fast"), "mode"),
        ("/mode", json!("dp"), "amplification_limit"),
        ("/iteration_us", json!(-1.0), "iteration_us"),
        ("/iteration_us", json!("fast"), "iteration_us"),
        ("/iteration_us", json!(1.0), "idle_us"),
        ("/gpu_time_us", json!(0.0), "gpu_time_us"),
        ("/single_gpu_us", json!(1.0), "amplification"),
        ("/amplification", json!(1.0), "amplification"),
        ("/amplification_limit", json!(1.0), "amplification"),
        ("/computing_us", json!(-1.0), "computing_us"),
        ("/gap", json!(0.0), "gap"),
        ("/gap", Value::Null, "gap"),
        ("/dp/iteration_us", json!(-3), "dp.iteration_us"),
        ("/lowering/micro_batches", json!(0), "lowering.micro_batches"),
        ("/lowering/micro_batches", json!(17), "lowering.micro_batches"),
        ("/memory_peak_bytes", json!(1), "memory_peak_bytes"),
        ("/memory", Value::Null, "memory_peak_bytes"),
        ("/memory/parameters_bytes", json!(u64::MAX), "memory_peak_bytes"),
        ("/layers", json!([]), "layers"),
        ("/layers/1/ranks", json!([]), "layers[1].ranks"),
        ("/layers/1/ranks", json!([0, 0]), "layers[1].ranks"),
        ("/layers/1/ranks", json!([4]), "layers[1].ranks"),
        ("/layers/1/gpus", json!(9), "layers[1].gpus"),
    ];
    for (pointer, value, path) in cases {
        let edit = |document: &mut Value| *document.pointer_mut(pointer).unwrap() = value.clone();
        let Err(error) = edited(&plan, edit) else { panic!("{pointer} = {value}") };
        let message = error.to_string();
        assert!(message.starts_with(&format!("at `{path}`")), "{pointer} = {value}: {message}");
    }
    let twice =
        edited(&plan, |document| document["layers"][1]["name"] = document["layers"][0]["name"].clone());
    assert!(twice.unwrap_err().to_string().contains("layers[1].name"));
    let unknown = edited(&plan, |document| document["search_us"] = json!(3.0));
    assert!(unknown.unwrap_err().to_string().contains("search_us"));
    let order = edited(&plan, |document| document["order"] = json!(["conv1"]));
    assert!(order.unwrap_err().to_string().contains("order"));
    for text in ["", "{}", "[1]", "{\"schema\": 3}", "{\"schema\": \"deeppool/plan/v3\"}"] {
        assert!(ExecutionPlan::from_json(text).is_err(), "{text}");
    }
    let text = plan.to_json().unwrap();
    assert!(ExecutionPlan::from_json(&(text.clone() + "}")).is_err());
    assert!(ExecutionPlan::from_json(&text[..text.len() / 2]).is_err());
}

#[test]
fn inconsistent_workers_are_rejected() {
    let plan = with_job("vgg11", |_, job| {
        let request = PlanRequest::new(GPUS, Mode::Burst { amplification: f64::INFINITY });
        // Every layer on all GPUs.
        find_plan(job, &request.with_gpu_counts("2".parse().unwrap()).with_worker_gpus(Some(2)))
            .unwrap()
            .into_plan()
    });
    assert_eq!(edited(&plan, |_| {}).unwrap().worker.unwrap().replicas, 2);
    let cases = [
        ("/worker/gpus", json!(3), "worker.gpus"),
        ("/worker/replicas", json!(0), "worker.gpus"),
        ("/worker/replicas", json!(u64::MAX), "worker.gpus"),
        ("/worker/iteration_us", json!(0.0), "worker.iteration_us"),
        ("/worker/single_gpu_us", json!(-1.0), "worker.single_gpu_us"),
        ("/worker/speed", json!(2.0), "worker.speed"),
        ("/batch", json!(17), "worker.replicas"),
        ("/layers/1/ranks", json!([0, 1, 3, 2]), "layers[1].ranks"),
        ("/layers/1/ranks", json!([0, 2, 1, 3]), "layers[1].ranks"),
    ];
    for (pointer, value, path) in cases {
        let edit = |document: &mut Value| {
            if let Some(found) = document.pointer_mut(pointer) {
                *found = value.clone();
            } else {
                document["worker"]["speed"] = value.clone();
            }
        };
        let Err(error) = edited(&plan, edit) else { panic!("{pointer} = {value}") };
        let message = error.to_string();
        assert!(message.starts_with(&format!("at `{path}`")), "{pointer} = {value}: {message}");
    }
}

#[test]
fn plan_files_of_version_1_are_rejected_with_advice() {
    let error = ExecutionPlan::from_json(r#"{"schema": "deeppool/plan/v1", "search_us": 3.0}"#).unwrap_err();
    assert!(error.to_string().contains("make the plan again with `deeppool plan`"), "{error}");
}

#[test]
fn plans_of_other_jobs_are_rejected() {
    let plan = with_job("vgg11", |_, job| burst(job));
    with_job("vgg13", |network, job| {
        let of_plan = Job::of_plan(job.costs().clone(), &plan, job.lowering().optimizer);
        assert!(of_plan.unwrap_err().to_string().contains("another network"));
        assert!(plan.placement(network).is_err());
    });
    with_job("vgg11", |_, job| {
        let twice = Job::new(job.costs().clone(), 2 * BATCH, LowerOptions::default());
        assert!(twice.lower(plan.clone()).unwrap_err().to_string().contains("16 samples a batch, not 32"));
        let serial = LowerOptions::default().with_overlap_all_reduce(false);
        assert!(Job::new(job.costs().clone(), BATCH, serial).lower(plan.clone()).is_err());
    });
}

#[test]
fn programs_keep_the_order_of_the_plan() {
    with_job("inception-v3", |network, job| {
        let plan = find_plan(job, &PlanRequest::new(GPUS, Mode::DataParallel)).unwrap().into_plan();
        assert_eq!(plan.order, None);
        // Swaps the first two neighbours that are independent of each other.
        let mut names: Vec<String> = plan.layers.iter().map(|layer| layer.name.clone()).collect();
        let ids: Vec<_> = network.computing_layers().map(|(id, _)| id).collect();
        let at = (1..ids.len()).find(|&at| !network.producers(ids[at]).contains(&ids[at - 1])).unwrap();
        names.swap(at - 1, at);
        let swapped = edited(&plan, |document| document["order"] = json!(names)).unwrap();
        let lowered = job.lower(swapped).unwrap();
        let program = lowered.training().first_program().unwrap();
        for rank in &program.ranks {
            let forward = rank.steps.iter().filter_map(|step| match step.op {
                Op::Forward { layer, .. } => Some(network.layer(layer).name().to_owned()),
                _ => None,
            });
            let mut forward: Vec<String> = forward.collect();
            // Batch normalisation has two passes.
            forward.dedup();
            assert!(forward == names, "rank {} has another order", rank.rank);
        }
        names.swap(0, 5);
        let wrong = edited(&plan, |document| document["order"] = json!(names)).unwrap();
        assert!(job.lower(wrong).unwrap_err().to_string().contains("order of the layers"));
    });
}
