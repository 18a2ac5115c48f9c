//! JSON documents: valid and unusable records of each format.

use std::fmt::Display;

use burst_planner::PlanProblem;
use collectives::LinkModel;
use deeppool::machine::Calibration;
use deeppool::plan::ExecutionPlan;
use deeppool::simulate::ClusterJobsFile;
use gpu_mux::{ParametersFile, Workload};
use layer_graph::LayerGraph;
use layer_profile::{DeviceModel, ProfileTable};
use time_to_accuracy::EpochCurve;

use super::Reader;

/// Readers of JSON documents.
pub(super) const DOCUMENTS: &[Reader] = &[
    Reader {
        name: "burst-planner/src/json.rs:from_json",
        valid: r#"{"name": "n#", "options": [{"gpus": 1, "forward_us": 2, "backward_us": 3}]}"#,
        unusable: &[
            (
                r#"{"name": "n#", "options": [{"gpus": 1, "forward_us": null, "backward_us": 3}]}"#,
                "nodes[#].options[0].forward_us",
            ),
            (
                r#"{"name": "n#", "options": [{"gpus": 1, "forward_us": 1, "forward_us": 2,
                    "backward_us": 3}]}"#,
                "nodes[#].options[0]: duplicate field `forward_us`",
            ),
            (r#"{"name": "n#", "options": [{"gpus": 1, "forward_us": -2, "backward_us": 3}]}"#, "`n#`"),
            (r#"{"name": "n#", "options": [{"gpus": 9, "forward_us": 2, "backward_us": 3}]}"#, "`n#`"),
            (r#"{"name": "n#", "options": []}"#, "`n#`"),
            (r#"{"name": "n#", "options": [], "extra": 1}"#, "nodes[#].extra"),
            (
                r#"{"name": "n#", "output": [{"from_gpus": 1, "to_gpus": 1, "transfer_us": 1,
                    "transfer_disjoint_us": null}],
                    "options": [{"gpus": 1, "forward_us": 2, "backward_us": 3}]}"#,
                "nodes[#].output[0].transfer_disjoint_us",
            ),
        ],
        max_records: 100,
        read: |records| {
            let text = document("deeppool/plan-problem/v2", r#""gpus": 2, "edges": []"#, "nodes", records);
            of(PlanProblem::from_json(&text), |(problem, _)| problem.nodes.len())
        },
    },
    Reader {
        name: "collectives/src/link_model/json.rs:from_json",
        valid: r#"{"ranks": 8, "bandwidth_bytes_per_s": 3e11, "startup_us": 10, "latency_us": 1.5}"#,
        unusable: &[
            (
                r#"{"ranks": 8, "bandwidth_bytes_per_s": 25, "startup_us": 10, "latency_us": 1.5}"#,
                "levels[#].bandwidth_bytes_per_s",
            ),
            (
                r#"{"ranks": 8, "bandwidth_bytes_per_s": 3e11, "startup_us": 2e25, "latency_us": 1.5}"#,
                "levels[#].startup_us",
            ),
            (
                r#"{"ranks": 8, "bandwidth_bytes_per_s": 3e11, "startup_us": 10, "latency_us": null}"#,
                "levels[#].latency_us",
            ),
            (
                r#"{"ranks": 0, "bandwidth_bytes_per_s": 3e11, "startup_us": 10, "latency_us": 1}"#,
                "levels[#].ranks",
            ),
            (
                r#"{"ranks": 8, "bandwidth_bytes_per_s": 3e11, "startup_us": 1, "latency_us": 1, "x": 1}"#,
                "levels[#].x",
            ),
        ],
        max_records: 100,
        read: |records| {
            let text = document("deeppool/link/v1", r#""name": "net""#, "levels", records);
            of(LinkModel::from_json(&text), |link| link.ranks_by_level().len())
        },
    },
    Reader {
        name: "gpu-mux/src/workload/format.rs:from_json",
        valid: r#"{"name": "s#", "lane": "compute", "kernels": [{"time_us": 80, "share": 1,
            "memory": 0.3}]}"#,
        unusable: &[
            (
                r#"{"name": "s#", "lane": "compute", "kernels": [{"time_us": -1, "share": 1,
                    "memory": 0}]}"#,
                "foreground.steps[#]",
            ),
            (
                r#"{"name": "s#", "lane": "compute", "kernels": [{"time_us": 1, "share": 2,
                    "memory": 0}]}"#,
                "foreground.steps[#]",
            ),
            (
                r#"{"name": "s#", "lane": "compute", "kernels": [{"time_us": 2e25, "share": 1,
                    "memory": 0}]}"#,
                "foreground.steps[#]",
            ),
            (r#"{"name": "s#", "lane": "other"}"#, "foreground.steps[#].lane"),
            (r#"{"name": "s#", "lane": "communication", "transfer_us": 1}"#, "foreground.steps[#]"),
            (
                r#"{"name": "s#", "lane": "communication", "transfer_us": null, "partners_us": 1}"#,
                "foreground.steps[#].transfer_us",
            ),
            (r#"{"name": "s#", "lane": "compute", "kernels": [], "note": ""}"#, "foreground.steps[#].note"),
        ],
        max_records: 100,
        read: |records| {
            let background = r#""background": {"samples": 1, "steps": [{"name": "b", "lane": "compute",
                "kernels": [{"time_us": 1, "share": 1, "memory": 0}]}]}"#;
            let text = format!(
                r#"{{"schema": "deeppool/workload/v1", "name": "w", {background},
                "foreground": {{"samples": 1, "steps": [{}]}}}}"#,
                records.join(", ")
            );
            of(Workload::from_json(&text), |workload| workload.foreground.steps.len())
        },
    },
    Reader {
        name: "gpu-mux/src/virtual_device/parameters_file.rs:from_json",
        valid: r#""communication_memory": 0.4"#,
        unusable: &[
            (r#""communication_memory": 1.5"#, "communication_memory"),
            (r#""communication_memory": null"#, "parameters.communication_memory"),
            (r#""communication_memory": 0.4, "communication_memory": 0.5"#, "duplicate field"),
            (r#""communication_memory": 0.4, "bandwidth": 1"#, "parameters.bandwidth"),
        ],
        max_records: 1,
        read: |records| {
            let parameters = r#""multiprocessors": 108, "hardware_queues": 8, "launch_time_us": 3,
                "graph_launch_time_us": 2.5, "graph_node_time_us": 0.001, "launch_latency_us": 1.85,
                "kernel_gap_us": 0.9, "graph_node_gap_us": 0.5, "completion_latency_us": 1.85,
                "communication_share": 0.2"#;
            let text = format!(
                r#"{{"schema": "deeppool/device-parameters/v1", "device": "gpu",
                "parameters": {{{parameters}, {}}}}}"#,
                records.join(", ")
            );
            of(ParametersFile::from_json(&text), |_| records.len())
        },
    },
    Reader {
        name: "layer-graph/src/json.rs:from_json",
        valid: r#"{"name": "l#", "op": "relu", "inputs": ["input"]}"#,
        unusable: &[
            (r#"{"name": "l#", "op": "crelu", "inputs": ["input"]}"#, "layers[#].op"),
            (r#"{"name": "l#", "op": "relu", "inputs": ["nowhere"]}"#, "`l#`"),
            (r#"{"name": "l#", "op": "relu", "inputs": ["input", "input"]}"#, "`l#`"),
            (
                r#"{"name": "l#", "op": {"dropout": {"probability": 1e999}}, "inputs": ["input"]}"#,
                "layers[#]",
            ),
            (r#"{"name": "l#", "op": {"dropout": {"probability": 2}}, "inputs": ["input"]}"#, "`l#`"),
            (
                r#"{"name": "l#", "op": "relu", "inputs": ["input"], "trainable": false}"#,
                "layers[#].trainable",
            ),
            (r#"{"name": "input", "op": "relu", "inputs": ["input"]}"#, "`input`"),
        ],
        max_records: 100,
        read: |records| {
            let text = document("deeppool/graph/v1", r#""name": "net", "input": [4]"#, "layers", records);
            of(LayerGraph::from_json(&text), |network| network.layers().count() - 1)
        },
    },
    Reader {
        name: "layer-profile/src/json.rs:from_json",
        valid: r#"{"name": "l#", "kind": "relu", "times": [{"batch": 1, "forward_us": 1,
            "backward_us": 1}]}"#,
        unusable: &[
            (
                r#"{"name": "l#", "kind": "relu", "times": [{"batch": 1, "forward_us": null,
                    "backward_us": 1}]}"#,
                "layers[#].times[0].forward_us",
            ),
            (
                r#"{"name": "l#", "kind": "relu", "times": [{"batch": 1, "forward_us": 2e25,
                    "backward_us": 1}]}"#,
                "layers[#].times[0].forward_us",
            ),
            (
                r#"{"name": "l#", "kind": "relu", "times": [{"batch": 0, "forward_us": 1,
                    "backward_us": 1}]}"#,
                "layers[#].times[0].batch",
            ),
            (r#"{"name": "l#", "kind": "relu", "times": []}"#, "layers[#].times"),
            (r#"{"name": "l#", "kind": "relu", "times": [], "update_us": null}"#, "layers[#].update_us"),
            (r#"{"name": "l#", "kind": "relu", "times": [], "total_us": 1}"#, "layers[#].total_us"),
        ],
        max_records: 100,
        read: |records| {
            let head = r#""model": "net", "device": "box", "origin": "measured", "network": []"#;
            let text = document("deeppool/profile/v1", head, "layers", records);
            of(ProfileTable::from_json(&text), |table| table.layers().len())
        },
    },
    Reader {
        name: "layer-profile/src/device/json.rs:from_json",
        valid: r#""launch_us": 3"#,
        unusable: &[
            (r#""launch_us": -3"#, "costs.launch_us"),
            (r#""launch_us": null"#, "costs.launch_us"),
            (r#""launch_us": 3, "launch_us": 4"#, "costs"),
            (r#""launch_us": 3, "bandwidth": 1"#, "unknown field `bandwidth`"),
            (r#""launches_us": 3"#, "missing field `launch_us`"),
        ],
        max_records: 1,
        read: |records| {
            let model = DeviceModel::named("a100").and_then(|model| model.to_json());
            let text = model.map_err(|error| error.to_string())?;
            let (field, rest) = text.split_once("\"launch_us\":").ok_or("no field `launch_us`")?;
            let rest = rest.trim_start_matches(|c: char| !matches!(c, ',' | '}'));
            of(DeviceModel::from_json(&format!("{field}{}{rest}", records.join(", "))), |_| records.len())
        },
    },
    Reader {
        name: "deeppool/src/plan/file.rs:from_json",
        valid: r#"{"name": "l#", "gpus": 1, "ranks": [0]}"#,
        unusable: &[
            (r#"{"name": "l#", "gpus": 2, "ranks": [0]}"#, "layers[#].gpus"),
            (r#"{"name": "l#", "gpus": 1, "ranks": [1]}"#, "layers[#].ranks"),
            (r#"{"name": "l#", "gpus": 0, "ranks": []}"#, "layers[#].ranks"),
            (r#"{"name": "l#", "gpus": 1, "ranks": [null]}"#, "layers[#].ranks[0]"),
            (r#"{"name": "l#", "gpus": 1, "ranks": [0], "stage": 1}"#, "layers[#].stage"),
        ],
        max_records: 100,
        read: |records| {
            let head = r#""model": "net", "batch": 1, "gpus": 1, "mode": "bp", "link": "none",
                "profile": {"device": "box", "origin": "measured"},
                "lowering": {"overlap_all_reduce": true, "bucket_bytes": 1, "micro_batches": 1,
                    "sync_batch_norm": false},
                "iteration_us": 9, "gpu_time_us": 9, "single_gpu_us": 9, "amplification": 1,
                "computing_us": 9, "communicating_us": 0, "idle_us": 0,
                "dp": {"iteration_us": 9, "amplification": 1}"#;
            let text = document("deeppool/plan/v3", head, "layers", records);
            of(ExecutionPlan::from_json(&text), |plan| plan.layers.len())
        },
    },
    Reader {
        name: "deeppool/src/machine/calibration.rs:from_json",
        valid: r#"{"model": "m", "batch": 1, "ranks": 2, "uncalibrated_us": 1, "predicted_us": 1,
            "measured_us": 1, "ratios": {"layers": 1, "transfers": null}}"#,
        unusable: &[
            (
                r#"{"model": "m", "batch": 1, "ranks": 2, "uncalibrated_us": 1, "predicted_us": 1,
                    "measured_us": 0, "ratios": {"layers": 1, "transfers": 1}}"#,
                "runs[#].measured_us",
            ),
            (
                r#"{"model": "m", "batch": 1, "ranks": 2, "uncalibrated_us": 1, "predicted_us": 1,
                    "measured_us": 1, "ratios": {"layers": 1, "transfers": -1}}"#,
                "runs[#].ratios.transfers",
            ),
            (
                r#"{"model": "m", "batch": 1, "ranks": 2, "uncalibrated_us": 1, "predicted_us": null,
                    "measured_us": 1, "ratios": {"layers": 1, "transfers": 1}}"#,
                "runs[#].predicted_us",
            ),
            (
                r#"{"model": "m", "batch": 1, "ranks": 2, "uncalibrated_us": 1, "predicted_us": 1,
                    "measured_us": 1, "ratios": {"layers": 1, "transfers": 1}, "seconds": 1}"#,
                "runs[#].seconds",
            ),
        ],
        max_records: 100,
        read: |records| {
            let text =
                format!(r#"{{"schema": "deeppool/calibration/v1", "runs": [{}]}}"#, records.join(", "));
            of(Calibration::from_json(&text), |calibration| calibration.runs().len())
        },
    },
    Reader {
        name: "deeppool/src/simulate/cluster/file.rs:from_json",
        valid: r#"{"name": "job @", "model": "vgg16", "batch": 8}"#,
        unusable: &[
            (r#"{"name": "", "model": "vgg16", "batch": 8}"#, "jobs[#].name"),
            (r#"{"name": "job @", "batch": 8}"#, "jobs[#]`: missing field `model`"),
            (r#"{"name": "job @", "model": "vgg16", "batch": -8}"#, "jobs[#].batch"),
            (r#"{"name": "job @", "model": "vgg16", "batch": 8, "ranks": 2}"#, "jobs[#].ranks"),
            (r#"{"name": "job @", "model": "vgg16", "mode": "fast"}"#, "jobs[#].mode"),
            (r#"{"name": "job @", "model": "vgg16", "batch": null}"#, "jobs[#].batch"),
            (r#"{"name": "job @", "model": "vgg16", "count": 0}"#, "jobs[#].count"),
            (r#"{"name": "job @", "model": "vgg16", "start_us": null}"#, "jobs[#].start_us"),
            (r#"{"name": "job @", "model": "vgg16", "start_step_us": -1}"#, "jobs[#].start_step_us"),
            (r#"{"name": "job @", "model": "vgg16", "on_gpus": [0], "gpus": 2}"#, "jobs[#].on_gpus"),
        ],
        max_records: 100,
        read: |records| {
            let head = r#""link": "dgx-a100-pod", "gpus": 1024"#;
            let text = document("deeppool/cluster-jobs/v1", head, "jobs", records);
            of(ClusterJobsFile::from_json(&text), |file| file.jobs.len())
        },
    },
    Reader {
        name: "time-to-accuracy/src/curve/mod.rs:from_json",
        valid: r#"{"batch": @, "epochs": 4.1}"#,
        unusable: &[
            (r#"{"batch": @, "epochs": null}"#, "points[#].epochs"),
            (r#"{"batch": @, "epochs": 0}"#, "points[#].epochs"),
            (r#"{"batch": 0, "epochs": 4}"#, "points[#].batch"),
            (r#"{"batch": @, "epochs": 4, "epochs_min": null}"#, "points[#].epochs_min"),
            (r#"{"batch": @, "epochs": 4, "accuracy": 0.9}"#, "points[#].accuracy"),
            (r#"{"batch": @, "epochs": 4, "epochs": 5}"#, "points[#]"),
        ],
        max_records: 100,
        read: |records| {
            let head = r#""network": "net", "dataset": "data", "target": "0.9", "origin": "measured",
                "source": "test", "samples_per_epoch": 100"#;
            let text = document("deeppool/epoch-curve/v1", head, "points", records);
            of(EpochCurve::from_json(&text), |curve| curve.points().len())
        },
    },
];

/// Returns a JSON document with a list of records.
fn document(schema: &str, head: &str, list: &str, records: &[String]) -> String {
    format!(r#"{{"schema": "{schema}", {head}, "{list}": [{}]}}"#, records.join(", "))
}

/// Returns the number of records in what a reader returned, or its error's message.
pub(super) fn of<T, E: Display>(read: Result<T, E>, count: impl FnOnce(T) -> usize) -> Result<usize, String> {
    read.map(count).map_err(|error| error.to_string())
}
