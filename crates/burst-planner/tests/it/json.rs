//! Tests of the format `deeppool/plan-problem/v2`.

use std::path::Path;
use std::process::Command;

use burst_planner::{
    Arrangement, BackwardReads, CostModel, Error, Evaluator, NodeId, NodeMemory, PlanProblem, SearchOptions,
    ShardSize, SynchronizedBytes, frontier,
};

const DOCUMENT: &str = r#"{"schema": "deeppool/plan-problem/v2", "gpus": 3, "bucket_bytes": 7,
 "overlap": false, "clip_norm": true, "metrics_bytes": 8, "nodes": [
  {"name": "a", "gradient_bytes": 100, "synchronized": {"forward_bytes": 3, "backward_bytes": 4}, "options": [
    {"gpus": 1, "forward_us": 10.0, "backward_us": 20.0, "update_us": 1.0},
    {"gpus": 2, "forward_us": 6.0, "backward_us": 12.0, "update_us": 1.5}],
   "output": [{"from_gpus": 1, "to_gpus": 1, "transfer_us": 2.0},
    {"from_gpus": 1, "to_gpus": 2, "transfer_us": 3.0},
    {"from_gpus": 2, "to_gpus": 1, "transfer_us": 4.0, "transfer_disjoint_us": 5.0},
    {"from_gpus": 2, "to_gpus": 2, "transfer_us": 6.0}]},
  {"name": "b", "parameters_of": "a", "options": [{"gpus": 1, "forward_us": 10.0, "backward_us": 20.0},
    {"gpus": 2, "forward_us": 6.0, "backward_us": 12.0}]}],
 "edges": [{"from": "a", "to": 1}],
 "all_reduce": [{"gpus": 3, "startup_us": 9.0, "us_per_byte": 0.5}]}"#;

#[test]
fn every_field_is_read() {
    let (problem, costs) = PlanProblem::from_json(DOCUMENT).expect("a valid document");
    let gradients = problem.gradients;
    assert_eq!(
        (gradients.bucket_bytes, gradients.overlap, gradients.clip_norm, gradients.metrics_bytes),
        (7, false, true, 8)
    );
    assert_eq!(
        (problem.gpus, &problem.edges[..], problem.nodes[1].parameters_of),
        (3, &[(NodeId(0), NodeId(1))][..], Some(NodeId(0)))
    );
    assert_eq!(problem.nodes[0].synchronized, Some(SynchronizedBytes { forward: 3, backward: 4 }));
    assert_eq!((problem.nodes[0].gradient_bytes, &problem.nodes[0].gpu_counts[..]), (100, &[1, 2][..]));
    // Nested, disjoint, overlapping, and both directions.
    let transfers: [(&[usize], &[usize], f64); 6] = [
        (&[0], &[0, 1], 3.0),
        (&[2], &[0, 1], 3.0),
        (&[1, 0], &[1], 4.0),
        (&[0, 1], &[2], 5.0),
        (&[0, 1], &[1, 2], 6.0),
        (&[0], &[1], 2.0),
    ];
    for (from, to, us) in transfers {
        assert!((costs.transfer(NodeId(0), from, to) - us).abs() < 1e-12, "{from:?} to {to:?}");
    }
    // A count without a value uses the next larger one.
    assert!((costs.all_reduce(100, &[0, 2]) - 59.0).abs() < 1e-12);
    let usual = PlanProblem::from_json(&DOCUMENT.replacen(
        r#""bucket_bytes": 7,
 "overlap": false, "clip_norm": true, "metrics_bytes": 8, "#,
        "",
        1,
    ));
    assert_eq!(usual.expect("a valid document").0.gradients, burst_planner::GradientOptions::default());
}

