//! Plans a made-up network of three layers for eight GPUs, under tighter and tighter limits.

use burst_planner::{Error, NodeOption, PlanProblem, SearchOptions, data_parallel, fastest};

fn main() -> Result<(), Error> {
    let mut problem = PlanProblem::new(8);
    // (name, time on one GPU, the part of it that does not shrink), both in microseconds.
    let layers = [("conv", 4000.0, 50.0), ("pool", 300.0, 60.0), ("fc", 200.0, 150.0)];
    let nodes = layers.map(|(name, time, fixed)| {
        let option = |gpus: usize| NodeOption::new(gpus, fixed + (time - fixed) / gpus as f64);
        problem.add_node(name, [1, 2, 4, 8].map(option))
    });
    let transfers: Vec<Vec<f64>> =
        (0..4).map(|from| (0..4).map(|to| if from == to { 0.0 } else { 10.0 }).collect()).collect();
    for pair in nodes.windows(2) {
        problem.add_edge(pair[0], pair[1], transfers.clone());
    }

    let mut iteration_us = data_parallel(&problem)?.totals.iteration_us;
    println!("data parallel: {iteration_us:.1} us");
    for limit in [1.5, 1.3, 1.1, 1.0] {
        let plan = fastest(&problem, limit, &SearchOptions::default())?;
        let gpus: Vec<usize> = plan.assignments.iter().map(|layer| layer.gpus).collect();
        println!("amplification up to {limit}: {:.1} us on {gpus:?} GPUs", plan.totals.iteration_us);
        assert!(plan.totals.amplification <= limit * (1.0 + 1e-9));
        assert!(plan.totals.iteration_us >= iteration_us, "a tighter limit made the plan faster");
        iteration_us = plan.totals.iteration_us;
    }
    assert!((iteration_us - 4500.0).abs() < 1e-6, "without waste everything runs on one GPU");
    Ok(())
}
