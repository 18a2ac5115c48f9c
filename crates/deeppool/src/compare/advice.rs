//! Which way to use, in words.

use super::comparison::ALIKE;
use super::{Comparison, Envelope, Point, Way};

/// Speeds of the foreground that are looked at, as parts of the fastest.
const STEPS: usize = 100;
/// What sharing may be, since data parallelism is a burst plan, too.
const SHARING: [Way; 4] = [Way::DataParallel, Way::DataParallelCollocated, Way::Burst, Way::BurstCollocated];

/// What is better at some speeds of the foreground.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Better {
    Sharing,
    Partition,
    Neither,
    /// No partition has so fast a foreground.
    OnlySharing,
    /// Only a partition has.
    OnlyPartition,
}

/// A range of speeds of the foreground over which the same way is better.
struct SpeedRange {
    better: Better,
    /// In [`STEPS`]ths of the fastest.
    first: usize,
    last: usize,
    /// By which factor it gives more at most, and where.
    most: (f64, usize),
}

impl Comparison {
    /// Says which way gives most in total at which speed of the foreground, and by how much: sharing GPUs (BP+Col, which contains the ways
    /// that share less) or a static partition. Ways may take turns, and differences of 1% are none.
    #[must_use]
    pub fn advice(&self) -> String {
        let fastest = self.fastest_foreground();
        let partition = self.envelope(&[Way::Partition]);
        let spans = self.spans(&self.sharing(), &partition);
        let mut sentences: Vec<String> = spans.iter().map(|span| self.sentence(span, fastest)).collect();
        if partition.fastest() <= 0.0 {
            sentences.push("The foreground has no room on any part of the GPUs by data parallelism.".into());
        } else if partition.fastest() < self.about(1.0) {
            sentences.push(format!(
                "The fastest foreground is {:.2} times as fast as that of any partition.",
                fastest / partition.fastest()
            ));
        }
        sentences.join(" ")
    }

    /// The most that sharing gives: burst plans, and all that they contain.
    #[must_use]
    pub fn sharing(&self) -> Envelope {
        self.envelope(&SHARING)
    }

    fn sentence(&self, span: &SpeedRange, fastest: f64) -> String {
        let part = |step: usize| step as f64 / STEPS as f64;
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
        let (factor, at) = span.most;
        let foreground = self.about(part(at));
        let shared = || self.names(&SHARING, foreground);
        let parted = || self.names(&[Way::Partition], foreground);
        let at = part(at);
        match span.better {
            Better::Neither => format!("{speeds} BP+Col and a partition give the same in total, within 1%."),
            Better::Partition => {
                let by = parted();
                format!(
                    "{speeds} a partition is better: up to {factor:.2} times the total of BP+Col, at {at:.2} ({by})."
                )
            }
            Better::Sharing => {
                let by = shared();
                format!(
                    "{speeds} BP+Col is better: up to {factor:.2} times the best partition's total, at {at:.2} ({by})."
                )
            }
            Better::OnlyPartition => {
                format!("{speeds} only a partition is as fast: at {at:.2} {}.", parted())
            }
            Better::OnlySharing => {
                // The foreground's own GPU time is not taken off.
                let ceiling = self.gpus as f64 * self.background_samples_per_s + fastest * at;
                let total = self.sharing().total_at(foreground).unwrap_or_default();
                let by = shared();
                format!(
                    "{speeds} only BP+Col is as fast: at {at:.2} it gives {total:.0} samples/s in total ({by}), where {ceiling:.0} would \
                     need no GPU time for the foreground."
                )
            }
        }
    }

    /// What gives most with so fast a foreground: one way, or two in turns.
    fn names(&self, ways: &[Way], foreground: f64) -> String {
        let envelope = self.envelope(ways);
        let corners = envelope.at(foreground).map_or(&[][..], |(_, corners)| corners);
        let names: Vec<String> = corners.iter().filter_map(|&corner| self.name(ways, corner)).collect();
        names.join(" in turns with ")
    }

    fn name(&self, ways: &[Way], corner: (f64, f64)) -> Option<String> {
        let is_here = |point: &&Point| {
            let rates = (point.foreground_samples_per_s, point.total_samples_per_s());
            (ways.contains(&point.way) || point.way == Way::Background)
                && rates.0.total_cmp(&corner.0).is_eq()
                && rates.1.total_cmp(&corner.1).is_eq()
        };
        let point = self.points.iter().find(is_here)?;
        let (way, gpus, all) = (point.way, point.gpus, self.gpus);
        let amplification = point.amplification.unwrap_or_default();
        Some(match way {
            Way::Background => "background alone".into(),
            Way::Partition => format!("DP on {gpus} of {all} GPUs, background on the others"),
            _ => format!("{way} on {gpus} of {all} GPUs, amplification {amplification:.2}"),
        })
    }

    fn spans(&self, sharing: &Envelope, partition: &Envelope) -> Vec<SpeedRange> {
        let mut spans: Vec<SpeedRange> = Vec::new();
        // At no speed at all both are background alone.
        for step in 1..=STEPS {
            let foreground = self.about(step as f64 / STEPS as f64);
            let (better, factor) = match (sharing.total_at(foreground), partition.total_at(foreground)) {
                (None, None) => continue,
                (Some(_), None) => (Better::OnlySharing, 1.0),
                (None, Some(_)) => (Better::OnlyPartition, 1.0),
                (Some(shared), Some(parted)) if shared > parted * (1.0 + ALIKE) => {
                    (Better::Sharing, shared / parted)
                }
                (Some(shared), Some(parted)) if parted > shared * (1.0 + ALIKE) => {
                    (Better::Partition, parted / shared)
                }
                _ => (Better::Neither, 1.0),
            };
            match spans.last_mut() {
                Some(span) if span.better == better => {
                    span.last = step;
                    if factor >= span.most.0 {
                        span.most = (factor, step);
                    }
                }
                _ => spans.push(SpeedRange { better, first: step, last: step, most: (factor, step) }),
            }
        }
        spans
    }
}
