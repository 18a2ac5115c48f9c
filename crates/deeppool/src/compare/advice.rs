//! Advice on the way to share the GPUs.

use super::comparison::TOLERANCE;
use super::{Comparison, Envelope, Point, SharingMode};

/// Number of foreground speeds that are compared: `i / SPEED_COUNT` of the fastest speed, for `i`
/// from 1 to `SPEED_COUNT`.
const SPEED_COUNT: usize = 100;
/// The modes that share GPUs. Data parallelism is also a burst plan.
const SHARING: [SharingMode; 4] = [
    SharingMode::DataParallel,
    SharingMode::DataParallelCollocated,
    SharingMode::Burst,
    SharingMode::BurstCollocated,
];

/// The better mode at some speeds of the foreground.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Better {
    Sharing,
    Partition,
    Neither,
    /// No partition has a foreground of this speed.
    OnlySharing,
    /// Only a partition has a foreground of this speed.
    OnlyPartition,
}

/// A range of speeds of the foreground over which the same mode is better.
struct SpeedRange {
    better: Better,
    /// First speed of the range, in [`SPEED_COUNT`]ths of the fastest.
    first: usize,
    /// Last speed of the range, in the same unit.
    last: usize,
    /// The maximum factor by which it is better, and the speed of this maximum in the same unit.
    max: (f64, usize),
}

impl Comparison {
    /// Returns sentences that say which mode has the highest total throughput at each speed of the
    /// foreground, and by which factor: sharing GPUs (BP+Col, which includes the modes that share
    /// less) or a static partition. Modes may alternate in time. Differences below 1% do not count.
    #[must_use]
    pub fn advice(&self) -> String {
        let fastest = self.fastest_foreground();
        let partition = self.envelope(&[SharingMode::Partition]);
        let spans = self.spans(&self.sharing(), &partition);
        let mut sentences: Vec<String> = spans.iter().map(|span| self.sentence(span, fastest)).collect();
        if partition.fastest() <= 0.0 {
            sentences.push("The foreground has no room on any part of the GPUs by data parallelism.".into());
        } else if partition.fastest() < self.comparable_speed(1.0) {
            sentences.push(format!(
                "The fastest foreground is {:.2} times as fast as that of any partition.",
                fastest / partition.fastest()
            ));
        }
        sentences.join(" ")
    }

    /// Returns the envelope of the modes that share GPUs: data parallelism on all GPUs and burst
    /// plans, with and without background jobs on the same GPUs.
    #[must_use]
    pub fn sharing(&self) -> Envelope {
        self.envelope(&SHARING)
    }

    fn sentence(&self, span: &SpeedRange, fastest: f64) -> String {
        let part = |step: usize| step as f64 / SPEED_COUNT as f64;
        let speed = |step: usize| part(step) * fastest;
        let (first, last) = (span.first, span.last);
        let speeds = if first == last {
            format!("At {:.2} of the fastest foreground ({:.0} samples/s)", part(last), speed(last))
        } else {
            format!(
                "From {:.2} to {:.2} of the fastest foreground ({:.0} to {:.0} samples/s)",
                part(first),
                part(last),
                speed(first),
                speed(last)
            )
        };
        let (factor, at) = span.max;
        let foreground = self.comparable_speed(part(at));
        let shared = || self.names(&SHARING, foreground);
        let parted = || self.names(&[SharingMode::Partition], foreground);
        let at = part(at);
        match span.better {
            Better::Neither => format!("{speeds} BP+Col and a partition give the same in total, within 1%."),
            Better::Partition => {
                let by = parted();
                format!(
                    "{speeds} a partition is better: up to {factor:.2} times the total of BP+Col, at \
                     {at:.2} ({by})."
                )
            }
            Better::Sharing => {
                let by = shared();
                format!(
                    "{speeds} BP+Col is better: up to {factor:.2} times the best partition's total, at \
                     {at:.2} ({by})."
                )
            }
            Better::OnlyPartition => {
                format!("{speeds} only a partition is as fast: at {at:.2} {}.", parted())
            }
            Better::OnlySharing => {
                // The GPU time of the foreground is not subtracted.
                let ceiling = self.gpus as f64 * self.background_samples_per_s + fastest * at;
                let total = self.sharing().total_at(foreground).unwrap_or_default();
                let by = shared();
                format!(
                    "{speeds} only BP+Col is as fast: at {at:.2} it gives {total:.0} samples/s in total \
                     ({by}), where {ceiling:.0} would need no GPU time for the foreground."
                )
            }
        }
    }

    /// Describes the best mode at a speed of the foreground: one, or two that alternate.
    fn names(&self, modes: &[SharingMode], foreground: f64) -> String {
        let envelope = self.envelope(modes);
        let corners = envelope.at(foreground).map_or(&[][..], |(_, corners)| corners);
        let names: Vec<String> = corners.iter().filter_map(|&corner| self.name(modes, corner)).collect();
        names.join(" in turns with ")
    }

    fn name(&self, modes: &[SharingMode], corner: (f64, f64)) -> Option<String> {
        let is_here = |point: &&Point| {
            let rates = (point.foreground_samples_per_s, point.total_samples_per_s());
            (modes.contains(&point.mode) || point.mode == SharingMode::Background)
                && rates.0.total_cmp(&corner.0).is_eq()
                && rates.1.total_cmp(&corner.1).is_eq()
        };
        let point = self.points.iter().find(is_here)?;
        let (mode, gpus, all) = (point.mode, point.gpus, self.gpus);
        let amplification = point.amplification.unwrap_or_default();
        Some(match mode {
            SharingMode::Background => "background alone".into(),
            SharingMode::Partition => format!("DP on {gpus} of {all} GPUs, background on the others"),
            _ => format!("{mode} on {gpus} of {all} GPUs, amplification {amplification:.2}"),
        })
    }

    fn spans(&self, sharing: &Envelope, partition: &Envelope) -> Vec<SpeedRange> {
        let mut spans: Vec<SpeedRange> = Vec::new();
        // Without a foreground both are background alone.
        for step in 1..=SPEED_COUNT {
            let foreground = self.comparable_speed(step as f64 / SPEED_COUNT as f64);
            let (better, factor) = match (sharing.total_at(foreground), partition.total_at(foreground)) {
                (None, None) => continue,
                (Some(_), None) => (Better::OnlySharing, 1.0),
                (None, Some(_)) => (Better::OnlyPartition, 1.0),
                (Some(shared), Some(parted)) if shared > parted * (1.0 + TOLERANCE) => {
                    (Better::Sharing, shared / parted)
                }
                (Some(shared), Some(parted)) if parted > shared * (1.0 + TOLERANCE) => {
                    (Better::Partition, parted / shared)
                }
                _ => (Better::Neither, 1.0),
            };
            match spans.last_mut() {
                Some(span) if span.better == better => {
                    span.last = step;
                    if factor >= span.max.0 {
                        span.max = (factor, step);
                    }
                }
                _ => spans.push(SpeedRange { better, first: step, last: step, max: (factor, step) }),
            }
        }
        spans
    }
}
