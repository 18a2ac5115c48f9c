//! Plans as graphs and timelines.

use std::io::Write;
use std::process::{Command, Stdio};

use burst_planner::export::{Span, SpanWork, chrome_trace, dot, timeline};
use burst_planner::{NodeOption, Plan, PlanProblem, RegionSchedule, Schedule};
use proptest::prelude::*;
use serde_json::Value;

use crate::random::waves::{all_scheduled, parallel_problems};
use crate::random::{close, graphs, problems};

/// A choice for each node out of the bits of a number.
fn choice_of(problem: &PlanProblem, draw: u64) -> Vec<usize> {
    let options = problem.nodes.iter().map(|node| node.options.len() as u64).enumerate();
    options.map(|(index, options)| (draw.rotate_left(index as u32 * 5) % options) as usize).collect()
}

/// Whether two spans are at work on one rank at once, by more than rounding.
fn clash(a: &Span, b: &Span, whole_us: f64) -> bool {
    let until = f64::min(a.start_us + a.duration_us, b.start_us + b.duration_us);
    let ranks = a.ranks.start.max(b.ranks.start)..a.ranks.end.min(b.ranks.end);
    !ranks.is_empty() && until - a.start_us.max(b.start_us) > 1e-9 * whole_us
}

/// Fork on 4 GPUs, `a` on 2 beside `b` on 1, join on 3.
fn two_branches() -> (PlanProblem, Plan) {
    let mut problem = PlanProblem::new(4);
    problem.single_gpu_us = Some(26.7);
    let nodes = [("fork", 4, 10.0), ("a \"quoted\" \\ & <odd>", 2, 20.0), ("b", 1, 12.0), ("join", 3, 5.0)];
    let [fork, a, b, join] =
        nodes.map(|(name, gpus, time_us)| problem.add_node(name, [NodeOption::new(gpus, time_us)]));
    for (from, to) in [(fork, a), (fork, b), (a, join), (b, join)] {
        problem.add_edge(from, to, vec![vec![1.0]]).transfer_disjoint_us = Some(vec![vec![2.5]]);
    }
    problem.edges[2].transfer_us = vec![vec![0.0]];
    let schedule = Schedule { regions: vec![RegionSchedule { fork, join, waves: vec![vec![0, 1]] }] };
    let plan = Plan::from_schedule(&problem, vec![0; 4], schedule).expect("a plan");
    (problem, plan)
}

