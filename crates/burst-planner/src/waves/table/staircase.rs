//! Fronts without memory: staircases of rising time and falling GPU time.

use super::front::{Front, Layer, ROUNDED, Times};
use super::trace::{NOTHING, Traces};

/// Plans by rising time; GPU times fall.
#[derive(Debug, Clone, Default)]
pub(super) struct Staircase {
    pub(super) steps: Vec<Step>,
}

/// One plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) time_us: f64,
    pub(super) gpu_us: f64,
    /// What it is made of.
    one: u32,
    /// And of this too, which is not recorded yet.
    other: u32,
}

/// Blocks of sums with at most so many on a side are looked at one by one.
const SMALL: usize = 4;

impl Step {
    pub(super) fn trace(&self) -> u32 {
        self.one
    }

    fn plus(&self, other: &Self) -> Self {
        Self {
            time_us: self.time_us + other.time_us,
            gpu_us: self.gpu_us + other.gpu_us,
            one: self.one,
            other: other.one,
        }
    }
}

impl Front for Staircase {
    const BY_RANK: bool = false;

    fn most(max_labels: usize) -> usize {
        max_labels
    }

    fn one(times: Times, trace: u32, _ranks: usize) -> Self {
        let Times { time_us, gpu_us } = times;
        Self { steps: vec![Step { time_us, gpu_us, one: trace, other: NOTHING }] }
    }

    fn len(&self) -> usize {
        self.steps.len()
    }

    fn unite(&mut self, other: &Self, times: Times) {
        let shifted = other.steps.iter().map(|step| Step {
            time_us: step.time_us + times.time_us,
            gpu_us: step.gpu_us + times.gpu_us,
            ..*step
        });
        if self.steps.is_empty() {
            self.steps.extend(shifted);
        } else {
            self.merge(shifted, other.steps.len());
        }
    }

    fn unite_sums(&mut self, one: &Self, other: &Self, tolerance: f64, most: usize) -> bool {
        if one.is_empty() || other.is_empty() {
            return true;
        }
        let seeds = along_the_hull(&one.steps, &other.steps);
        self.merge(seeds.iter().copied(), seeds.len());
        let mut found = Vec::new();
        Sums { one: &one.steps, other: &other.steps, covering: &self.steps, tolerance, found: &mut found }
            .search(0..one.len(), 0..other.len());
        found.sort_unstable_by(|a, b| a.time_us.total_cmp(&b.time_us).then(a.gpu_us.total_cmp(&b.gpu_us)));
        self.merge(found.iter().copied(), found.len());
        self.len() <= most
    }

    fn unite_waves(&mut self, one: &Self, other: &Self, _offset: usize, most: usize) -> bool {
        let (Some(first), Some(second)) = (one.steps.first(), other.steps.first()) else { return true };
        let mut waves = Vec::with_capacity(one.len() + other.len());
        let (mut i, mut j) = (0, 0);
        let mut time_us = first.time_us.max(second.time_us);
        loop {
            let next = |steps: &[Step], index: usize| {
                steps.get(index + 1).map_or(f64::INFINITY, |step| step.time_us)
            };
            while next(&one.steps, i) <= time_us {
                i += 1;
            }
            while next(&other.steps, j) <= time_us {
                j += 1;
            }
            waves.push(Step { time_us, ..one.steps[i].plus(&other.steps[j]) });
            time_us = next(&one.steps, i).min(next(&other.steps, j));
            if time_us == f64::INFINITY {
                break;
            }
        }
        let count = waves.len();
        self.merge(waves.into_iter(), count);
        self.len() <= most
    }

    fn drop_dominated_by(&mut self, better: &Self) {
        let mut index = 0;
        let mut gpu_us = f64::INFINITY;
        self.steps.retain(|step| {
            while index < better.len() && better.steps[index].time_us <= step.time_us {
                gpu_us = better.steps[index].gpu_us;
                index += 1;
            }
            step.gpu_us < gpu_us
        });
    }

    fn add_layer(&mut self, layer: &Layer, traces: &mut Traces) {
        for step in &mut self.steps {
            step.time_us += layer.times.time_us;
            step.gpu_us += layer.times.gpu_us;
            step.one = traces.both(step.one, layer.trace);
        }
    }

    fn append(&mut self, trace: u32, traces: &mut Traces) {
        self.steps.iter_mut().for_each(|step| step.one = traces.both(step.one, trace));
    }

