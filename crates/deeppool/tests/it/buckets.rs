//! Buckets: a collective of a program is one operation of the communicator for all of its buffers.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use collectives::{
    Communicator, Group, HostBuffer, Redistribution, RedistributionBuffers, ReduceOp, ThreadCommunicator,
    ThreadWorld,
};
use deeppool::Error;
use deeppool::gpu_mux::{JobState, PolledJob};
use deeppool::program::{
    BatchPart, BufferId, CollectiveOp, LowerOptions, Op, Placement, Program, RankProgram, lower_training,
};
use deeppool::runtime::{BatchSource, Cpu, Iterations, LoadedProgram, RankDevice, RankState};
use layer_engine::{CpuEngine, LaunchContext};
use layer_graph::{LayerGraph, zoo};

type Buffer = HostBuffer<f32>;
type Exchange = <ThreadCommunicator as Communicator<f32>>::ExchangeRequest;

/// A communicator that records the length of every reduction.
#[derive(Clone)]
struct RecordingCommunicator {
    ranks: ThreadCommunicator,
    reduced: Arc<Mutex<Vec<usize>>>,
}

impl Group for RecordingCommunicator {
    type Queue = ();
    type BarrierRequest = <ThreadCommunicator as Group>::BarrierRequest;

    fn rank(&self) -> usize {
        self.ranks.rank()
    }

    fn size(&self) -> usize {
        self.ranks.size()
    }

    fn split(&self, color: Option<u32>, key: i32) -> collectives::Result<Option<Self>> {
        let ranks = self.ranks.split(color, key)?;
        Ok(ranks.map(|ranks| Self { ranks, ..self.clone() }))
    }

    fn group(&self, ranks: &[usize]) -> collectives::Result<Self> {
        Ok(Self { ranks: self.ranks.group(ranks)?, ..self.clone() })
    }

    fn start_barrier(&self, queue: &mut ()) -> collectives::Result<Self::BarrierRequest> {
        self.ranks.start_barrier(queue)
    }
}

impl Communicator<f32> for RecordingCommunicator {
    type Buffer = Buffer;
    type Request = <ThreadCommunicator as Communicator<f32>>::Request;
    type ExchangeRequest = Exchange;
    type RedistributionRequest = <ThreadCommunicator as Communicator<f32>>::RedistributionRequest;

    fn start_all_reduce(
        &self,
        buffer: Buffer,
        op: ReduceOp,
        queue: &mut (),
    ) -> collectives::Result<Self::Request> {
        self.reduced.lock().unwrap().push(buffer.len());
        self.ranks.start_all_reduce(buffer, op, queue)
    }

    fn start_broadcast(
        &self,
        buffer: Buffer,
        root: usize,
        queue: &mut (),
    ) -> collectives::Result<Self::Request> {
        self.ranks.start_broadcast(buffer, root, queue)
    }

    fn start_all_gather(
        &self,
        send: Buffer,
        receive: Buffer,
        queue: &mut (),
    ) -> collectives::Result<Exchange> {
        self.ranks.start_all_gather(send, receive, queue)
    }

    fn start_reduce_scatter(
        &self,
        send: Buffer,
        receive: Buffer,
        op: ReduceOp,
        queue: &mut (),
    ) -> collectives::Result<Exchange> {
        self.ranks.start_reduce_scatter(send, receive, op, queue)
    }

    fn start_all_to_all_v(
        &self,
        send: Buffer,
        send_counts: &[usize],
        receive: Buffer,
        receive_counts: &[usize],
        queue: &mut (),
    ) -> collectives::Result<Exchange> {
        self.ranks.start_all_to_all_v(send, send_counts, receive, receive_counts, queue)
    }

    fn start_send(
        &self,
        buffer: Buffer,
        to: usize,
        tag: u32,
        queue: &mut (),
    ) -> collectives::Result<Self::Request> {
        self.ranks.start_send(buffer, to, tag, queue)
    }

    fn start_receive(
        &self,
        buffer: Buffer,
        from: usize,
        tag: u32,
        queue: &mut (),
    ) -> collectives::Result<Self::Request> {
        self.ranks.start_receive(buffer, from, tag, queue)
    }

    fn start_redistribution(
        &self,
        redistribution: &Arc<Redistribution>,
        buffers: RedistributionBuffers<Buffer>,
        item_len: usize,
        queue: &mut (),
    ) -> collectives::Result<Self::RedistributionRequest> {
        self.ranks.start_redistribution(redistribution, buffers, item_len, queue)
    }
}

/// Samples and labels with the value of their position.
struct PositionSource;

