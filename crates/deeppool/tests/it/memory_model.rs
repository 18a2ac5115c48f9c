//! The planner's memory model, compared with the memory of lowered programs.

use burst_planner::Evaluator;
use collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::job::{Job, JobCosts, plan_problem};
use deeppool::program::{LowerOptions, Placement, lower_for_simulation, possible_checkpoints};
use layer_engine::Precision;
use layer_graph::{Division, LayerGraph, NetworkSplits, Split, zoo};
use layer_profile::DeviceModel;

use crate::memory::{generator, random_network, random_placement};

/// Returns for each rank with layers the memory of the planner's model divided by that of its
/// program.
fn ratios(network: &LayerGraph, placement: &Placement, batch: usize, options: &LowerOptions) -> Vec<f64> {
    let world = placement.world();
    let mut sizes = shard_sizes(batch, world);
    let micro_batch = batch / options.micro_batches;
    sizes.extend(
        (1..=world.min(micro_batch)).flat_map(|count| [micro_batch / count, micro_batch.div_ceil(count)]),
    );
    sizes.sort_unstable();
    sizes.dedup();
    let profile = DeviceModel::named("a100").unwrap().profile(network, &sizes).unwrap();
    let link = LinkModel::named("dgx-a100").unwrap();
    let mut job = Job::new(Costs::new(network, &profile, &link), batch, options.clone());
    if placement.is_split() {
        // A multiple of each number of parts up to 4.
        job = job.with_splits(&Split::ALL, 12);
    }
    let problem = plan_problem(&job, world, &(1..=world).collect::<Vec<_>>()).unwrap();
    let arrangement = job.nodes().arrangement(placement).unwrap();
    let memory = Evaluator::new(&problem, JobCosts::new(&job)).unwrap().memory(&arrangement).unwrap();
    let program = lower_for_simulation(network, placement, batch, options).unwrap();
    let of_rank = program.ranks.iter().map(|rank| (memory[rank.rank], rank.memory().total_bytes()));
    of_rank.filter(|&(_, exact)| exact > 0).map(|(model, exact)| model as f64 / exact as f64).collect()
}

/// Prints the minimum, the median and the maximum.
fn print_distribution(of: &str, ratios: &mut [f64]) {
    ratios.sort_by(f64::total_cmp);
    let [first, middle, last] = [0, ratios.len() / 2, ratios.len() - 1].map(|place| ratios[place]);
    println!("{of}: {} ranks, model / program {first:.4} to {last:.4}, median {middle:.4}", ratios.len());
}

/// Returns a placement whose layers are split into parts of equal size, at random.
fn divided(
    network: &LayerGraph,
    mut placement: Placement,
    mut below: impl FnMut(usize) -> usize,
) -> Placement {
    let possible = NetworkSplits::new(network);
    for (id, _) in network.computing_layers() {
        let (ranks, splits) = (placement.ranks(id).len(), possible.splits(id));
        if ranks == 1 || splits.is_empty() || below(4) == 0 {
            continue;
        }
        let split = splits[below(splits.len())];
        let units = possible.max_parts(id, split);
        let is_even = |&parts: &usize| ranks % parts == 0 && (split == Split::Copies || units % parts == 0);
        let parts: Vec<usize> = (1..=ranks).filter(is_even).collect();
        let division = Division { split, parts: parts[below(parts.len())] };
        // Layers that read the network's input or share parameters cannot have each division.
        placement = placement.clone().with_divisions(network, [(id, division)]).unwrap_or(placement);
    }
    placement
}

/// Returns the ratios of random placements, which have split layers if `are_split`.
fn ratios_of_random_placements(are_split: bool) -> Vec<f64> {
    let mut all = Vec::new();
    for seed in 0..400 {
        let mut below = generator(seed);
        let network = random_network(32, &mut below);
        let ranks = 1 + below(4);
        let mut placement = random_placement(&network, ranks, &mut below);
        let micro_batches = [1, 1, 2, 3, 4][below(5)];
        let possible = possible_checkpoints(&network);
        let chosen = possible.into_iter().filter(|_| below(3) == 0);
        let checkpoints = chosen.map(|id| network.layer(id).name().to_owned()).collect();
        let options = LowerOptions::default()
            .with_overlap_all_reduce(below(4) > 0)
            .with_bucket_bytes([1, 100_000, 25 << 20][below(3)])
            .with_micro_batches(micro_batches)
            .with_checkpoints(checkpoints)
            .with_precision([Precision::F32, Precision::Bf16][if are_split { 0 } else { below(2) }]);
        if are_split {
            placement = divided(&network, placement, &mut below);
        }
        let found = ratios(&network, &placement, micro_batches * (4 + below(9)), &options);
        all.extend(found);
    }
    all
}

/// Checks the distribution of the ratios of random placements.
fn check_random(of: &str, are_split: bool) {
    let mut all = ratios_of_random_placements(are_split);
    print_distribution(of, &mut all);
    // Small networks on scattered ranks leave gaps between buffers.
    let near = all.iter().filter(|ratio| (0.9..1.1).contains(*ratio)).count();
    assert!(near as f64 > 0.8 * all.len() as f64, "{near} of {} are near", all.len());
    assert!((0.99..1.01).contains(&all[all.len() / 2]) && all[0] > 0.5 && all[all.len() - 1] < 1.6);
}

#[test]
fn model_of_random_placements_is_near_the_program() {
    check_random("random placements", false);
}

#[test]
fn model_of_random_splits_is_near_the_program() {
    check_random("random splits", true);
}

#[test]
fn model_of_data_parallelism_is_near_the_program() {
    for name in ["resnet-50", "vgg16", "inception-v3", "gpt2"] {
        let network = zoo::model(name).unwrap();
        let mut all = Vec::new();
        for ranks in [1, 4] {
            for micro_batches in [1, 2, 3, 4] {
                for every in [0, 4, 20] {
                    let possible = possible_checkpoints(&network).into_iter().enumerate();
                    let chosen = possible.filter(|(place, _)| every > 0 && place % every == every - 1);
                    let checkpoints = chosen.map(|(_, id)| network.layer(id).name().to_owned()).collect();
                    let options = LowerOptions::default()
                        .with_micro_batches(micro_batches)
                        .with_checkpoints(checkpoints);
                    let lists = vec![(0..ranks).collect::<Vec<_>>(); network.len() - 1];
                    let placement = Placement::new(&network, ranks, lists).unwrap();
                    let found = ratios(&network, &placement, 48, &options);
                    let range = if micro_batches == 1 && every == 0 { 0.99..1.01 } else { 0.87..1.06 };
                    assert!(
                        found.iter().all(|ratio| range.contains(ratio)),
                        "{name} on {ranks}, {micro_batches} micro-batches, every {every}: {found:.4?}"
                    );
                    all.extend(found);
                }
            }
        }
        print_distribution(name, &mut all);
    }
}
