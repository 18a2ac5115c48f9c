//! Places each layer of a network on one of a few GPUs, and prints the speed-up.
//!
//!     cargo run --release -p deeppool --example place_branches -- inception-v3 64

use std::time::Instant;

use burst_planner::Evaluator;
use burst_planner::placement::{PlacementSearch, list_schedule, place};
use collectives::LinkModel;
use deeppool::costs::Costs;
use deeppool::job::{Job, JobCosts, plan_problem};
use deeppool::planning::placement_problem;
use deeppool::program::LowerOptions;
use layer_graph::zoo;
use layer_profile::DeviceModel;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "inception-v3".into());
    let batch: usize = arguments.next().map_or(Ok(64), |batch| batch.parse())?;
    let network = zoo::model(&name)?;
    let profile = DeviceModel::named("a100")?.profile(&network, &[batch])?;
    let link = LinkModel::dgx_a100();
    let job = Job::new(Costs::new(&network, &profile, &link), batch, LowerOptions::default());
    let (mut alone_us, mut alone_program_us) = (0.0, 0.0);
    println!("{name}, batch {batch}, forward and backward, modelled; contention for links is left out");
    for gpus in 1..=4 {
        let joined = placement_problem(&job, gpus)?;
        let problem = &joined.problem;
        let begun = Instant::now();
        let listed = list_schedule(problem)?;
        let list_took = begun.elapsed();
        let search = PlacementSearch::default().with_tolerance(0.001);
        let found = place(problem, &search)?;
        let took = begun.elapsed();
        // Time of the program, with transfers that wait for each other, and the optimiser's steps.
        let whole = plan_problem(&job, gpus, &[1])?;
        let arrangement = joined.expanded(&found).arrangement();
        let program_us = Evaluator::new(&whole, JobCosts::new(&job))?.evaluate(&arrangement)?.iteration_us;
        if gpus == 1 {
            (alone_us, alone_program_us) = (found.makespan_us, program_us);
        }
        let speed_up = |us: f64| alone_us / us;
        println!(
            "{gpus} GPUs: {} operations in {:.1} s: {:.2} ms, {:.3} times as fast as one (bound {:.3}; \
             list scheduling {:.3} in {:.1} ms); gap {:.2}%; the program {:.3}",
            problem.operations.len(),
            took.as_secs_f64(),
            found.makespan_us / 1e3,
            speed_up(found.makespan_us),
            speed_up(found.lower_bound_us),
            speed_up(listed.makespan_us),
            list_took.as_secs_f64() * 1e3,
            100.0 * found.gap(),
            alone_program_us / program_us,
        );
    }
    Ok(())
}
