//! The file format: what it means, and what is refused.

use burst_planner::{Edge, Error, Node, NodeId, NodeOption, PlanProblem, SearchOptions, fastest};

const SMALLEST: &str = r#"{"schema":"deeppool/plan-problem/v1","gpus":8,
 "nodes":[{"name":"conv1","options":[{"gpus":1,"time_us":100.0},{"gpus":2,"time_us":60.0,"memory_bytes":1000}]},
          {"name":"conv2","options":[{"gpus":1,"time_us":10.0},{"gpus":2,"time_us":60.0}]}],
 "edges":[{"from":0,"to":1,"transfer_us":[[0.0,5.0],[5.0,0.0]]}]}"#;

const COMPLETE: &str = r#"{"schema":"deeppool/plan-problem/v1","gpus":2,"memory_limit_bytes":5000,"single_gpu_us":120.5,
 "nodes":[{"name":"a","options":[{"gpus":2,"time_us":60,"memory_bytes":1000,"all_reduce_us":3.5,"backward_us":40,"split":"sample"}]},
          {"name":"b","options":[{"gpus":1,"time_us":10,"memory_bytes":0}]}],
 "edges":[{"from":0,"to":1,"transfer_us":[[1.5]],"transfer_disjoint_us":[[2.5]]}]}"#;

#[test]
fn the_required_fields_are_enough() {
    let problem = PlanProblem::from_json(SMALLEST).expect("a valid document");
    let mut expected = PlanProblem::new(8);
    let conv1 = [NodeOption::new(1, 100.0), NodeOption::new(2, 60.0).with_memory_bytes(1000)];
    let conv1 = expected.add_node("conv1", conv1);
    let conv2 = expected.add_node("conv2", [NodeOption::new(1, 10.0), NodeOption::new(2, 60.0)]);
    expected.add_edge(conv1, conv2, vec![vec![0.0, 5.0], vec![5.0, 0.0]]);
    assert_eq!(problem, expected);
    let plan = fastest(&problem, 2.0, &SearchOptions::default()).expect("a plan");
    assert_eq!(plan.choice, [1, 0]);
}

#[test]
fn every_optional_field_is_read() {
    let option = NodeOption::new(2, 60.0).with_memory_bytes(1000).with_all_reduce_us(3.5);
    let option = option.with_backward_us(40.0).with_split("sample");
    let node = |name: &str, option| Node { name: name.into(), options: vec![option] };
    let mut expected = PlanProblem::new(2);
    expected.memory_limit_bytes = Some(5000);
    expected.single_gpu_us = Some(120.5);
    expected.nodes = vec![node("a", option), node("b", NodeOption::new(1, 10.0).with_memory_bytes(0))];
    expected.edges = vec![Edge {
        from: NodeId(0),
        to: NodeId(1),
        transfer_us: vec![vec![1.5]],
        transfer_disjoint_us: Some(vec![vec![2.5]]),
    }];
    let read = PlanProblem::from_json(COMPLETE).expect("a valid document");
    assert_eq!(read, expected);
    let written = read.to_json().expect("a valid problem");
    assert_eq!(PlanProblem::from_json(&written), Ok(expected));
}

#[test]
fn another_kind_of_document_is_called_that() {
    for (schema, found) in [
        ("deeppool/plan/v1", "\"deeppool/plan/v1\""),
        ("deeppool/plan-problem/v2", "\"deeppool/plan-problem/v2\""),
    ] {
        let text = format!(r#"{{"schema":"{schema}","layers":[]}}"#);
        let expected = Error::Schema { found: found.into(), expected: "deeppool/plan-problem/v1" };
        assert_eq!(PlanProblem::from_json(&text), Err(expected));
    }
    assert!(matches!(PlanProblem::from_json("{}"), Err(Error::Schema { .. })));
}

#[test]
fn an_error_names_the_path() {
    let cases = [
        (
            r#""gpus":1,"time_us":100.0"#,
            r#""gpus":1,"time_us":"fast""#,
            "nodes[0].options[0].time_us",
            "expected f64",
        ),
        (
            r#""gpus":1,"time_us":100.0"#,
            r#""gpus":-1,"time_us":100.0"#,
            "nodes[0].options[0].gpus",
            "expected usize",
        ),
        (r#""gpus":1,"time_us":100.0"#, r#""gpus":1"#, "nodes[0].options[0]", "missing field `time_us`"),
        (r#""memory_bytes""#, r#""memory_mb""#, "nodes[0].options[1].memory_mb", "unknown field `memory_mb`"),
        (r#""gpus":8,"#, r#""gpus":8,"devices":8,"#, "devices", "unknown field `devices`"),
        ("[5.0,0.0]", "[5.0,null]", "edges[0].transfer_us[1][1]", "null"),
        (r#""to":1,"#, r#""to":1,"bytes":4,"#, "edges[0].bytes", "unknown field `bytes`"),
        ("100.0", "1e999", "nodes[0].options[0].time_us", "out of range"),
    ];
    for (from, to, path, part) in cases {
        let text = SMALLEST.replacen(from, to, 1);
        match PlanProblem::from_json(&text) {
            Err(Error::Json { path: found, message }) => {
                assert_eq!(found, path, "{message}");
                assert!(message.contains(part) && message.contains("line"), "{message}");
            }
            other => panic!("{to}: {other:?}"),
        }
    }
}

#[test]
fn what_is_no_document_is_refused() {
    for text in ["", "[]", "{", "nonsense", &SMALLEST[..200], &format!("{SMALLEST} {{}}")] {
        assert!(matches!(PlanProblem::from_json(text), Err(Error::Json { .. })), "{text}");
    }
    let text = SMALLEST.replacen("60.0", "-60.0", 1);
    assert!(matches!(PlanProblem::from_json(&text), Err(Error::BadTime { .. })));
}
