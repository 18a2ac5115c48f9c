//! How good plans on the lists of GPU counts are.

use burst_planner::{Error, NodeId, NodeOption, PlanProblem, SearchOptions, fastest, gpu_counts};
use proptest::prelude::*;

/// Layers of a batch that is split over any number of GPUs, with edges between them.
#[derive(Debug, Clone)]
struct Network {
    gpus: usize,
    batch: usize,
    /// By layer: time of a sample, time that no split shortens, all-reduce, microseconds.
    layers: Vec<[f64; 3]>,
    /// Producer, consumer, and the time to move the batch.
    edges: Vec<(usize, usize, f64)>,
}

fn networks() -> impl Strategy<Value = Network> {
    let layers = prop::collection::vec([1.0..20.0, 0.0..20.0, 0.0..30.0], 1..=5);
    (2_usize..=8, 1_usize..=40, layers, any::<u16>(), prop::collection::vec(0.0..50.0, 10)).prop_map(
        |(gpus, batch, layers, bits, times)| {
            let pairs = (0..layers.len()).flat_map(|to| (0..to).map(move |from| (from, to)));
            let edges = pairs.zip(times).enumerate().filter(|(index, _)| bits >> index & 1 == 1);
            let edges = edges.map(|(_, ((from, to), time))| (from, to, time)).collect();
            Network { gpus, batch, layers, edges }
        },
    )
}

impl Network {
    fn problem(&self, counts: &[usize]) -> PlanProblem {
        let mut problem = PlanProblem::new(self.gpus);
        for (index, &[sample_us, fixed_us, all_reduce_us]) in self.layers.iter().enumerate() {
            let option = |&gpus: &usize| {
                let time_us = fixed_us + sample_us * self.batch.div_ceil(gpus) as f64;
                NodeOption::new(gpus, time_us).with_all_reduce_us(if gpus > 1 { all_reduce_us } else { 0.0 })
            };
            problem.add_node(format!("layer {index}"), counts.iter().map(option));
        }
        for &(from, to, time_us) in &self.edges {
            let cell = |i: &usize, j: &usize| if i == j { 0.0 } else { time_us / *i.min(j) as f64 };
            let matrix = counts.iter().map(|i| counts.iter().map(|j| cell(i, j)).collect()).collect();
            problem.add_edge(NodeId(from), NodeId(to), matrix);
        }
        problem
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn with_all_counts_a_plan_is_never_slower(network in networks(), limit in 1.0..4.0) {
        let time_us = |counts: &[usize]| {
            let plan = fastest(&network.problem(counts), limit, &SearchOptions::default())?;
            assert!(plan.totals.amplification <= limit * (1.0 + 1e-9));
            Ok::<f64, Error>(plan.totals.iteration_us)
        };
        let powers = time_us(&gpu_counts::powers_of_two_and_max(network.gpus));
        match (time_us(&gpu_counts::all(network.gpus)), powers) {
            (Ok(all), Ok(powers)) => prop_assert!(all <= powers * (1.0 + 1e-9), "{all} {powers}"),
            // One GPU for all layers moves nothing, and is within any limit.
            (all, powers) => prop_assert!(false, "{:?} {:?}", all, powers),
        }
    }
}

#[test]
fn an_uneven_split_can_be_faster() -> Result<(), Error> {
    let network = Network { gpus: 8, batch: 30, layers: vec![[10.0, 0.0, 0.0]], edges: Vec::new() };
    // With a limit of 1 the count has to divide the batch: shards of 30 samples on 4 or 8 GPUs are uneven.
    let plan = |counts: &[usize]| fastest(&network.problem(counts), 1.0, &SearchOptions::default());
    assert_eq!(plan(&gpu_counts::powers_of_two_and_max(8))?.gpus, 2);
    assert_eq!(plan(&gpu_counts::all(8))?.gpus, 6);
    Ok(())
}
