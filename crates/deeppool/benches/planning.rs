//! Time to plan real networks, with layer times modelled for an A100 and the links of a DGX A100.

// `criterion_group!` generates items without documentation.
#![allow(missing_docs)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use deeppool::Error;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::job::Job;
use deeppool::plan::{Mode, PlanRequest};
use deeppool::planning::find_frontier;
use deeppool::program::LowerOptions;
use layer_graph::zoo;
use layer_profile::DeviceModel;

fn planning(criterion: &mut Criterion) -> Result<(), Error> {
    let link = collectives::LinkModel::dgx_a100();
    let mut group = criterion.benchmark_group("Pareto frontier of plans");
    group.sample_size(10);
    for (model, gpus, batch) in [("vgg16", 8, 32), ("inception-v3", 8, 32), ("vgg16", 1024, 1024)] {
        let network = zoo::model(model)?;
        let profile = DeviceModel::named("a100")?.profile(&network, &shard_sizes(batch, gpus))?;
        let job = Job::new(Costs::new(&network, &profile, &link), batch, LowerOptions::default());
        let request = PlanRequest::new(gpus, Mode::Knee);
        group.bench_function(format!("{model}, {gpus} GPUs, batch {batch}"), |b| {
            b.iter(|| find_frontier(&job, black_box(&request)).map(|frontier| frontier.plan(Mode::Knee)));
        });
    }
    group.finish();
    Ok(())
}

fn run(criterion: &mut Criterion) {
    if let Err(error) = planning(criterion) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

criterion_group!(benches, run);
criterion_main!(benches);
