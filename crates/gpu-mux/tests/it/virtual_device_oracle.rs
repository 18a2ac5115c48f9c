//! The virtual device against a simulation in steps of one nanosecond.

use std::num::NonZeroU32;
use std::time::Duration;

use gpu_mux::{Device, DeviceParameters, JobId, Kernel, Tasklet, VirtualDevice, VirtualWork};
use proptest::prelude::*;

const MULTIPROCESSORS: u32 = 12;
const GAP: u64 = 3;

/// A kernel: nanoseconds alone, multiprocessors wanted, tenths of the memory bandwidth, waves.
type Plain = (u64, u32, u32, u32);

/// Work in nanoseconds that is regarded as rounding. All sums here and in the device are more
/// exact.
const SAME: f64 = 1e-8;
/// Work in nanoseconds that is not rounding. The device's tolerance of 1e-6 ns, in work or time, is
/// between the two for every kernel here, because none is slowed more than 48 times.
const APART: f64 = 1e-5;

/// Returns the end time of each job's stream. The first job has priority, the kernels of the others
/// are served in the order in which they become ready, then in launch order.
///
/// An event between two nanoseconds happens at the later one. Returns `None` if an event is so
/// close to a nanosecond that rounding decides which one is the later, since the results may differ
/// from there on.
fn simulate_by_nanosecond(jobs: &[Vec<Plain>]) -> Option<Vec<u64>> {
    struct Stream<'a> {
        kernels: std::slice::Iter<'a, Plain>,
        /// The running kernel, its remaining work, and its multiprocessors.
        running: Option<(Plain, f64, u32)>,
        /// Number of its waves that have not ended.
        waves: u32,
        /// Whether a stream of higher precedence wants multiprocessors.
        yields: bool,
        idle_until: u64,
        /// Time at which the running kernel, or the next one, became ready.
        ready: u64,
        end: Option<u64>,
    }
    let mut streams: Vec<Stream<'_>> = jobs
        .iter()
        .map(|kernels| Stream {
            kernels: kernels.iter(),
            running: None,
            waves: 0,
            yields: false,
            idle_until: 0,
            ready: 0,
            end: None,
        })
        .collect();
    let mut now = 0;
    while streams.iter().any(|stream| stream.end.is_none()) {
        for stream in &mut streams {
            let Some(((ns, _, _, waves), left, given)) = &mut stream.running else { continue };
            let wave = *ns as f64 / f64::from(*waves);
            // A kernel that has stopped at the end of a wave has all of the next wave left.
            loop {
                let left_after = wave * f64::from(stream.waves - 1);
                let over = left_after - *left;
                if over.abs() > SAME && over.abs() < APART {
                    return None;
                }
                if stream.waves == 1 || over < -SAME {
                    break;
                }
                stream.waves -= 1;
                // If no stream waited for its multiprocessors, it has taken them again at once.
                if stream.yields || over <= SAME {
                    (*left, *given) = (left_after, 0);
                    break;
                }
            }
            if *left <= SAME {
                stream.running = None;
                stream.idle_until = now + GAP;
                stream.ready = stream.idle_until;
                if stream.kernels.len() == 0 {
                    stream.end = Some(now);
                }
            }
        }
        let mut precedence: Vec<usize> = (0..streams.len()).collect();
        precedence.sort_by_key(|&place| (place > 0, streams[place].ready, place));
        for &place in &precedence {
            let given: u32 =
                streams.iter().filter_map(|stream| stream.running).map(|running| running.2).sum();
            let free = MULTIPROCESSORS - given;
            let stream = &mut streams[place];
            if stream.running.is_none() && stream.idle_until <= now && free > 0 {
                stream.running = stream.kernels.next().map(|&kernel| (kernel, kernel.0 as f64, 0));
                stream.waves = stream.running.map_or(0, |(kernel, _, _)| kernel.3);
            }
            if let Some(((_, wanted, _, _), _, given)) = &mut stream.running {
                *given += (*wanted - *given).min(free);
            }
        }
        let is_short = |stream: &Stream<'_>| match stream.running {
            Some(((_, wanted, _, _), _, given)) => given < wanted,
            None => stream.idle_until <= now && stream.kernels.len() > 0,
        };
        let mut somebody_waits = false;
        for &place in &precedence {
            streams[place].yields = somebody_waits;
            somebody_waits |= is_short(&streams[place]);
        }
        let speed = |((_, wanted, memory, _), _, given): (Plain, f64, u32), slowdown: f64| {
            let memory = f64::from(memory) / 10.0;
            f64::from(given) / f64::from(wanted) / (1.0 - memory + memory * slowdown)
        };
        let used = |slowdown: f64| -> f64 {
            let running = streams.iter().filter_map(|stream| stream.running);
            running.map(|running| f64::from(running.0.2) / 10.0 * speed(running, slowdown)).sum()
        };
        let (mut low, mut high) = (1.0, 100.0);
        if used(low) > 1.0 {
            for _ in 0..60 {
                let middle = f64::midpoint(low, high);
                (low, high) = if used(middle) > 1.0 { (middle, high) } else { (low, middle) };
            }
        }
        for stream in &mut streams {
            if let Some(running) = stream.running {
                stream.running = Some((running.0, running.1 - speed(running, low), running.2));
            }
        }
        now += 1;
    }
    Some(streams.iter().filter_map(|stream| stream.end).collect())
}

