//! Checks that the values of a plan are possible and consistent.

use std::collections::HashSet;

use super::{ExecutionPlan, PlanMode, PlannedLayer, PlannedWorker};
use crate::Error;
use crate::batch::MAX_BATCH;
use crate::document::document;

/// Maximum number of GPUs of a plan file.
const MAX_GPUS: usize = 65_536;
/// Relative tolerance of values that follow from each other.
const TOLERANCE: f64 = 1e-6;

/// Returns an error at the given path unless the condition holds.
fn ensure(holds: bool, path: &str, problem: impl FnOnce() -> String) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(document(path, problem())) }
}

/// Returns an error unless a value equals the one that follows from others.
fn agrees(path: &str, found: f64, expected: f64, how: &str) -> Result<(), Error> {
    let is_same = (found - expected).abs() <= TOLERANCE * expected.abs().max(found.abs());
    ensure(is_same, path, || format!("{found} does not agree with {how}, which makes {expected}"))
}

impl ExecutionPlan {
    /// Checks everything that does not depend on the network: ranges, sums, and that the plan is
    /// within its own limits. Linear in the size of the plan.
    ///
    /// # Errors
    /// [`Error::Document`] with the path of the first invalid field.
    pub(super) fn check(&self) -> Result<(), Error> {
        ensure((1..=MAX_BATCH).contains(&self.batch), "batch", || {
            format!("expected 1 to {MAX_BATCH} samples, found {}", self.batch)
        })?;
        let gpus = self.gpus;
        ensure((1..=MAX_GPUS).contains(&gpus), "gpus", || {
            format!("expected 1 to {MAX_GPUS} GPUs, found {gpus}")
        })?;
        let cuts = self.lowering.micro_batches;
        ensure((1..=self.batch).contains(&cuts), "lowering.micro_batches", || {
            format!("expected 1 to {}, the samples of the batch, found {cuts}", self.batch)
        })?;
        if let Some(partial) = &self.lowering.partial {
            let parts = partial.parts();
            ensure((1..=self.batch).contains(&parts), "lowering.partial.parts", || {
                format!("expected 1 to {}, the samples of the batch, found {parts}", self.batch)
            })?;
            let roles = partial.lowest().len();
            ensure(roles > 0 && (roles..=roles + 1).contains(&parts), "lowering.partial.lowest", || {
                format!(
                    "expected the lowest layer of each of {parts} roles, but for one that reaches all, \
                     found {roles}"
                )
            })?;
        }
        self.check_each_layer()?;
        self.worker.iter().try_for_each(|worker| self.check_worker(worker))?;
        self.check_order()?;
        self.check_signs()?;
        self.check_sums()?;
        self.check_range()?;
        self.check_memory()?;
        self.check_limits()
    }

    /// Checks that the iteration time is within its range.
    fn check_range(&self) -> Result<(), Error> {
        let Some(range) = &self.range else { return Ok(()) };
        let (min, max) = (range.min_us, range.max_us);
        // Comparisons with NaN are false.
        let contains = min >= 0.0 && min <= self.iteration_us && self.iteration_us <= max && max.is_finite();
        ensure(contains, "range", || {
            format!("expected a range around {} us, found {min} to {max}", self.iteration_us)
        })
    }

    /// Checks that each worker runs the same layers on the same ranks, shifted by its first GPU.
    /// Linear in the plan's size.
    fn check_worker(&self, worker: &PlannedWorker) -> Result<(), Error> {
        let PlannedWorker { gpus, replicas, .. } = *worker;
        ensure(gpus.checked_mul(replicas) == Some(self.gpus), "worker.gpus", || {
            format!("{replicas} workers of {gpus} GPUs are not {} GPUs", self.gpus)
        })?;
        ensure(self.batch % replicas == 0, "worker.replicas", || {
            format!("{replicas} workers cannot share {} samples evenly", self.batch)
        })?;
        for (path, value) in
            [("worker.iteration_us", worker.iteration_us), ("worker.single_gpu_us", worker.single_gpu_us)]
        {
            ensure(value > 0.0 && value.is_finite(), path, || {
                format!("expected a finite number above 0, found {value}")
            })?;
        }
        for (index, layer) in self.layers.iter().enumerate() {
            let each = layer.ranks.len() / replicas;
            let is_of_worker = |(place, &rank): (usize, &usize)| {
                let (worker, place) = (place / each, place % each);
                layer.ranks[place] < gpus && rank == layer.ranks[place] + worker * gpus
            };
            let are_replicas =
                layer.ranks.len() % replicas == 0 && layer.ranks.iter().enumerate().all(is_of_worker);
            ensure(are_replicas, &format!("layers[{index}].ranks"), || {
                format!("layer `{}` does not run alike on {replicas} workers", layer.name)
            })?;
        }
        Ok(())
    }

    fn check_each_layer(&self) -> Result<(), Error> {
        ensure(!self.layers.is_empty(), "layers", || "a plan needs at least one layer".into())?;
        let mut names = HashSet::new();
        for (index, PlannedLayer { name, gpus, ranks, division }) in self.layers.iter().enumerate() {
            let path = |field: &str| format!("layers[{index}].{field}");
            ensure(names.insert(name), &path("name"), || format!("layer `{name}` is there twice"))?;
            ensure(!ranks.is_empty(), &path("ranks"), || format!("layer `{name}` needs at least one rank"))?;
            if let Some(rank) = ranks.iter().find(|&&rank| rank >= self.gpus) {
                let problem = format!("there is no rank {rank}: with {} GPUs they are below that", self.gpus);
                return Err(document(path("ranks"), problem));
            }
            let different: HashSet<&usize> = ranks.iter().collect();
            ensure(different.len() == ranks.len(), &path("ranks"), || {
                format!("layer `{name}` has a rank twice")
            })?;
            let parts = division.map_or(1, |division| division.parts);
            ensure(parts > 0 && ranks.len() % parts == 0, &path("division.parts"), || {
                format!("{parts} parts do not divide the {} ranks of layer `{name}`", ranks.len())
            })?;
            let ranges = ranks.len() / parts;
            ensure(ranges <= self.batch, &path("ranks"), || {
                format!("{ranges} ranges of samples are more than the {} samples of the batch", self.batch)
            })?;
            ensure(*gpus == ranks.len(), &path("gpus"), || {
                format!("expected {}, as many as there are ranks, found {gpus}", ranks.len())
            })?;
        }
        Ok(())
    }

