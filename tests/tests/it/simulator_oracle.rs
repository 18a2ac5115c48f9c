//! The simulator against a simple reference implementation, for a foreground job alone.

use std::time::Duration;

use collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::program::{
    Lane, LowerOptions, PartialBackpropagation, PartialDepth, Program, lower_for_simulation, lower_training,
};
use deeppool::simulate::{SimulateOptions, simulate};
use deeppool_tests::scattered;
use layer_graph::zoo;
use layer_profile::DeviceModel;
use proptest::prelude::*;

/// A rank of the reference implementation.
struct Rank {
    /// End of each step of the iteration so far.
    ends: Vec<Duration>,
    /// Time at which the compute and communication lanes are free.
    lanes: [Duration; 2],
    /// Start of the iteration.
    begin: Duration,
}

impl Rank {
    /// Runs the steps up to the next collective, and returns when the rank is ready for it.
    fn run_to_collective(&mut self, program: &Program, rank: usize, costs: &Costs<'_>) -> Duration {
        loop {
            let own = &program.ranks[rank];
            let step = own.steps.get(self.ends.len());
            let after = step.map_or(&[][..], |step| &step.after);
            let ready = after.iter().map(|step| self.ends[step.0]).fold(self.begin, Duration::max);
            match step {
                Some(step) if step.lane() == Lane::Compute => {
                    let end = ready.max(self.lanes[0]) + costs.compute_time(own, &step.op).unwrap();
                    self.lanes[0] = end;
                    self.ends.push(end);
                }
                _ => return ready.max(self.lanes[1]),
            }
        }
    }
}

/// Simulates a program collective by collective in program order, and returns the end of each
/// iteration.
fn reference(program: &Program, costs: &Costs<'_>, iterations: usize) -> Vec<Duration> {
    let new = || Rank { ends: Vec::new(), lanes: [Duration::ZERO; 2], begin: Duration::ZERO };
    let mut ranks: Vec<Rank> = program.ranks.iter().map(|_| new()).collect();
    let mut ends = Vec::new();
    for _ in 0..iterations {
        for rank in &mut ranks {
            rank.begin = rank.ends.iter().copied().fold(rank.begin, Duration::max);
            rank.ends.clear();
        }
        for collective in &program.collectives {
            let arrive = |&rank: &usize| ranks[rank].run_to_collective(program, rank, costs);
            let start = collective.ranks.iter().map(arrive).max().unwrap();
            let end = start + costs.collective_time(collective);
            for &rank in &collective.ranks {
                ranks[rank].lanes[1] = end;
                ranks[rank].ends.push(end);
            }
        }
        for (index, rank) in ranks.iter_mut().enumerate() {
            rank.run_to_collective(program, index, costs);
        }
        ends.push(ranks.iter().flat_map(|rank| &rank.ends).copied().max().unwrap());
    }
    ends
}

fn check(model: &str, batch: usize, ranks: usize, seed: u64, lowering: &LowerOptions) {
    let network = zoo::model(model).unwrap();
    let profile = DeviceModel::named("a100").unwrap().profile(&network, &shard_sizes(batch, ranks)).unwrap();
    let link = LinkModel::dgx_a100();
    let costs = Costs::new(&network, &profile, &link);
    let placement = scattered(&network, ranks, seed).unwrap();
    // With partial backpropagation, the program has several iterations.
    let program = match lowering.partial {
        None => lower_training(&network, &placement, batch, lowering).unwrap(),
        Some(_) => lower_for_simulation(&network, &placement, batch, lowering).unwrap(),
    };
    let ends = reference(&program, &costs, 5);
    let after_the_first = |last: usize| ends[last].saturating_sub(ends[0]);
    for (times, expected) in [(1, ends[0]), (2, after_the_first(1)), (5, after_the_first(4) / 4)] {
        let of_program = program.iterations;
        if times == 1 && of_program > 1 {
            continue;
        }
        let options = SimulateOptions::default().with_iterations(times * of_program);
        let took = simulate(&program, &costs, &options).unwrap().iteration;
        // This division may round differently.
        let expected = expected / of_program as u32;
        assert!(
            took.abs_diff(expected) <= Duration::from_nanos(u64::from(of_program > 1)),
            "{took:?} {expected:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn simulator_matches_reference(
        ranks in 1usize..7,
        batch in 7usize..20,
        seed: u64,
        overlap_all_reduce: bool,
        bucket_bytes in prop::sample::select(vec![1, 5_000, 25 << 20]),
        parts in 1usize..5,
    ) {
        let lowering = LowerOptions::default();
        let lowering = lowering.with_overlap_all_reduce(overlap_all_reduce).with_bucket_bytes(bucket_bytes);
        for model in ["digits-cnn", "resnet-18"] {
            let network = zoo::model(model).unwrap();
            let partial = (parts > 1)
                .then(|| PartialBackpropagation::new(&network, parts, PartialDepth::Layers).unwrap());
            check(model, batch, ranks, seed, &lowering.clone().with_partial(partial));
        }
    }
}
