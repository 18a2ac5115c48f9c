//! Sharing of a GPU in the trace of the emulated driver: background jobs wait as the policy
//! requires, and graphs keep the priorities of their jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::time::Duration;

use cuda_emulator::{Emulator, KernelRun, Setting};
use deeppool::data::Dataset;
use deeppool::program::{LowerOptions, LoweredTraining, Op, Placement, lower_training};
use deeppool::train::{BackgroundConfig, EmulatedTimes, Length, TrainConfig, train_on_gpus};
use gpu_mux::Policy;
use layer_graph::{LayerGraph, LayerKind, Linear, Shape};

use crate::emulated::on_emulated_gpus;
use crate::gpu_order::network;

const GPUS: usize = 2;
const BATCH: usize = 8;

/// The highest priority of a stream of an emulated device.
const HIGH: i32 = -5;
/// The lowest priority of a stream of an emulated device.
const LOW: i32 = 0;

/// Duration of each step of the foreground and of the background job.
const STEP: Duration = Duration::from_micros(20);
/// Duration of a collective, which leaves the foreground idle for many background steps.
const COLLECTIVE: Duration = Duration::from_micros(1500);

fn background_network() -> LayerGraph {
    let mut net = LayerGraph::new("background", Shape::features(4)).unwrap();
    let mut last = net.input();
    for (name, kind) in
        [("a", Linear::new(6).into()), ("b", LayerKind::GeluTanh), ("c", Linear::new(3).into())]
    {
        last = net.add(name, kind, [last]).unwrap();
    }
    net.add("loss", LayerKind::CROSS_ENTROPY, [last]).unwrap();
    net
}

/// Returns the kernels of a data-parallel run with a background job.
fn kernels(emulator: &Emulator, policy: Policy) -> Vec<KernelRun> {
    emulator.reset();
    emulator.set(Setting::Devices, i64::try_from(GPUS).unwrap());
    let (net, beside) = (network(), background_network());
    let lowering = LowerOptions::default().with_overlap_all_reduce(false);
    let everywhere = Placement::first_ranks(&net, GPUS, &vec![GPUS; net.len() - 1]).unwrap();
    let times = |net: &LayerGraph, placement: &Placement, batch| -> Vec<Vec<Duration>> {
        let program = lower_training(net, placement, batch, &lowering).unwrap();
        let time = |op: &Op| if matches!(op, Op::Collective(_)) { COLLECTIVE } else { STEP };
        program.ranks.iter().map(|rank| rank.steps.iter().map(|step| time(&step.op)).collect()).collect()
    };
    let background = times(&beside, &Placement::single(&beside).unwrap(), 1).remove(0);
    let times =
        EmulatedTimes { training: vec![times(&net, &everywhere, BATCH)], background: vec![background] };
    let [data, other_data] = [&net, &beside].map(|net| Dataset::synthetic_for(net, 64, 0).unwrap());
    let training = LoweredTraining::new(&net, everywhere, BATCH, lowering);
    let config = TrainConfig::new(&data, &training)
        .with_length(Length::Iterations(8))
        .with_policy(policy)
        .with_emulated_times(Some(&times))
        .with_background(Some(BackgroundConfig::new(&beside, &other_data, 1)));
    train_on_gpus(&config, Duration::from_secs(60), &|_| {}).unwrap();
    emulator.kernels()
}

/// A launch: its device, and the time at which it was enqueued.
type Launch = (usize, Duration);