impl BatchSource for PositionSource {
    fn load(
        &mut self,
        _: u64,
        part: BatchPart,
        samples: Range<usize>,
        elements: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<(), Error> {
        for sample in samples {
            match part {
                BatchPart::Features => {
                    out.extend(elements.clone().map(|place| ((sample + place) % 7) as f32 * 0.1));
                }
                BatchPart::Labels => out.push((sample % 10) as f32),
            }
        }
        Ok(())
    }
}

const ITERATIONS: u64 = 3;

/// Runs a rank. Returns its state and the lengths of its reductions.
fn run(network: &LayerGraph, program: &Program, ranks: ThreadCommunicator) -> (Vec<Vec<f32>>, Vec<usize>) {
    let rank = ranks.rank();
    let communicator = RecordingCommunicator { ranks, reduced: Arc::default() };
    let mut device = RankDevice::<Cpu<RecordingCommunicator>>::new(CpuEngine::new()).unwrap();
    let mut loaded = LoadedProgram::new(&mut device, Some(&communicator), network, program, rank).unwrap();
    let mut state = RankState::new(&mut device, network, &program.ranks[rank], 0).unwrap();
    let context = LaunchContext { seed: 0, iteration: 0, learning_rate: 0.1 };
    let mut job =
        Iterations::new(&mut device, &mut loaded, &mut state, PositionSource, (), context, ITERATIONS);
    loop {
        match job.poll().unwrap() {
            JobState::Ready(_) => job.run().unwrap(),
            JobState::Finished => break,
            _ => std::thread::yield_now(),
        }
    }
    let own = &program.ranks[rank];
    let learned = (0..own.state_buffers)
        .map(|buffer| state.read(&mut device, BufferId(buffer), own.buffers[buffer].elements).unwrap());
    let reduced = communicator.reduced.lock().unwrap().clone();
    (learned.collect(), reduced)
}

/// Returns the lengths of a rank's reductions in an iteration, by its program: each is that of all
/// its buffers, with at most 3 elements between two of them.
fn expected_reductions(program: &Program, rank: &RankProgram) -> Vec<usize> {
    let lengths = rank.steps.iter().filter_map(|step| match step.op {
        Op::Collective(id) => match program.collectives[id.0].op {
            CollectiveOp::AllReduce { elements } => {
                let [first, last] = [step.writes.first()?, step.writes.last()?].map(|id| &rank.buffers[id.0]);
                let length = last.offset? + last.elements - first.offset?;
                assert!((elements..elements + 4 * step.writes.len()).contains(&length));
                Some(length)
            }
            _ => None,
        },
        _ => None,
    });
    lengths.collect()
}

#[test]
fn bucket_reduction_is_bit_identical_to_separate_reductions() {
    let network = zoo::model("digits-cnn").unwrap();
    let layers = network.len() - 1;
    let gpus: Vec<usize> = (0..layers).map(|layer| if layer < layers / 2 { 3 } else { 2 }).collect();
    let placement = Placement::first_ranks(&network, 3, &gpus).unwrap();
    let learned = [1, 25 << 20].map(|bucket_bytes| {
        let options = LowerOptions::default().with_bucket_bytes(bucket_bytes);
        let program = lower_training(&network, &placement, 10, &options).unwrap();
        let in_buckets = program.ranks[0]
            .steps
            .iter()
            .any(|step| matches!(step.op, Op::Collective(_)) && step.writes.len() > 1);
        assert_eq!(in_buckets, bucket_bytes > 1);
        let ranks = ThreadWorld::new(3).run(|communicator| run(&network, &program, communicator));
        let learned = ranks.into_iter().zip(&program.ranks).map(|((learned, reduced), rank)| {
            assert_eq!(reduced, expected_reductions(&program, rank).repeat(ITERATIONS as usize));
            learned
        });
        learned.collect::<Vec<_>>()
    });
    assert_eq!(learned[0], learned[1]);
}

/// The gradients of a bucket are reduced where the backward steps wrote them.
#[cfg(feature = "cuda")]
#[test]
fn an_iteration_on_2_gpus_launches_the_kernels_of_one() {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use cuda_emulator::Setting;
    use deeppool::data::Dataset;
    use deeppool::program::LoweredTraining;
    use deeppool::train::{Length, TrainConfig, train_on_gpus};

    let name = "buckets::an_iteration_on_2_gpus_launches_the_kernels_of_one";
    crate::emulated::on_emulated_gpus(name, 2, |emulator| {
        let network = zoo::model("digits-cnn").unwrap();
        let data = Dataset::digits().unwrap();
        let [one, two] = [1, 2].map(|gpus: usize| {
            emulator.reset();
            emulator.set(Setting::Devices, 2);
            let lists = vec![(0..gpus).collect::<Vec<_>>(); network.len() - 1];
            let placement = Placement::new(&network, gpus, lists).unwrap();
            // All gradients are in one bucket.
            let options = LowerOptions::default().with_overlap_all_reduce(false);
            let training = LoweredTraining::new(&network, placement, 4 * gpus, options);
            let config = TrainConfig::new(&data, &training).with_length(Length::Iterations(4));
            train_on_gpus(&config, Duration::from_secs(60), &|_| {}).unwrap();
            let mut launches: BTreeMap<String, usize> = BTreeMap::new();
            for kernel in emulator.kernels().into_iter().filter(|kernel| kernel.device == 0) {
                *launches.entry(kernel.name).or_default() += 1;
            }
            launches
        });
        println!("{one:#?}");
        assert!(one.values().sum::<usize>() > 40);
        assert_eq!(one, two);
    });
}
