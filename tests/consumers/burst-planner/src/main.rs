//! Plans a network of three layers for eight GPUs, within several limits on amplification.

use burst_planner::{
    AllReduceTime, Arrangement, Error, Evaluator, Node, PlanProblem, SearchOptions, StepTimes, TableCosts,
    TransferTimes, frontier, plan,
};

const COUNTS: [usize; 4] = [1, 2, 4, 8];

fn main() -> Result<(), Error> {
    let mut problem = PlanProblem::new(8);
    let mut costs = TableCosts::new();
    // (name, time on one GPU, constant part of it), in microseconds.
    let layers = [("conv", 4000.0, 50.0), ("pool", 300.0, 60.0), ("fc", 200.0, 150.0)];
    let nodes = layers.map(|(name, time, fixed)| {
        let node = problem.add_node(Node::new(name, COUNTS).with_gradient_bytes(1_000_000));
        for gpus in COUNTS {
            let forward_us = (fixed + (time - fixed) / gpus as f64) / 3.0;
            let backward_us = 2.0 * forward_us;
            costs.set_steps(node, gpus, StepTimes { forward_us, backward_us, update_us: 0.0 });
        }
        for (from, to) in COUNTS.into_iter().flat_map(|from| COUNTS.map(|to| (from, to))) {
            costs.set_transfer(node, from, to, TransferTimes { nested_us: 5.0, disjoint_us: 10.0 });
        }
        node
    });
    for pair in nodes.windows(2) {
        problem.add_edge(pair[0], pair[1]);
    }
    for gpus in &COUNTS[1..] {
        costs.set_all_reduce(*gpus, AllReduceTime { startup_us: 10.0, us_per_byte: 1e-5 });
    }
    costs.validate(&problem)?;

    let data_parallel = Arrangement::data_parallel(&problem, 8)?;
    let time = Evaluator::new(&problem, &costs)?.evaluate(&data_parallel)?;
    println!("data parallel: {:.1} us", time.iteration_us);
    let found = frontier(&problem, &costs, &SearchOptions::default())?;
    let mut iteration_us = 0.0;
    for limit in [3.0, 1.5, 1.3, 1.1, 1.0] {
        let fastest = found.fastest_within(limit)?;
        let gpus: Vec<usize> = fastest.arrangement.ranks.iter().map(Vec::len).collect();
        println!("amplification up to {limit}: {:.1} us on {gpus:?} GPUs", fastest.time.iteration_us);
        assert!(fastest.time.gpu_time_us <= limit * found.single_gpu_us() * (1.0 + 1e-9));
        assert!(fastest.time.iteration_us >= iteration_us, "a tighter limit made the plan faster");
        iteration_us = fastest.time.iteration_us;
    }
    assert_eq!(plan(&problem, &costs, 1.0, &SearchOptions::default())?.time.iteration_us, iteration_us);
    assert!((iteration_us - 4500.0).abs() < 1e-6, "without waste everything runs on one GPU");
    Ok(())
}
