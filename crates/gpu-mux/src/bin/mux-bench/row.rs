//! A row from what a device has measured.

use std::time::Duration;

use anyhow::Context;
use gpu_mux::MuxRow;

/// Times of iterations in microseconds, in any order.
pub(crate) struct Times(Vec<f64>);

impl Times {
    /// An error without any.
    pub(crate) fn of(times: &[Duration]) -> anyhow::Result<Self> {
        let mut times_us: Vec<f64> = times.iter().copied().map(micros).collect();
        times_us.sort_by(f64::total_cmp);
        (!times_us.is_empty()).then_some(Self(times_us)).context("no iteration was measured")
    }

    pub(crate) fn median(&self) -> f64 {
        self.percentile(0.5)
    }

    pub(crate) fn p99(&self) -> f64 {
        self.percentile(0.99)
    }

    /// These and others.
    #[cfg(feature = "cuda")]
    pub(crate) fn and(&self, others: &Self) -> Self {
        let mut all = [self.0.as_slice(), &others.0].concat();
        all.sort_by(f64::total_cmp);
        Self(all)
    }

    /// With straight lines between the samples.
    fn percentile(&self, fraction: f64) -> f64 {
        let place = fraction * (self.0.len() - 1) as f64;
        let (below, above) = (self.0[place.floor() as usize], self.0[place.ceil() as usize]);
        below + (above - below) * place.fract()
    }
}

/// What a device tells of the foreground's time beside the background, by iteration, and of the background.
pub(crate) struct Collocated {
    pub(crate) foreground: Times,
    pub(crate) iterations: usize,
    /// Compute-idle time of all iterations, and the background's part of it.
    pub(crate) idle_us: f64,
    pub(crate) background_in_idle_us: f64,
    /// The part of it in which communication waits for its partners, where the device can tell.
    pub(crate) waiting_us: Option<f64>,
    /// The time and the background's part of transfers, where the device can tell.
    pub(crate) transfer_us: Option<(f64, f64)>,
    pub(crate) background_samples_per_s: f64,
    pub(crate) background_pieces: u64,
    pub(crate) over_long_pieces: u64,
}

/// Both jobs alone.
pub(crate) struct Alone {
    pub(crate) foreground: Times,
    /// From before to after the row, where it was measured twice.
    pub(crate) drift: Option<f64>,
    pub(crate) background_samples_per_s: f64,
}

pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

pub(crate) fn row(policy: &str, modelled: bool, alone: &Alone, both: &Collocated) -> MuxRow {
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let iterations = both.iterations as f64;
    MuxRow {
        policy: policy.to_owned(),
        modelled,
        iterations: both.iterations,
        foreground_alone_us: alone.foreground.median(),
        foreground_alone_p99_us: alone.foreground.p99(),
        foreground_alone_drift: alone.drift,
        foreground_us: both.foreground.median(),
        foreground_p99_us: both.foreground.p99(),
        foreground_slowdown: both.foreground.median() / alone.foreground.median(),
        foreground_slowdown_p99: both.foreground.p99() / alone.foreground.p99(),
        idle_us: both.idle_us / iterations,
        waiting_us: both.waiting_us.map(|time| time / iterations),
        background_share_of_idle: share(both.background_in_idle_us, both.idle_us),
        transfer_us: both.transfer_us.map(|(time, _)| time / iterations),
        background_share_of_transfer: both.transfer_us.map(|(time, background)| share(background, time)),
        background_alone_samples_per_s: alone.background_samples_per_s,
        background_samples_per_s: both.background_samples_per_s,
        background_pieces: both.background_pieces,
        over_long_pieces: both.over_long_pieces,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_between_samples() {
        let times = Times::of(&[3, 1, 2].map(Duration::from_micros)).unwrap();
        assert!((times.median() - 2.0).abs() < 1e-12 && (times.p99() - 2.98).abs() < 1e-12);
        assert!(Times::of(&[]).is_err());
    }
}