#[test]
fn branches_that_run_at_once_stand_beside_each_other() {
    let (problem, plan) = two_branches();
    let spans = timeline(&problem, &plan).expect("a timeline");
    let shown: Vec<_> =
        spans.iter().map(|span| (span.work, span.ranks.clone(), span.start_us, span.duration_us)).collect();
    let expected = [
        (SpanWork::Node(0), 0..4, 0.0, 10.0),
        // Branch a has ranks 0 and 1, branch b rank 2: its transfers take longer, but it ends earlier.
        (SpanWork::Edge(0), 0..2, 10.0, 1.0),
        (SpanWork::Edge(1), 2..3, 10.0, 2.5),
        (SpanWork::Node(1), 0..2, 11.0, 20.0),
        (SpanWork::Node(2), 2..3, 12.5, 12.0),
        (SpanWork::Edge(3), 2..3, 24.5, 2.5),
        (SpanWork::Edge(2), 0..2, 31.0, 0.0),
        (SpanWork::Node(3), 0..3, 31.0, 5.0),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_trace_has_a_track_for_each_rank() {
    let (problem, plan) = two_branches();
    let trace = chrome_trace(&problem, &plan).expect("a trace");
    let document: Value = serde_json::from_str(&trace).expect("JSON");
    let events = document["traceEvents"].as_array().expect("events");
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
    let names: Vec<&str> = of("M").iter().filter_map(|event| event["args"]["name"].as_str()).collect();
    assert_eq!(names, ["rank 0 (planned)", "rank 1 (planned)", "rank 2 (planned)", "rank 3 (planned)"]);
    // 4 + 2 + 1 + 3 of layers, 2 + 1 + 1 of transfers; the one that takes no time is left out.
    assert_eq!(of("X").len(), 14);
    let rank_2: Vec<_> = of("X").into_iter().filter(|event| event["pid"] == 3).collect();
    let shown: Vec<_> = rank_2.iter().map(|event| (event["name"].as_str(), event["ts"].as_f64())).collect();
    let expected = [("fork", 0.0), ("fork -> b", 10.0), ("b", 12.5), ("b -> join", 24.5), ("join", 31.0)];
    assert_eq!(shown, expected.map(|(name, ts)| (Some(name), Some(ts))));
    assert_eq!((&rank_2[1]["cat"], &rank_2[1]["dur"]), (&Value::from("transfer"), &Value::from(2.5)));
    assert_eq!(rank_2[4]["args"], serde_json::json!({"ranks": [0, 1, 2]}));
}

/// What it is about, empty for the whole graph, and its attributes.
type Statement = (String, Vec<(String, String)>);

/// The statements of a graph in the part of the DOT language that is used: identifiers, an arrow, and attributes in
/// quotes or bare. `None` for what is not in the language.
fn statements(dot: &str) -> Option<Vec<Statement>> {
    let mut found = Vec::new();
    for line in dot.strip_prefix("digraph plan {\n")?.strip_suffix("\n}\n")?.lines() {
        let line = line.strip_prefix("  ")?.strip_suffix(';')?;
        let (subject, list) = match line.split_once(" [") {
            Some((subject, rest)) => (subject, rest.strip_suffix(']')?),
            None if line.contains('=') => ("", line),
            None => (line, ""),
        };
        let bare = |text: &str| !text.is_empty() && text.chars().all(char::is_alphanumeric);
        if !subject.is_empty() && !subject.split(" -> ").all(bare) {
            return None;
        }
        let mut attributes = Vec::new();
        let mut rest = list;
        while !rest.is_empty() {
            let (name, value) = rest.split_once('=')?;
            let end = if let Some(quoted) = value.strip_prefix('"') {
                let mut escaped = false;
                let closing = |(_, letter): &(usize, char)| {
                    let is_end = *letter == '"' && !escaped;
                    escaped = *letter == '\\' && !escaped;
                    is_end
                };
                quoted.char_indices().find(closing)?.0 + 2
            } else {
                value.find(',').unwrap_or(value.len())
            };
            let (text, after) = value.split_at(end);
            if !bare(name) || !(text.starts_with('"') || bare(text)) {
                return None;
            }
            attributes.push((name.to_owned(), text.to_owned()));
            rest = after.strip_prefix(", ").or_else(|| after.is_empty().then_some(""))?;
        }
        found.push((subject.to_owned(), attributes));
    }
    Some(found)
}

#[test]
fn a_graph_names_what_runs_where() {
    let (problem, plan) = two_branches();
    let dot = dot(&problem, &plan).expect("a graph");
    let found = statements(&dot).expect("the DOT language");
    let label = |subject: &str| {
        let (_, attributes) = found.iter().find(|statement| statement.0 == subject).expect("a statement");
        attributes.iter().find(|(name, _)| name == "label").map(|(_, text)| text.as_str())
    };
    // The fork, 1 + 20 of branch a, the join. Layers take 107 of GPU time, transfers 4 + 5 * 2.5 + 4 * 2.5.
    assert_eq!(label(""), Some(r#""iteration 36.0 us, amplification 5.000""#));
    assert_eq!(label("n0"), Some(r#""fork\n4 GPUs, 10.0 us""#));
    let odd = r#""a \"quoted\" \\ &amp; <odd>\n2 GPUs, 20.0 us\nranks 0 to 1, wave 0""#;
    assert_eq!(label("n1"), Some(odd));
    assert_eq!(label("n2"), Some(r#""b\n1 GPU, 12.0 us\nrank 2, wave 0""#));
    assert_eq!((label("n0 -> n1"), label("n0 -> n2")), (Some("\"1.0 us\""), Some("\"2.5 us\"")));
    assert_eq!(label("n1 -> n3"), None);
}

#[test]
fn graphviz_draws_it() {
    let (problem, plan) = two_branches();
    let text = dot(&problem, &plan).expect("a graph");
    let graphviz = Command::new("dot").arg("-Tsvg").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut graphviz) = graphviz else {
        println!("SKIPPED: Graphviz is not installed");
        return;
    };
    graphviz.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("text is taken");
    let output = graphviz.wait_with_output().expect("an end");
    let svg = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && svg.contains("&lt;odd&gt;"), "{svg}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn without_waves_a_timeline_is_the_whole_cost(
        problem in problems(graphs(), &[1, 2, 3, 4, 8]), draw in any::<u64>(),
    ) {
        let choice = choice_of(&problem, draw);
        let plan = Plan::from_choice(&problem, choice)?;
        let totals = plan.totals;
        let spans = timeline(&problem, &plan)?;
        let end_us = spans.iter().map(|span| span.start_us + span.duration_us).fold(0.0, f64::max);
        prop_assert!(close(end_us, totals.iteration_us));
        let gpu_time_us: f64 = spans.iter().map(|span| span.ranks.len() as f64 * span.duration_us).sum();
        prop_assert!(close(gpu_time_us, totals.gpu_time_us));
        for pair in spans.windows(2) {
            prop_assert!(!clash(&pair[0], &pair[1], end_us) && pair[0].start_us <= pair[1].start_us);
        }
    }

    #[test]
    fn no_rank_does_two_things_at_once(
        problem in parallel_problems(&[1, 2, 3], 2), draw in any::<prop::sample::Index>(),
    ) {
        let all = all_scheduled(&problem);
        let one = &all[draw.index(all.len())];
        let plan = Plan::from_schedule(&problem, one.choice.clone(), one.schedule.clone())?;
        let spans = timeline(&problem, &plan)?;
        prop_assert_eq!(spans.len(), problem.nodes.len() + problem.edges.len());
        let end_us = spans.iter().map(|span| span.start_us + span.duration_us).fold(0.0, f64::max);
        prop_assert!(close(end_us, plan.totals.iteration_us));
        for (index, span) in spans.iter().enumerate() {
            prop_assert!(spans[..index].iter().all(|earlier| !clash(earlier, span, end_us)), "{:?}", spans);
        }

        let mut starts = vec![0.0; problem.nodes.len()];
        let mut ends = starts.clone();
        for span in &spans {
            if let SpanWork::Node(node) = span.work {
                prop_assert_eq!(&span.ranks, &plan.assignments[node].ranks);
                let option = &problem.nodes[node].options[one.choice[node]];
                prop_assert!(close(span.duration_us, option.total_us()));
                (starts[node], ends[node]) = (span.start_us, span.start_us + span.duration_us);
            }
        }
        for span in &spans {
            if let SpanWork::Edge(index) = span.work {
                let edge = &problem.edges[index];
                let (from_us, to_us) = (span.start_us, span.start_us + span.duration_us);
                let slack_us = 1e-9 * end_us;
                prop_assert!(ends[edge.from.0] <= from_us + slack_us && to_us <= starts[edge.to.0] + slack_us);
            }
        }
    }

    #[test]
    fn any_name_can_be_drawn(names in prop::collection::btree_set(any::<String>(), 1..5)) {
        let mut problem = PlanProblem::new(1);
        for name in &names {
            problem.add_node(name, [NodeOption::new(1, 1.0)]);
        }
        let text = dot(&problem, &Plan::from_choice(&problem, vec![0; names.len()])?)?;
        let found = statements(&text);
        prop_assert!(found.is_some_and(|found| found.len() == 3 + names.len()), "{}", text);
        prop_assert!(!text.chars().any(|letter| letter.is_control() && letter != '\n'));
    }
}
