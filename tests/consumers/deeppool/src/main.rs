//! Plans a network for four devices and simulates the plan.

use std::error::Error;

use collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::job::Job;
use deeppool::plan::{Mode, PlanRequest};
use deeppool::planning::find_plan;
use deeppool::program::LowerOptions;
use deeppool::simulate::{SimulateOptions, simulate_plan};
use layer_graph::zoo;
use layer_profile::DeviceModel;

fn main() -> Result<(), Box<dyn Error>> {
    let (batch, gpus) = (32, 4);
    let network = zoo::model("digits-cnn")?;
    let profile = DeviceModel::named("cpu-core")?.profile(&network, &shard_sizes(batch, gpus))?;
    let link = LinkModel::threads_of_one_host();
    let job = Job::new(Costs::new(&network, &profile, &link), batch, LowerOptions::default());

    let mut simulated = Vec::new();
    for mode in [Mode::Burst { amplification: 1.0 }, Mode::Burst { amplification: 2.0 }] {
        let plan = find_plan(&job, &PlanRequest::new(gpus, mode))?;
        let simulation = simulate_plan(&job, &plan, &SimulateOptions::default())?;
        println!("{mode:?}: planned {:.1} us, simulated {:?}", plan.iteration_us, simulation.iteration);
        for layer in &plan.layers {
            println!("  {:12} {} GPUs", layer.name, layer.gpus);
        }
        simulated.push(simulation.iteration);
    }
    assert!(simulated[1] < simulated[0], "four devices are no faster than one");
    Ok(())
}
