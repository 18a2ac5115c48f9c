//! Comparison with the plans of the original DeepPool, by its costs.

use std::fmt::Write;

use burst_planner::{Arrangement, Evaluator, Frontier, SearchOptions, frontier};

use crate::original_data::{Model, Row, rows};

type Models = [(&'static str, Model); 2];

/// Loads the networks whose costs are known, and the original's plans for them.
fn load() -> Option<(Models, Vec<Row>)> {
    let models = [("vgg16", Model::load("vgg16")?), ("wrn101_2", Model::load("wrn101_2")?)];
    let rows = rows(&[(models[0].0, &models[0].1), (models[1].0, &models[1].1)])?;
    Some((models, rows))
}

fn model<'m>(models: &'m Models, row: &Row) -> &'m Model {
    let (_, model) = models.iter().find(|(name, _)| *name == row.model).unwrap();
    model
}

fn within_one_percent(ours: f64, theirs: f64) -> bool {
    (ours / theirs - 1.0).abs() < 0.01
}

#[test]
fn the_per_layer_rule_gives_the_plans_of_the_original() {
    let Some((models, rows)) = load() else { return };
    let mut compared = 0;
    for row in &rows {
        let Some(limit) = row.limit else { continue };
        let chain = model(&models, row).chain(row.gpus, row.latency_us);
        let chosen = chain.choose(limit).unwrap();
        let name = format!("{} on {} GPUs, limit {limit}", row.model, row.gpus);
        assert!(within_one_percent(chain.iteration_us(&chosen), row.iteration_us), "{name}");
        assert!(within_one_percent(chain.gpu_time_us(&chosen), row.gpu_time_us), "{name}");
        compared += 1;
    }
    println!("{compared} plans compared");
    assert!(compared >= 90, "{compared}");
}

/// Frontiers by model, latency and number of GPUs.
struct Searched<'m> {
    models: &'m Models,
    found: Vec<((String, u64, usize), Frontier)>,
}

impl Searched<'_> {
    /// Returns the iteration times of the fastest plan within the GPU time of the original's plan,
    /// and of that plan, milliseconds, both by the evaluator.
    fn ours_and_its(&mut self, row: &Row) -> (f64, f64) {
        let model = model(self.models, row);
        let (problem, costs) = (model.problem(row.gpus), model.costs(row.latency_us));
        let key = (row.model.clone(), row.latency_us as u64, row.gpus);
        let mut evaluator = Evaluator::new(&problem, &costs).unwrap();
        let order = Arrangement::data_parallel(&problem, 1).unwrap().order;
        let ranks = row.counts.iter().map(|&gpus| (0..gpus).collect()).collect();
        let its = evaluator.evaluate(&Arrangement::new(ranks, order)).unwrap();
        assert!(within_one_percent(its.iteration_us, row.iteration_us), "{} {}", row.model, row.gpus);
        if !self.found.iter().any(|(other, _)| *other == key) {
            let found = frontier(&problem, &costs, &SearchOptions::default()).unwrap();
            self.found.push((key.clone(), found));
        }
        let (_, found) = self.found.iter().find(|(other, _)| *other == key).unwrap();
        let limit = (its.gpu_time_us / found.single_gpu_us()).max(1.0);
        (found.fastest_within(limit).unwrap().time.iteration_us / 1e3, its.iteration_us / 1e3)
    }
}

/// No plan is slower than the original's by more than 1%: the search is a heuristic. Writes the
/// table in the README with `BLESS=1`, and compares it otherwise.
#[test]
fn plans_are_as_fast_as_the_originals_within_their_gpu_time() {
    let Some((models, rows)) = load() else { return };
    let mut searched = Searched { models: &models, found: Vec::new() };
    let mut slower = 0;
    for row in &rows {
        let (ours, its) = searched.ours_and_its(row);
        assert!(ours <= its * 1.01, "{} on {} GPUs: {ours} {its}", row.model, row.gpus);
        slower += usize::from(ours > its * (1.0 + 1e-9));
    }
    println!("{slower} of {} plans are slower than the original's", rows.len());
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
                    let (ours, its) = searched.ours_and_its(row);
                    write!(table, " {its:.2} / {ours:.2} = {:.2} |", its / ours).unwrap();
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
