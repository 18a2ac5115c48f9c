use burst_planner::*;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::job::Job;
use deeppool::program::*;
use deeppool::simulate::*;
fn main() {
    let network = layer_graph::zoo::model("vgg16").unwrap();
    let (batch, world) = (16, 6);
    let mut sizes = shard_sizes(batch, world);
    sizes.extend((1..=world).map(|k| batch / k));
    sizes.sort_unstable(); sizes.dedup();
    let profile = layer_profile::DeviceModel::named("a100").unwrap().profile(&network, &sizes).unwrap();
    let link = collectives::LinkModel::named("dgx-a100").unwrap();
    let job = Job::new(Costs::new(&network, &profile, &link), batch, LowerOptions::default());
    let problem = job.training_problem(world, &[1,2,3,4,5,6]).unwrap();
    let mut ev = Evaluator::new(&problem, job.training_costs()).unwrap();
    let a = Arrangement::data_parallel(&problem, 5).unwrap();
    println!("{:?}", ev.evaluate(&a));
    for r in ev.activity(&a).unwrap() { println!("{r:?}"); }
    let p = Placement::first_ranks(&network, 6, &vec![5; network.len()-1]).unwrap();
    let program = lower_training(&network, &p, batch, &LowerOptions::default()).unwrap();
    let s = simulate(&program, job.costs(), &SimulateOptions{iterations: 8, timeline: true, ..Default::default()}).unwrap();
    println!("{:?} {:?}", s.iteration, s.activity);
    for e in s.timeline.unwrap().events().iter().filter(|e| e.rank == 1 && e.lane != "x") { println!("{} {:?} {:?} {}", e.lane, e.start, e.start + e.duration, e.label); }
}