fn on_the_device(jobs: &[Vec<Plain>]) -> Vec<u64> {
    let parameters = DeviceParameters {
        multiprocessors: MULTIPROCESSORS,
        graph_node_gap: Duration::from_nanos(GAP),
        ..DeviceParameters::a100().without_overheads()
    };
    let mut device = VirtualDevice::new(parameters).unwrap();
    let id = |job: usize| if job == 0 { JobId::FOREGROUND } else { JobId::background(job as u32) };
    for (job, kernels) in jobs.iter().enumerate() {
        let kernels = kernels.iter().map(|&(ns, share, memory, waves)| {
            let share = f64::from(share) / f64::from(MULTIPROCESSORS);
            let kernel = Kernel::new(Duration::from_nanos(ns), share, f64::from(memory) / 10.0).unwrap();
            kernel.in_waves(NonZeroU32::new(waves).unwrap())
        });
        device.launch(&Tasklet::new(id(job), 0), VirtualWork::graph(kernels.collect::<Vec<_>>())).unwrap();
    }
    let mut ends = vec![0; jobs.len()];
    while device.next_event().is_some() {
        device.wait(None).unwrap();
        while let Some(finished) = device.finished().unwrap() {
            let job = (0..jobs.len()).find(|&job| id(job) == finished.tasklet.job).unwrap();
            ends[job] = device.now().as_nanos() as u64;
        }
    }
    ends
}

fn job() -> impl Strategy<Value = Vec<Plain>> {
    prop::collection::vec((1..600_u64, 1..=MULTIPROCESSORS, 0..=10_u32, 1..8_u32), 1..5)
}

fn cases() -> u32 {
    std::env::var("GPU_MUX_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(256)
}

/// Two waves of the last kernel end within one nanosecond, and the second of them is its last wave.
///
/// It begins at 477 on 4 of the 8 multiprocessors that it wants: its waves end at 477.8, 478.6,
/// 479.4, 480.2 and 481. At 480 the second kernel of the job with priority arrives and finds no
/// free multiprocessor. At 480.2, rounded to 481, it gets those 4 for 257 ns. The fifth wave waits
/// until the second job's 8 are free at 722, and takes 0.4 ns.
#[test]
fn two_waves_can_end_within_one_nanosecond() {
    let jobs = [vec![(477, 4, 0, 1), (257, 4, 0, 1)], vec![(722, 8, 0, 1)], vec![(2, 8, 0, 5)]];
    assert_eq!(on_the_device(&jobs), [738, 722, 723]);
    assert_eq!(simulate_by_nanosecond(&jobs), Some(vec![738, 722, 723]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn stream_ends_match_the_nanosecond_simulation(jobs in prop::collection::vec(job(), 1..5)) {
        let expected = simulate_by_nanosecond(&jobs);
        prop_assume!(expected.is_some(), "rounding decides the time of an event");
        prop_assert_eq!(Some(on_the_device(&jobs)), expected);
    }

    #[test]
    fn alone_a_stream_takes_its_kernels_and_their_gaps(job in job()) {
        let sum: u64 = job.iter().map(|kernel| kernel.0).sum();
        prop_assert_eq!(on_the_device(std::slice::from_ref(&job)), [sum + GAP * (job.len() as u64 - 1)]);
    }
}
