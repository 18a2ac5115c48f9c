//! Fronts where memory can bind: what every rank holds is a criterion, too.

use super::front::{Front, Layer, ROUNDED, Times};
use super::trace::{NOTHING, Traces};

/// Plans by rising time.
#[derive(Debug, Clone, Default)]
pub(super) struct Loads {
    pub(super) plans: Vec<Loaded>,
}

/// One plan.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    pub(super) times: Times,
    /// What each rank holds.
    pub(super) bytes: Box<[u64]>,
    /// What it is made of.
    one: u32,
    /// And of this too, which is not recorded yet.
    other: u32,
}

impl Loaded {
    pub(super) fn trace(&self) -> u32 {
        self.one
    }

    fn covers(&self, other: &Self) -> bool {
        self.times.time_us <= other.times.time_us
            && self.times.gpu_us <= other.times.gpu_us * ROUNDED
            && self.bytes.iter().zip(&other.bytes).all(|(own, other)| own <= other)
    }

    /// The two put together, the other one `offset` ranks further on.
    fn with(&self, other: &Self, time_us: f64, offset: usize) -> Self {
        let mut bytes = self.bytes.clone();
        for (own, other) in bytes[offset..].iter_mut().zip(&other.bytes) {
            *own = own.saturating_add(*other);
        }
        let gpu_us = self.times.gpu_us + other.times.gpu_us;
        Self { times: Times { time_us, gpu_us }, bytes, one: self.one, other: other.one }
    }
}

impl Front for Loads {
    const BY_RANK: bool = true;

    /// Each is compared with each, and that on every rank: a front near this bound takes as long as `max_labels` labels do
    /// elsewhere.
    fn most(max_labels: usize) -> usize {
        (max_labels / 16).isqrt()
    }

    fn one(times: Times, trace: u32, ranks: usize) -> Self {
        Self { plans: vec![Loaded { times, bytes: vec![0; ranks].into(), one: trace, other: NOTHING }] }
    }

    fn len(&self) -> usize {
        self.plans.len()
    }

    fn unite(&mut self, other: &Self, times: Times) {
        self.plans.extend(other.plans.iter().map(|plan| Loaded {
            times: Times {
                time_us: plan.times.time_us + times.time_us,
                gpu_us: plan.times.gpu_us + times.gpu_us,
            },
            ..plan.clone()
        }));
        self.thin(1.0);
    }

    fn unite_sums(&mut self, one: &Self, other: &Self, _tolerance: f64, most: usize) -> bool {
        self.unite_pairs(one, other, 0, most, |a, b| a + b)
    }

    fn unite_waves(&mut self, one: &Self, other: &Self, offset: usize, most: usize) -> bool {
        self.unite_pairs(one, other, offset, most, f64::max)
    }

    fn drop_dominated_by(&mut self, better: &Self) {
        self.plans.retain(|plan| !better.plans.iter().any(|one| one.covers(plan)));
    }

    fn add_layer(&mut self, layer: &Layer, traces: &mut Traces) {
        for plan in &mut self.plans {
            plan.times.time_us += layer.times.time_us;
            plan.times.gpu_us += layer.times.gpu_us;
            for bytes in plan.bytes.iter_mut().take(layer.gpus) {
                *bytes = bytes.saturating_add(layer.memory_bytes);
            }
            plan.one = traces.both(plan.one, layer.trace);
        }
    }

    fn append(&mut self, trace: u32, traces: &mut Traces) {
        self.plans.iter_mut().for_each(|plan| plan.one = traces.both(plan.one, trace));
    }

    /// Without a tolerance: plans close in time rarely have memory in common.
    fn thin(&mut self, _tolerance: f64) {
        self.plans.sort_by(|a, b| {
            let by_gpu = a.times.gpu_us.total_cmp(&b.times.gpu_us);
            a.times.time_us.total_cmp(&b.times.time_us).then(by_gpu).then_with(|| a.bytes.cmp(&b.bytes))
        });
        let mut kept: Vec<Loaded> = Vec::new();
        for plan in std::mem::take(&mut self.plans) {
            if !kept.iter().any(|better| better.covers(&plan)) {
                kept.push(plan);
            }
        }
        self.plans = kept;
    }

    fn settle(&mut self, traces: &mut Traces) {
        for plan in &mut self.plans {
            plan.one = traces.both(plan.one, plan.other);
            plan.other = NOTHING;
        }
    }

    fn traces(&mut self) -> impl Iterator<Item = &mut u32> {
        self.plans.iter_mut().map(|plan| &mut plan.one)
    }
}

impl Loads {
    fn unite_pairs(
        &mut self,
        one: &Self,
        other: &Self,
        offset: usize,
        most: usize,
        time_us: impl Fn(f64, f64) -> f64,
    ) -> bool {
        for a in &one.plans {
            let pairs =
                other.plans.iter().map(|b| a.with(b, time_us(a.times.time_us, b.times.time_us), offset));
            self.plans.extend(pairs);
            self.thin(1.0);
            if self.len() > most {
                return false;
            }
        }
        true
    }
}
