//! Which way to use, in words.

use super::comparison::ALIKE;
use super::{Comparison, Envelope, Way};

/// Speeds of the foreground that are looked at, as parts of the fastest.
const STEPS: usize = 100;

/// What is better at some speeds of the foreground.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Better {
    Sharing,
    Partition,
    Neither,
    /// No partition has so fast a foreground.
    OnlySharing,
}

/// Speeds of the foreground that follow each other at which the same is better.
struct Span {
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
        let (sharing, partition) = (self.sharing(), self.envelope(&[Way::Partition]));
        let spans = self.spans(&sharing, &partition);
        let mut sentences: Vec<String> = spans.iter().map(|span| self.sentence(span, fastest)).collect();
        if partition.fastest() < self.about(1.0) {
            sentences.push(format!(
                "The fastest foreground is {:.2} times as fast as that of any partition.",
                fastest / partition.fastest().max(f64::MIN_POSITIVE)
            ));
        }
        sentences.join(" ")
    }

    /// The most that sharing gives: burst plans, and all that they contain.
    #[must_use]
    pub fn sharing(&self) -> Envelope {
        self.envelope(&[Way::DataParallel, Way::DataParallelCollocated, Way::Burst, Way::BurstCollocated])
    }

    fn sentence(&self, span: &Span, fastest: f64) -> String {
        let part = |step: usize| step as f64 / STEPS as f64;
        let speed = |step: usize| part(step) * fastest;
        let from_to = if span.first == span.last {
            format!("at {:.2} of the fastest foreground ({:.0} samples/s)", part(span.last), speed(span.last))
        } else {
            let (first, last) = (span.first, span.last);
            format!(
                "from {:.2} to {:.2} of the fastest foreground ({:.0} to {:.0} samples/s)",
                part(first),
                part(last),
                speed(first),
                speed(last)
            )
        };
        let (factor, at) = span.most;
        let sentence = match span.better {
            Better::Neither => format!("{from_to} BP+Col and a partition give the same in total, within 1%"),
            Better::Partition => {
                let by = self.partition_at(self.about(part(at)));
                format!("{from_to} a partition is better: up to {factor:.2} times the total, {by}")
            }
            Better::Sharing => {
                let by = self.plan_at(self.about(part(at)));
                let at = part(at);
                format!(
                    "{from_to} BP+Col is better: up to {factor:.2} times the best partition's total, at {at:.2} ({by})"
                )
            }
            Better::OnlySharing => {
                let ceiling = self.gpus as f64 * self.background_samples_per_s + speed(at);
                let total = self.sharing().total_at(self.about(part(at))).unwrap_or_default();
                let by = self.plan_at(self.about(part(at)));
                format!(
                    "{from_to} only BP+Col is as fast: at {:.2} it gives {total:.0} samples/s in total ({by}), where {ceiling:.0} is all \
                     that the GPUs could give",
                    part(at)
                )
            }
        };
        let mut letters = sentence.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters).chain(['.']).collect()
    }

    /// The partition that gives most of those with so fast a foreground, or the two that take turns.
    fn partition_at(&self, foreground: f64) -> String {
        let corners = self.envelope(&[Way::Partition]);
        let after = corners.corners().partition_point(|corner| corner.0 < foreground);
        let gpus_of = |index: usize| {
            let &(speed, _) = corners.corners().get(index)?;
            let is_here = |point: &&super::Point| {
                matches!(point.way, Way::Partition | Way::Background)
                    && point.foreground_samples_per_s.total_cmp(&speed).is_eq()
            };
            self.points.iter().find(is_here).map(|point| point.gpus)
        };
        match (after.checked_sub(1).and_then(gpus_of), gpus_of(after)) {
            (Some(0), Some(gpus)) => {
                format!("all GPUs in turns for background and for DP on {gpus} with background on the others")
            }
            (Some(fewer), Some(more)) => {
                format!("the foreground in turns on {fewer} and on {more} GPUs, background on the others")
            }
            (_, Some(gpus)) => format!("DP on {gpus} GPUs, background on the others"),
            _ => "background on all GPUs".into(),
        }
    }

    /// The burst plan with background that gives most of those with so fast a foreground.
    fn plan_at(&self, foreground: f64) -> String {
        let is_as_fast = |point: &&super::Point| {
            point.way == Way::BurstCollocated && point.foreground_samples_per_s >= foreground
        };
        let total = super::Point::total_samples_per_s;
        let points = self.points.iter().filter(is_as_fast);
        let best = points.max_by(|a, b| total(a).total_cmp(&total(b)));
        let Some(point) = best else { return "in turns with a faster burst plan alone".into() };
        let amplification = point.amplification.unwrap_or_default();
        format!("{} of {} GPUs, amplification {amplification:.2}", point.gpus, self.gpus)
    }

    fn spans(&self, sharing: &Envelope, partition: &Envelope) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        // At no speed at all both are background alone.
        for step in 1..=STEPS {
            let foreground = self.about(step as f64 / STEPS as f64);
            let Some(shared) = sharing.total_at(foreground) else { break };
            let (better, factor) = match partition.total_at(foreground) {
                None => (Better::OnlySharing, 1.0),
                Some(parted) if shared > parted * (1.0 + ALIKE) => (Better::Sharing, shared / parted),
                Some(parted) if parted > shared * (1.0 + ALIKE) => (Better::Partition, parted / shared),
                Some(_) => (Better::Neither, 1.0),
            };
            match spans.last_mut() {
                Some(span) if span.better == better => {
                    span.last = step;
                    if factor >= span.most.0 {
                        span.most = (factor, step);
                    }
                }
                _ => spans.push(Span { better, first: step, last: step, most: (factor, step) }),
            }
        }
        spans
    }
}
