//! Time to plan real networks, with layer times modelled for an A100.

// `criterion_group!` generates items without documentation.
#![allow(missing_docs)]

use std::hint::black_box;

use collectives::LinkModel;
use criterion::{Criterion, criterion_group, criterion_main};
use deeppool::Error;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::job::Job;
use deeppool::plan::{Mode, PlanRequest};
use deeppool::planning::find_plan;
use deeppool::program::LowerOptions;
use layer_graph::zoo;
use layer_profile::DeviceModel;

/// Questions: model, transformer blocks if it is a deep one, GPUs, batch, link model.
const QUESTIONS: [(&str, Option<usize>, usize, usize, &str); 11] = [
    ("vgg16", None, 8, 32, "dgx-a100"),
    ("vgg16", None, 64, 64, "dgx-a100-pod"),
    ("vgg16", None, 1024, 1024, "dgx-a100-pod"),
    ("inception-v3", None, 8, 32, "dgx-a100"),
    ("inception-v3", None, 64, 64, "dgx-a100-pod"),
    ("inception-v3", None, 1024, 1024, "dgx-a100-pod"),
    ("resnet-50", None, 64, 256, "dgx-a100-pod"),
    ("digits-cnn", None, 8, 32, "dgx-a100"),
    ("big-lstm", None, 8, 32, "dgx-a100"),
    ("gpt2", Some(96), 64, 64, "dgx-a100-pod"),
    ("gpt2", Some(1000), 64, 64, "dgx-a100-pod"),
];

fn planning(criterion: &mut Criterion) -> Result<(), Error> {
    let mut group = criterion.benchmark_group("plan within amplification 2");
    group.sample_size(10);
    for (model, blocks, gpus, batch, link) in QUESTIONS {
        let network = match blocks {
            Some(blocks) => zoo::gpt2_of_blocks(blocks)?,
            None => zoo::model(model)?,
        };
        let link = LinkModel::named(link)?;
        let profile = DeviceModel::named("a100")?.profile(&network, &shard_sizes(batch, gpus))?;
        let job = Job::new(Costs::new(&network, &profile, &link), batch, LowerOptions::default());
        let request = PlanRequest::new(gpus, Mode::Burst { amplification: 2.0 });
        group.bench_function(format!("{}, {gpus} GPUs, batch {batch}", network.name()), |b| {
            b.iter(|| find_plan(&job, black_box(&request)));
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
