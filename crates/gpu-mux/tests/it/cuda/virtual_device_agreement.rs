//! The same kernels under the same policies take the same time on the emulated driver and on the
//! virtual device.
//!
//! Both run in virtual time with independent models: the emulated device runs one kernel at a time,
//! the virtual one shares multiprocessors between kernels. For kernels that use the whole device,
//! as these do, the results agree. The hosts differ: on the emulated driver, the host sees an end
//! at its next query, up to some microseconds later.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use cuda::TimingRuns;
use cuda_emulator::{Setting, VirtualClock};
use gpu_mux::cuda::{CudaDevice, DeviceOptions, HostClock, Prepared};
use gpu_mux::{
    Device, DeviceParameters, Driver, DriverError, Finished, Host, JobId, Kernel, Lane, Policy, RunOutcome,
    Tasklet, VirtualDevice, VirtualWork,
};

use super::kernels::{kernels, launch_all};
use super::on_emulated_device;

/// Period of the foreground's iterations, and their number.
const PERIOD: Duration = Duration::from_micros(700);
const PERIODS: u32 = 40;
const FOREGROUND_KERNELS: [&str; 3] = ["a_60us", "b_40us", "c_100us"];
const FOREGROUND: [u64; 3] = [60, 40, 100];
const BACKGROUND_KERNELS: usize = 5;
const BACKGROUND: Duration = Duration::from_micros(70);

/// The emulated driver's clock, in which a completion query takes half a microsecond.
#[derive(Debug)]
struct EmulatedClock(VirtualClock);

impl HostClock for EmulatedClock {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn sleep(&self, time: Duration) {
        self.0.advance(time);
    }

    fn yield_now(&self) {}
}

/// A periodic foreground beside a background that always has work.
struct Jobs<W> {
    foreground: (W, Duration),
    /// The pieces of a round: work, estimate and number of kernels.
    background: Vec<(W, Duration, usize)>,
    /// Iterations that are due, iterations that were offered, and the time from due to end.
    due: u64,
    offered: u64,
    latencies: Vec<Duration>,
    /// Pieces offered, pieces ended, and their kernels.
    pieces_offered: u64,
    pieces: u64,
    kernels: usize,
    begin: Duration,
}

impl<W: Clone, D: Device<Work = W>> Host<D> for Jobs<W> {
    type Error = DriverError<D::Error>;

    fn offer(&mut self) -> Option<(Tasklet, W)> {
        if self.offered < self.due {
            self.offered += 1;
            let (work, estimate) = &self.foreground;
            return Some((
                Tasklet::new(JobId::FOREGROUND, self.offered - 1).estimated(*estimate),
                work.clone(),
            ));
        }
        if self.pieces_offered - self.pieces >= 8 {
            return None;
        }
        let (work, estimate, _) = &self.background[self.pieces_offered as usize % self.background.len()];
        self.pieces_offered += 1;
        Some((Tasklet::new(JobId::BACKGROUND, self.pieces_offered - 1).estimated(*estimate), work.clone()))
    }

    fn finish(&mut self, finished: Finished, driver: &mut Driver<D>) -> Result<(), Self::Error> {
        if finished.tasklet.job.is_foreground() {
            let due = self.begin + PERIOD * u32::try_from(finished.tasklet.number).unwrap();
            self.latencies.push(driver.device().now().saturating_sub(due));
        } else {
            self.pieces += 1;
            self.kernels += self.background[finished.tasklet.number as usize % self.background.len()].2;
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        false
    }
}

/// Returns the average latency of an iteration in us, and the number of background kernels that
/// ended in a period.
fn measure<W: Clone, D: Device<Work = W>>(
    policy: Policy,
    device: D,
    foreground: (W, Duration),
    background: Vec<(W, Duration, usize)>,
) -> Result<[f64; 2], DriverError<D::Error>> {
    let mut driver = Driver::new(policy, device);
    let begin = driver.device().now();
    let mut jobs = Jobs {
        foreground,
        background,
        due: 0,
        offered: 0,
        latencies: Vec::new(),
        pieces_offered: 0,
        pieces: 0,
        kernels: 0,
        begin,
    };
    for period in 1..=PERIODS {
        jobs.due += 1;
        assert_eq!(driver.run(&mut jobs, Some(begin + PERIOD * period))?, RunOutcome::TimeLimit);
    }
    let latency: Duration = jobs.latencies.iter().sum();
    Ok([latency.as_secs_f64() * 1e6 / jobs.latencies.len() as f64, jobs.kernels as f64 / f64::from(PERIODS)])
}

#[test]
fn whole_device_kernels_take_the_same_on_the_emulated_driver_and_the_virtual_device() {
    for (name, policy) in Policy::presets() {
        on_emulated_device(|emulator, context| {
            emulator.set(Setting::QueryNs, 500);
            let mut device = CudaDevice::new(context, policy, DeviceOptions::default())?;
            device = device.with_host_clock(Arc::new(EmulatedClock(emulator.clock())));
            let once = TimingRuns::without_side_effects(NonZeroUsize::MIN);
            let layers = kernels(context, &FOREGROUND_KERNELS)?;
            let foreground =
                device.prepare_foreground(Lane::Compute, once, move |stream| launch_all(&layers, stream))?;
            let layers = kernels(context, &["train_70us"; BACKGROUND_KERNELS])?;
            let background = device
                .prepare_background(JobId::BACKGROUND, once, move |stream| launch_all(&layers, stream))?;

            let kernel = |time| Kernel::new(time, 1.0, 0.0).unwrap();
            let work = |kernels: Vec<Kernel>| {
                if policy.captured_graphs {
                    VirtualWork::graph(kernels)
                } else {
                    VirtualWork::kernels(kernels)
                }
            };
            let virtual_foreground = work(FOREGROUND.map(|us| kernel(Duration::from_micros(us))).to_vec());
            // The driver has cut between kernels, all of which take the same time.
            let kernels_of =
                |piece: &Prepared| (piece.estimate.as_secs_f64() / BACKGROUND.as_secs_f64()).round();
            let all: f64 = background.pieces.iter().map(kernels_of).sum();
            assert_eq!(all as usize, BACKGROUND_KERNELS);
            let virtual_background = background.pieces.iter().map(|piece| {
                let kernels = kernels_of(piece) as usize;
                (work(vec![kernel(BACKGROUND); kernels]), piece.estimate, kernels)
            });
            let virtual_device = VirtualDevice::with_priorities(
                DeviceParameters::a100().without_overheads(),
                policy.stream_priority,
            );
            let modelled = measure(
                policy,
                virtual_device.unwrap(),
                (virtual_foreground, foreground.estimate),
                virtual_background.collect(),
            );
            let modelled = modelled.unwrap();
            let pieces = background.pieces.iter();
            let pieces = pieces.map(|piece| (piece.work.clone(), piece.estimate, kernels_of(piece) as usize));
            let emulated =
                measure(policy, device, (foreground.work, foreground.estimate), pieces.collect()).unwrap();
            println!(
                "{name}: us an iteration, and background kernels: {emulated:.2?}, virtual {modelled:.2?}"
            );
            // A policy that learns idle periods depends on when its host sees ends, which differs;
            // its amount of background is therefore not compared.
            let compared = if policy.idle_periods.is_some() { 1 } else { 2 };
            for (emulated, modelled) in emulated.into_iter().zip(modelled).take(compared) {
                assert!((emulated / modelled - 1.0).abs() < 0.05, "{name}: {emulated} and {modelled}");
            }
            Ok(())
        });
    }
}
