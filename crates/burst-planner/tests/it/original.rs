//! Against the original DeepPool, on its own costs.

use std::fmt::Write;

use burst_planner::{LimitRule, PlanProblem, SearchOptions, TimeModel, evaluate, fastest};

use crate::original_data::{Model, Row, rows};

type Models = [(&'static str, Model); 2];

/// The models for which the original's costs are known, and its plans for them.
fn load() -> Option<(Models, Vec<Row>)> {
    let models = [("vgg16", Model::load("vgg16")?), ("wrn101_2", Model::load("wrn101_2")?)];
    let rows = rows(&[(models[0].0, &models[0].1), (models[1].0, &models[1].1)])?;
    Some((models, rows))
}

fn problem(models: &Models, row: &Row) -> PlanProblem {
    let (_, model) = models.iter().find(|(name, _)| *name == row.model).unwrap();
    model.problem(row.gpus, row.latency_us)
}

fn choice(problem: &PlanProblem, counts: &[usize]) -> Vec<usize> {
    let option = |(node, &count): (&burst_planner::Node, &usize)| {
        node.options.iter().position(|option| option.gpus == count).unwrap()
    };
    problem.nodes.iter().zip(counts).map(option).collect()
}

/// GPU time as the original charges it: a transfer at the consumer's GPU count.
fn its_gpu_time_us(problem: &PlanProblem, choice: &[usize]) -> f64 {
    let option = |node: usize| &problem.nodes[node].options[choice[node]];
    let nodes = (0..choice.len()).map(|node| option(node).gpus as f64 * option(node).total_us());
    let edges = problem
        .edges
        .iter()
        .map(|edge| option(edge.to.0).gpus as f64 * edge.transfer_us[choice[edge.from.0]][choice[edge.to.0]]);
    nodes.sum::<f64>() + edges.sum::<f64>()
}

fn within_one_percent(ours: f64, theirs: f64) -> bool {
    (ours / theirs - 1.0).abs() < 0.01
}

#[test]
fn its_rule_leads_to_its_plans() {
    let Some((models, rows)) = load() else { return };
    let mut compared = 0;
    for row in &rows {
        let Some(limit) = row.limit else { continue };
        let problem = problem(&models, row);
        let options = SearchOptions::default().with_limit_rule(LimitRule::PerLayer);
        let plan = fastest(&problem, limit, &options).unwrap();
        let name = format!("{} on {} GPUs, limit {limit}", row.model, row.gpus);
        assert!(within_one_percent(plan.totals.iteration_us, row.iteration_us), "{name}");
        assert!(within_one_percent(its_gpu_time_us(&problem, &plan.choice), row.gpu_time_us), "{name}");
        assert_eq!(plan.optimality_gap, None);
        compared += 1;
    }
    println!("{compared} plans compared");
    assert!(compared >= 90, "{compared}");
}

/// What we find within the GPU time of one of its plans, which is evaluated by our formulae: both iteration times.
fn ours_and_its(models: &Models, row: &Row) -> (f64, f64) {
    let problem = problem(models, row);
    let its = evaluate(&problem, &choice(&problem, &row.counts)).unwrap();
    assert!(within_one_percent(its.iteration_us, row.iteration_us), "{} {}", row.model, row.gpus);
    let options = SearchOptions::default().with_time_model(TimeModel::Additive);
    let ours = fastest(&problem, its.amplification.max(1.0), &options).unwrap();
    (ours.totals.iteration_us, its.iteration_us)
}

#[test]
fn within_the_gpu_time_of_its_plans_ours_are_at_least_as_fast() {
    let Some((models, rows)) = load() else { return };
    for row in &rows {
        let (ours, its) = ours_and_its(&models, row);
        assert!(ours <= its * (1.0 + 1e-9), "{} on {} GPUs: {ours} {its}", row.model, row.gpus);
    }
}

/// The table in the README. `BLESS=1` writes it anew.
#[test]
fn the_table_in_the_readme_is_what_comes_out() {
    let Some((models, rows)) = load() else { return };
    let limits = [1.5, 2.0, 3.0, 5.0];
    let mut table = String::from("| | limit 1.5 | 2 | 3 | 5 |\n|---|---|---|---|---|\n");
    for (model, label) in [("vgg16", "VGG-16, batch 32"), ("wrn101_2", "WRN-101-2, batch 16")] {
        for latency_us in [240.0, 40.0] {
            for gpus in [8, 16, 64] {
                let of = |limit: f64| {
                    rows.iter().find(|row| {
                        row.model == model
                            && (row.latency_us - latency_us).abs() < 0.5
                            && row.gpus == gpus
                            && row.limit.is_some_and(|its| (its - limit).abs() < 1e-9)
                    })
                };
                let found: Vec<&Row> = limits.iter().filter_map(|&limit| of(limit)).collect();
                if found.len() < limits.len() {
                    continue;
                }
                write!(table, "| {label}, {gpus} GPUs, {latency_us} us |").unwrap();
                for row in found {
                    let (ours, its) = ours_and_its(&models, row);
                    write!(table, " {:.2} / {:.2} = {:.2} |", its / 1e3, ours / 1e3, its / ours).unwrap();
                }
                table.push('\n');
            }
        }
    }
    println!("{table}");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    let readme = std::fs::read_to_string(path).unwrap();
    let (begin, end) = ("<!-- compared -->\n", "<!-- end of compared -->");
    let from = readme.find(begin).unwrap() + begin.len();
    let to = readme.find(end).unwrap();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, format!("{}{table}{}", &readme[..from], &readme[to..])).unwrap();
    } else {
        assert_eq!(&readme[from..to], table, "run this test with BLESS=1");
    }
}