#[test]
fn optional_memory_fields_are_read() {
    let text = DOCUMENT
        .replacen(r#""gpus": 3,"#, r#""gpus": 3, "memory_limit_bytes": 1000,"#, 1)
        .replacen(
            r#""gradient_bytes": 100,"#,
            r#""gradient_bytes": 100, "state_bytes": 200, "output_bytes": 31,"#,
            1,
        )
        .replacen(r#""update_us": 1.5}"#, r#""update_us": 1.5, "memory_bytes": 166}"#, 1);
    let (problem, costs) = PlanProblem::from_json(&text).expect("a valid document");
    assert_eq!((problem.memory_limit_bytes, problem.nodes[0].state_bytes), (Some(1000), 200));
    let held = |node, ranks| costs.memory(node, ranks, ShardSize::Larger);
    // Without the output and the gradient of the parameters.
    assert_eq!(held(NodeId(0), 2), NodeMemory { held_bytes: 50, output_bytes: 16, ..NodeMemory::default() });
    assert_eq!(held(NodeId(1), 2), NodeMemory::default());
}

#[test]
fn optional_checkpoint_fields_are_read() {
    let (problem, _) = PlanProblem::from_json(DOCUMENT).expect("a valid document");
    let reads = BackwardReads { input: true, output: true, saved: true };
    assert_eq!((problem.nodes[0].backward_reads, problem.nodes[0].is_kept), (reads, false));
    let text = DOCUMENT
        .replacen(r#""gpus": 3,"#, r#""gpus": 3, "checkpoints": ["a"],"#, 1)
        .replacen(
            r#""gradient_bytes": 100,"#,
            r#""gradient_bytes": 100, "backward_reads_input": false, "kept": true,"#,
            1,
        )
        .replacen(r#""update_us": 1.5}"#, r#""update_us": 1.5, "memory_bytes": 50, "saved_bytes": 20}"#, 1);
    let (problem, costs) = PlanProblem::from_json(&text).expect("a valid document");
    let reads = BackwardReads { input: false, output: true, saved: true };
    assert_eq!((problem.nodes[0].backward_reads, problem.nodes[0].is_kept), (reads, true));
    assert_eq!(problem.checkpoints, [NodeId(0)]);
    assert_eq!(costs.memory(NodeId(0), 2, ShardSize::Larger).saved_bytes, 20);
    // The last node has no node after it.
    let error = PlanProblem::from_json(&text.replacen(r#"["a"]"#, "[1]", 1)).unwrap_err();
    assert!(matches!(&error, Error::NotACheckpoint { node } if node == "b"), "{error}");
}

#[test]
fn errors_name_the_path() {
    let cases = [
        (r#""forward_us": 10.0, "#, "", "nodes[0].options[0]", "missing field `forward_us`"),
        (r#""update_us": 1.5"#, r#""updates_us": 1.5"#, "nodes[0].options[1].updates_us", "unknown field"),
        (r#""transfer_us": 3.0"#, r#""transfer_us": null"#, "nodes[0].output[1].transfer_us", "null"),
        (r#""to_gpus": 1,"#, r#""to_gpus": 4,"#, "nodes[0].output[0].to_gpus", "expected 1 to 3"),
        (r#""from_gpus": 2, "to_gpus": 1"#, r#""from_gpus": 1, "to_gpus": 2"#, "nodes[0].output[2]", "twice"),
        (
            r#"{"gpus": 2, "forward_us": 6.0"#,
            r#"{"gpus": 1, "forward_us": 6.0"#,
            "nodes[0].options[1].gpus",
            "twice",
        ),
        (r#""parameters_of": "a""#, r#""parameters_of": "c""#, "nodes[1].parameters_of", "no node `c`"),
        (r#""to": 1"#, r#""to": "z""#, "edges[0].to", "no node `z`"),
        (r#""to": 1"#, r#""to": 1.5"#, "edges[0].to", "index or its name"),
        (r#"[{"gpus": 3,"#, r#"[{"gpus": 0,"#, "all_reduce[0].gpus", "expected 1 to 3"),
        (r#""gpus": 3, "bucket"#, r#""gpus": 3, "x": 1, "bucket"#, "x", "unknown field"),
    ];
    for (from, to, expected, part) in cases {
        assert!(DOCUMENT.contains(from), "{from}");
        match PlanProblem::from_json(&DOCUMENT.replacen(from, to, 1)) {
            Err(Error::Json { path, message }) => {
                assert_eq!(path, expected, "{message}");
                assert!(message.contains(part), "{message}");
            }
            other => panic!("{to}: {other:?}"),
        }
    }
}

#[test]
fn invalid_values_are_refused() {
    let refused = |from: &str, to: &str| {
        assert!(DOCUMENT.contains(from), "{from}");
        PlanProblem::from_json(&DOCUMENT.replacen(from, to, 1)).expect_err("a bad document")
    };
    assert!(matches!(
        refused(r#""gpus": 3, "#, r#""gpus": 65537, "#),
        Error::TooManyGpus { gpus: 65_537, .. }
    ));
    assert!(matches!(refused(r#""gpus": 3, "bucket"#, r#""gpus": 0, "bucket"#), Error::Json { .. }));
    assert!(matches!(refused("10.0", "-10.0"), Error::BadTime { field: "forward_us", .. }));
    assert!(matches!(refused("0.5", "-0.5"), Error::BadTime { field: "us_per_byte", .. }));
    assert!(matches!(refused("4.0", "1e308"), Error::TimesOverflow));
    assert!(matches!(
        refused(r#""gradient_bytes": 100"#, r#""gradient_bytes": 0"#),
        Error::NoParametersToShare { .. }
    ));
    let fewer = refused(r#"{"from_gpus": 1, "to_gpus": 1, "transfer_us": 2.0},"#, "");
    assert_eq!(fewer, Error::NoTransfer { node: "a".into(), from: 1, to: 1 });
    assert_eq!(refused(r#"{"gpus": 3, "startup"#, r#"{"gpus": 2, "startup"#), Error::NoAllReduce { gpus: 3 });
    assert!(matches!(
        refused(r#"[{"from": "a", "to": 1}]"#, r#"[{"from": 0, "to": 7}]"#),
        Error::EdgeToNowhere { .. }
    ));
}

#[test]
fn other_schemas_are_refused() {
    let old = r#"{"schema":"deeppool/plan-problem/v1","gpus":1,"edges":[],
        "nodes":[{"name":"a","options":[{"gpus":1,"time_us":100.0}]}]}"#;
    let error = PlanProblem::from_json(old).unwrap_err();
    assert_eq!(error, Error::OldFormat);
    assert!(error.to_string().contains("write version 2"), "{error}");
    for (schema, found) in
        [(r#""deeppool/plan-problem/v3""#, "\"deeppool/plan-problem/v3\""), ("2", "2"), ("null", "none")]
    {
        let text = format!(r#"{{"schema": {schema}}}"#);
        let expected = "deeppool/plan-problem/v2";
        assert_eq!(
            PlanProblem::from_json(&text).unwrap_err(),
            Error::Schema { found: found.into(), expected }
        );
    }
    assert!(matches!(PlanProblem::from_json("["), Err(Error::Json { .. })));
    assert!(matches!(PlanProblem::from_json(&format!("{DOCUMENT}]")), Err(Error::Json { .. })));
}

/// The example that the documentation refers to.
#[test]
fn python_can_write_a_problem() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/plan_problem.py");
    let Ok(output) = Command::new("python3").arg("-B").arg(example).output() else {
        println!("SKIPPED: there is no python3");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let (problem, costs) = PlanProblem::from_json(&text).expect("a valid document");
    let frontier = frontier(&problem, &costs, &SearchOptions::default()).expect("a valid problem");
    let mut evaluator = Evaluator::new(&problem, &costs).expect("a valid problem");
    let everywhere = Arrangement::data_parallel(&problem, 8).expect("a valid problem");
    let data_parallel = evaluator.evaluate(&everywhere).expect("a valid arrangement");
    let amplification = data_parallel.gpu_time_us / frontier.single_gpu_us();
    let fastest = frontier.fastest_within(amplification).expect("a reachable limit");
    assert!(fastest.time.iteration_us <= data_parallel.iteration_us);
}