    /// Checks that the order is a permutation of the layers. Whether it is topological is checked
    /// with the network.
    fn check_order(&self) -> Result<(), Error> {
        let Some(order) = &self.order else { return Ok(()) };
        let mut left: HashSet<&str> = self.layers.iter().map(|layer| layer.name.as_str()).collect();
        for (index, name) in order.iter().enumerate() {
            ensure(left.remove(name.as_str()), &format!("order[{index}]"), || {
                format!("layer `{name}` is there twice, or not among the layers")
            })?;
        }
        let missing = self.layers.iter().find(|layer| left.contains(layer.name.as_str()));
        missing.map_or(Ok(()), |layer| Err(document("order", format!("layer `{}` is missing", layer.name))))
    }

    fn check_signs(&self) -> Result<(), Error> {
        let above_zero = [
            ("iteration_us", self.iteration_us),
            ("gpu_time_us", self.gpu_time_us),
            ("single_gpu_us", self.single_gpu_us),
            ("amplification", self.amplification),
            ("dp.iteration_us", self.dp.iteration_us),
            ("dp.amplification", self.dp.amplification),
        ];
        let optional = [
            ("lower_bound_us", self.lower_bound_us),
            ("deadline_us", self.deadline_us),
            ("amplification_limit", self.amplification_limit),
        ];
        let optional = optional.into_iter().filter_map(|(path, value)| Some((path, value?)));
        for (path, value) in above_zero.into_iter().chain(optional) {
            ensure(value > 0.0 && value.is_finite(), path, || {
                format!("expected a finite number above 0, found {value}")
            })?;
        }
        let parts = [
            ("computing_us", self.computing_us),
            ("communicating_us", self.communicating_us),
            ("idle_us", self.idle_us),
        ];
        for (path, value) in parts {
            ensure(value >= 0.0 && value.is_finite(), path, || {
                format!("expected a finite number, at least 0, found {value}")
            })?;
        }
        Ok(())
    }

    fn check_sums(&self) -> Result<(), Error> {
        let active = self.computing_us + self.communicating_us;
        agrees("gpu_time_us", self.gpu_time_us, active, "computing_us + communicating_us")?;
        let amplification = self.gpu_time_us / self.single_gpu_us;
        agrees("amplification", self.amplification, amplification, "gpu_time_us / single_gpu_us")?;
        let all = self.iteration_us * self.gpus as f64;
        agrees("idle_us", active + self.idle_us, all, "iteration_us * gpus of all ranks together")?;
        match (self.lower_bound_us, self.gap) {
            (None, None) => Ok(()),
            (Some(bound_us), Some(gap)) => {
                agrees("gap", gap + 1.0, self.iteration_us / bound_us, "iteration_us / lower_bound_us")?;
                ensure(gap >= -TOLERANCE, "gap", || "the iteration is shorter than its lower bound".into())
            }
            (Some(_), None) => Err(document("gap", "it is missing beside lower_bound_us")),
            (None, Some(_)) => Err(document("lower_bound_us", "it is missing beside gap")),
        }
    }

    fn check_memory(&self) -> Result<(), Error> {
        let kinds = self.memory.map(|memory| memory.by_kind().map(|(_, bytes)| u128::from(bytes)));
        let total = kinds.map(|kinds| kinds.into_iter().sum::<u128>());
        let peak = self.memory_peak_bytes;
        ensure(total == peak.map(u128::from), "memory_peak_bytes", || match (peak, total) {
            (Some(peak), Some(total)) => format!("{peak} does not agree with memory, which makes {total}"),
            (Some(_), None) => "memory is missing beside it".into(),
            (None, _) => "it is missing beside memory".into(),
        })?;
        let limit = self.memory_limit_bytes.unwrap_or(u64::MAX);
        ensure(peak.is_none_or(|peak| peak <= limit), "memory_peak_bytes", || {
            format!("{} is above the plan's own limit of {limit}", peak.unwrap_or(0))
        })
    }

    /// Checks that the plan is within its own limits on amplification and iteration time.
    fn check_limits(&self) -> Result<(), Error> {
        let within = |path: &str, value: f64, limit: Option<f64>| {
            let is_within = limit.is_none_or(|limit| value <= limit * (1.0 + TOLERANCE));
            ensure(is_within, path, || {
                format!("{value} is above the plan's own limit of {}", limit.unwrap_or(0.0))
            })
        };
        within("amplification", self.amplification, self.amplification_limit)?;
        within("iteration_us", self.iteration_us, self.deadline_us)?;
        if self.mode == PlanMode::DataParallel {
            for (path, limit) in
                [("amplification_limit", self.amplification_limit), ("deadline_us", self.deadline_us)]
            {
                ensure(limit.is_none(), path, || "data parallelism has no limit".into())?;
            }
        }
        Ok(())
    }
}