    fn thin(&mut self, tolerance: f64) {
        let mut kept = 0;
        let mut index = 0;
        while index < self.steps.len() {
            if kept > 0 && self.steps[kept - 1].gpu_us <= self.steps[index].gpu_us * ROUNDED {
                index += 1;
                continue;
            }
            // The farthest one that still covers this one, and with it all up to there. The fastest is covered by its equals.
            let tolerance = if kept == 0 { ROUNDED } else { tolerance };
            let latest = self.steps[index].time_us * tolerance;
            while index + 1 < self.steps.len() && self.steps[index + 1].time_us <= latest {
                index += 1;
            }
            self.steps[kept] = self.steps[index];
            kept += 1;
            index += 1;
        }
        self.steps.truncate(kept);
    }

    fn settle(&mut self, traces: &mut Traces) {
        for step in &mut self.steps {
            step.one = traces.both(step.one, step.other);
            step.other = NOTHING;
        }
    }

    fn traces(&mut self) -> impl Iterator<Item = &mut u32> {
        self.steps.iter_mut().map(|step| &mut step.one)
    }
}

impl Staircase {
    /// Takes in plans sorted by time, of which some may beat others.
    fn merge(&mut self, other: impl Iterator<Item = Step>, count: usize) {
        let own = std::mem::take(&mut self.steps);
        let mut merged: Vec<Step> = Vec::with_capacity(own.len() + count);
        let mut lowest = f64::INFINITY;
        let mut push = |step: Step| {
            if step.gpu_us < lowest {
                lowest = step.gpu_us;
                // Of plans that take the same time only the cheapest is of use.
                match merged.last_mut() {
                    Some(last) if last.time_us >= step.time_us => *last = step,
                    _ => merged.push(step),
                }
            }
        };
        let mut own = own.into_iter().peekable();
        for step in other {
            while let Some(earlier) = own.next_if(|earlier| earlier.time_us <= step.time_us) {
                push(earlier);
            }
            push(step);
        }
        own.for_each(push);
        self.steps = merged;
    }
}

/// Sums that follow the lower hulls of both summands: good ones, and not many.
fn along_the_hull(one: &[Step], other: &[Step]) -> Vec<Step> {
    let slope = |steps: &[Step], index: usize| match steps.get(index + 1) {
        Some(next) => (steps[index].gpu_us - next.gpu_us) / (next.time_us - steps[index].time_us),
        None => -1.0,
    };
    let (mut i, mut j) = (0, 0);
    let mut sums = vec![one[0].plus(&other[0])];
    while i + 1 < one.len() || j + 1 < other.len() {
        if slope(one, i) >= slope(other, j) {
            i += 1;
        } else {
            j += 1;
        }
        sums.push(one[i].plus(&other[j]));
    }
    sums
}

/// The search for sums that known plans do not cover.
struct Sums<'s> {
    one: &'s [Step],
    other: &'s [Step],
    covering: &'s [Step],
    tolerance: f64,
    found: &'s mut Vec<Step>,
}

impl Sums<'_> {
    /// Looks at a block of pairs: no sum in it is better than the fastest time and the least GPU time of its parts.
    fn search(&mut self, rows: std::ops::Range<usize>, columns: std::ops::Range<usize>) {
        let time_us = self.one[rows.start].time_us + self.other[columns.start].time_us;
        let gpu_us = self.one[rows.end - 1].gpu_us + self.other[columns.end - 1].gpu_us;
        if self.is_covered(time_us, gpu_us) {
            return;
        }
        if rows.len() <= SMALL && columns.len() <= SMALL {
            for row in rows {
                for column in columns.clone() {
                    let sum = self.one[row].plus(&self.other[column]);
                    if !self.is_covered(sum.time_us, sum.gpu_us) {
                        self.found.push(sum);
                    }
                }
            }
        } else if rows.len() >= columns.len() {
            let middle = rows.start + rows.len() / 2;
            self.search(rows.start..middle, columns.clone());
            self.search(middle..rows.end, columns);
        } else {
            let middle = columns.start + columns.len() / 2;
            self.search(rows.clone(), columns.start..middle);
            self.search(rows, middle..columns.end);
        }
    }

    fn is_covered(&self, time_us: f64, gpu_us: f64) -> bool {
        let latest = time_us * self.tolerance;
        let after = self.covering.partition_point(|step| step.time_us <= latest);
        after > 0 && self.covering[after - 1].gpu_us <= gpu_us * ROUNDED
    }
}