/// Returns all launches of the background, and those of them during foreground computation, which
/// is between the start and the end of a tasklet. Streams are recognised by their kernels: both
/// compute streams run a loss, and only that of the foreground runs convolutions.
fn background_launches(kernels: &[KernelRun]) -> (BTreeSet<Launch>, BTreeSet<Launch>) {
    let streams_with = |part: &str| -> BTreeSet<&str> {
        kernels
            .iter()
            .filter(|kernel| kernel.name.contains(part))
            .map(|kernel| kernel.stream.as_str())
            .collect()
    };
    let foreground = streams_with("convolution");
    let background = &streams_with("cross_entropy") - &foreground;
    let mut tasklets: BTreeMap<(&str, Launch), (Duration, Duration)> = BTreeMap::new();
    for KernelRun { started, ended, enqueued, device, stream, .. } in kernels {
        let (first, last) = tasklets.entry((stream, (*device, *enqueued))).or_insert((*started, *ended));
        (*first, *last) = ((*first).min(*started), (*last).max(*ended));
    }
    let of = |streams: &BTreeSet<&str>| -> Vec<(Launch, Duration, Duration)> {
        let own = tasklets.iter().filter(|((stream, _), _)| streams.contains(stream));
        own.map(|((_, launch), (first, last))| (*launch, *first, *last)).collect()
    };
    let computing = of(&foreground);
    let beside = |&(device, at): &Launch| {
        computing.iter().any(|&((other, _), first, last)| other == device && first < at && at < last)
    };
    let launches: BTreeSet<Launch> = of(&background).into_iter().map(|(launch, ..)| launch).collect();
    let found = launches.iter().filter(|launch| beside(launch)).copied().collect();
    (launches, found)
}

#[test]
fn background_is_not_launched_while_the_foreground_computes() {
    on_emulated_gpus(
        "gpu_sharing::background_is_not_launched_while_the_foreground_computes",
        GPUS,
        |emulator| {
            // Without graphs, launch-ahead and priorities, background is launched while the
            // foreground computes.
            let alike = Policy {
                captured_graphs: false,
                stream_priority: false,
                background_piece: None,
                foreground_ahead: NonZeroUsize::MIN,
                foreground_ahead_time: Duration::ZERO,
                idle_periods: None,
                ..Policy::default()
            };
            for (beside, policy) in [
                (false, Policy::default()),
                (false, alike),
                (true, Policy { background_beside_compute: true, ..alike }),
            ] {
                let (launches, found) = background_launches(&kernels(emulator, policy));
                println!(
                    "{} of {} launches beside compute, which is allowed: {beside}",
                    found.len(),
                    launches.len()
                );
                assert!(launches.len() > 20);
                assert_eq!(!found.is_empty(), beside, "{found:?}");
            }
        },
    );
}

#[test]
fn graph_nodes_have_the_priorities_of_their_jobs() {
    on_emulated_gpus("gpu_sharing::graph_nodes_have_the_priorities_of_their_jobs", GPUS, |emulator| {
        for (stream_priority, expected) in [(true, vec![HIGH, LOW]), (false, vec![LOW])] {
            let kernels =
                kernels(emulator, Policy { stream_priority, idle_periods: None, ..Policy::default() });
            for device in 0..GPUS {
                let of_graphs = kernels.iter().filter(|kernel| kernel.in_graph && kernel.device == device);
                let priorities: BTreeSet<_> = of_graphs.map(|kernel| kernel.priority).collect();
                assert_eq!(priorities.into_iter().collect::<Vec<_>>(), expected);
            }
            // A stream has the kernels of one job, first individually and then in graphs.
            let mut streams: BTreeMap<&str, BTreeSet<(bool, i32)>> = BTreeMap::new();
            for KernelRun { stream, in_graph, priority, .. } in &kernels {
                streams.entry(stream).or_default().insert((*in_graph, *priority));
            }
            let captured: Vec<_> =
                streams.values().filter(|found| found.iter().any(|(graph, _)| *graph)).collect();
            assert_eq!(captured.len(), 2 * GPUS, "{streams:?}");
            for found in captured {
                let priorities: BTreeSet<_> = found.iter().map(|(_, priority)| priority).collect();
                assert_eq!((found.len(), priorities.len()), (2, 1), "{streams:?}");
            }
        }
    });
}
