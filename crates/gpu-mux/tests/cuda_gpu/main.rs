//! The CUDA driver on a real device. Without one these tests print `SKIPPED`; with `GPU_REQUIRED=1`
//! they fail.
//!
//! It is a separate program because it opens CUDA's driver by name: in the process of the tests on
//! an emulated driver, the loader would return that one.
#![allow(unsafe_code)]

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use cuda::{
    Buffer, Context, Error, Kernel, LaunchShape, MergeLimits, MergedGraph, Module, Priority, Result, Stream,
    TimingRuns,
};
use gpu_mux::cuda::{CudaDevice, DeviceOptions, Work};
use gpu_mux::{Driver, JobId, Lane, Policy, Tasklet};

/// Each test starts by clearing its memory.
const RUNS: TimingRuns = TimingRuns::without_side_effects(NonZeroUsize::MIN.saturating_add(2));

/// Runs a test on the first device.
fn on_gpu(test: impl FnOnce(&Context) -> Result<()>) {
    let required = std::env::var_os("GPU_REQUIRED").is_some_and(|value| value == "1");
    let context = match Context::open(0) {
        Ok(context) => context,
        Err(error) if required => panic!("GPU_REQUIRED is set: {error}"),
        Err(error) => return println!("SKIPPED: no CUDA device: {error}"),
    };
    println!("{}: {:?}", context.device_name().unwrap(), context.capabilities().unwrap());
    let tested = test(&context);
    tested.and(context.close()).unwrap();
}

/// A word on the device, and a kernel whose steps change it.
struct Steps {
    step: Kernel,
    word: Buffer<u64>,
}

impl Steps {
    fn new(context: &Context) -> Result<Arc<Self>> {
        let step = Module::load(context, include_str!("steps.ptx"))?.kernel("step")?;
        Ok(Arc::new(Self { step, word: Buffer::zeros(context, 1)? }))
    }

    fn step(&self, stream: &Stream, number: u64, time: Duration) -> Result<()> {
        let time = u64::try_from(time.as_nanos()).unwrap();
        let arguments = [(&self.word).into(), number.into(), time.into()];
        // SAFETY: these are its arguments.
        unsafe { self.step.launch(stream, LaunchShape::linear(1, 1), &arguments) }
    }

    /// Enqueues steps 1 to `count`.
    fn steps(&self, stream: &Stream, count: u64, time: Duration) -> Result<()> {
        (1..=count).try_for_each(|number| self.step(stream, number, time))
    }

    /// Returns the word and resets it to 0.
    fn take(&self, stream: &Stream) -> Result<u64> {
        let mut word = [0];
        self.word.download(stream, &mut word)?;
        self.word.upload(stream, &[0])?;
        Ok(word[0])
    }
}

/// Returns the word after steps 1 to `count`.
fn after(count: u64) -> u64 {
    (1..=count).fold(0, |word: u64, number| word.wrapping_mul(31).wrapping_add(number))
}

fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

#[test]
fn the_pieces_of_a_graph_do_what_the_graph_does() {
    on_gpu(|context| {
        let stream = Stream::new(context, Priority::Background)?;
        let steps = Steps::new(context)?;
        let graph = stream.capture(|stream| steps.steps(stream, 20, us(50)))?;
        graph.set_priority(Priority::Background)?;
        let whole = graph.instantiate()?;
        steps.take(&stream)?;
        whole.launch(&stream)?;
        assert_eq!(steps.take(&stream)?, after(20));
        for budget in [10, 200, 5000] {
            let cut = graph.cut(&stream, us(budget), RUNS)?;
            println!("{budget} us: {:?}", cut.pieces.iter().map(|piece| piece.took).collect::<Vec<_>>());
            steps.take(&stream)?;
            cut.pieces.iter().try_for_each(|piece| piece.executable.launch(&stream))?;
            assert_eq!(steps.take(&stream)?, after(20));
            assert_eq!(cut.oversized.is_empty(), budget > 10);
        }
        Ok(())
    });
}

#[test]
fn merged_graphs_do_what_the_graphs_do() {
    on_gpu(|context| {
        let stream = Stream::new(context, Priority::Foreground)?;
        let steps = Steps::new(context)?;
        let graphs =
            (1..=12).map(|number| Ok((stream.capture(|stream| steps.step(stream, number, us(20)))?, us(20))));
        let merged =
            MergedGraph::merge_consecutive(&graphs.collect::<Result<Vec<_>>>()?, MergeLimits::default())?;
        assert_eq!(merged.len(), 2);
        steps.take(&stream)?;
        merged.iter().try_for_each(|merged| merged.executable.launch(&stream))?;
        assert_eq!(steps.take(&stream)?, after(12));
        Ok(())
    });
}

/// Runs a foreground and a background with all options of the device.
fn share(context: &Context, options: DeviceOptions) -> Result<()> {
    let policy = Policy::default();
    let (foreground, background) = (Steps::new(context)?, Steps::new(context)?);
    let mut device = CudaDevice::new(context, policy, options)?;
    let layer = Arc::clone(&foreground);
    let layer =
        device.prepare_foreground(Lane::Compute, RUNS, move |stream| layer.step(stream, 1, us(100)))?;
    let receive = Arc::clone(&foreground);
    let receive = Work::enqueue(move |stream| receive.step(stream, 2, us(300)));
    let round = Arc::clone(&background);
    let round =
        device.prepare_background(JobId::BACKGROUND, RUNS, move |stream| round.steps(stream, 6, us(100)))?;
    let stream = Stream::new(context, Priority::Background)?;
    foreground.take(&stream)?;
    background.take(&stream)?;

    let mut driver = Driver::new(policy, device);
    for number in 0..20 {
        let received = Tasklet::new(JobId::FOREGROUND, 2 * number).receiving();
        let tasklet =
            Tasklet::new(JobId::FOREGROUND, 2 * number + 1).after(received.id).estimated(layer.estimate);
        driver
            .offer(
                received.after(
                    number
                        .checked_sub(1)
                        .map(|before| gpu_mux::TaskletId { number: 2 * before + 1, ..received.id }),
                ),
                receive.clone(),
            )
            .unwrap();
        driver.offer(tasklet, layer.work.clone()).unwrap();
    }
    for (number, piece) in round.pieces.iter().enumerate() {
        let tasklet = Tasklet::new(JobId::BACKGROUND, number as u64).estimated(piece.estimate);
        driver.offer(tasklet, piece.work.clone()).unwrap();
    }
    let mut left = 40 + round.pieces.len();
    while left > 0 {
        match driver.poll().unwrap() {
            Some(_) => left -= 1,
            None => driver.wait(None).unwrap(),
        }
    }
    assert!(driver.background_failures().is_empty());
    let expected =
        (0..20).fold(0_u64, |word, _| word.wrapping_mul(31).wrapping_add(2).wrapping_mul(31).wrapping_add(1));
    assert_eq!((foreground.take(&stream)?, background.take(&stream)?), (expected, after(6)));
    Ok(())
}

#[test]
fn a_foreground_and_a_background_share_the_device() {
    on_gpu(|context| share(context, DeviceOptions::default()));
}

#[test]
fn a_gate_and_a_green_context_work_where_they_are_there() {
    on_gpu(|context| {
        let gate = DeviceOptions { gate: true, background_multiprocessors: None };
        let green = DeviceOptions { gate: false, background_multiprocessors: Some(16) };
        for options in [gate, green] {
            match share(context, options) {
                Err(Error::Unsupported { technique, reason }) => println!("SKIPPED: {technique}: {reason}"),
                shared => shared?,
            }
        }
        Ok(())
    });
}
