//! Plans a network for four devices and runs the plan in virtual time.

use std::error::Error;

use collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::planning::{Mode, PlanRequest};
use deeppool::program::{LowerOptions, lower_training};
use deeppool::simulate::{SimulateOptions, simulate};
use layer_graph::zoo;
use layer_profile::DeviceModel;

fn main() -> Result<(), Box<dyn Error>> {
    let (batch, gpus) = (32, 4);
    let network = zoo::model("digits-cnn")?;
    let profile = DeviceModel::named("cpu-core")?.profile(&network, &shard_sizes(batch, gpus))?;
    let link = LinkModel::shared_memory();
    let costs = Costs::new(&network, &profile, &link);

    let mut simulated = Vec::new();
    for mode in [Mode::Burst { amplification: 1.0 }, Mode::Burst { amplification: 2.0 }] {
        let planned = PlanRequest::new(&costs, batch, gpus, mode).plan()?;
        let placement = planned.placement(&costs)?;
        let program = lower_training(&network, &placement, batch, &LowerOptions::default())?;
        let simulation = simulate(&program, &costs, &SimulateOptions::default())?;
        println!(
            "{mode:?}: planned {:.1} us, simulated {:?}",
            planned.plan.totals.iteration_us, simulation.iteration
        );
        for layer in &planned.plan.assignments {
            println!("  {:12} {} GPUs", layer.name, layer.gpus);
        }
        simulated.push(simulation.iteration);
    }
    assert!(simulated[1] < simulated[0], "four devices are no faster than one");
    Ok(())
}
