//! Comparison of hybrid parallelism, N workers of M GPUs, and data parallelism, N x M workers of
//! one GPU, by the time to a target accuracy.
//!
//! SU is the speed-up of a worker over one GPU; SE the scaling efficiency, the throughput of each
//! worker relative to that of a worker of a common reference; E the number of epochs to the target.

use std::fmt;

use crate::{AccuracyError, EpochCurve};

/// Comparison of N workers of M GPUs with M x N workers of one GPU (Pal et al., arXiv 1907.13257).
///
/// The hybrid job reaches the target first if
///
/// `SU^M > M x (SE_MN / SE_N) x (E_N / E_MN)`.
///
/// Both jobs have the same batch per worker, so that the data-parallel job has M times the global
/// batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// Number of workers of the hybrid job, N.
    pub workers: usize,
    /// Number of GPUs of each worker of the hybrid job, M.
    pub gpus_per_worker: usize,
    /// SU^M: speed-up of a worker of M GPUs over one GPU at the same batch.
    pub worker_speedup: f64,
    /// `SE_N`: scaling efficiency of N workers, the throughput of each worker divided by that of a
    /// reference worker.
    pub hybrid_efficiency: f64,
    /// `SE_MN`: scaling efficiency of M x N workers, relative to the same reference worker.
    pub data_parallel_efficiency: f64,
    /// `E_N`: number of epochs to the target with the global batch of N workers.
    pub hybrid_epochs: f64,
    /// `E_MN`: number of epochs to the target with the global batch of M x N workers.
    pub data_parallel_epochs: f64,
}

/// Job of a comparison that reaches the target first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Winner {
    /// N workers of M GPUs.
    Hybrid,
    /// M x N workers of one GPU.
    DataParallel,
    /// Both take the same time.
    Tie,
}

impl Comparison {
    /// Returns the number of GPUs of each of the two jobs, M x N.
    #[must_use]
    pub fn gpus(&self) -> usize {
        self.workers.saturating_mul(self.gpus_per_worker)
    }

    /// Returns the right side of the inequality: the speed-up of a worker over one GPU at which
    /// both jobs take the same time.
    #[must_use]
    pub fn required_speedup(&self) -> f64 {
        let efficiency = self.data_parallel_efficiency / self.hybrid_efficiency;
        self.gpus_per_worker as f64 * efficiency * (self.hybrid_epochs / self.data_parallel_epochs)
    }

    /// Returns the job that reaches the target first.
    #[must_use]
    pub fn winner(&self) -> Winner {
        let required = self.required_speedup();
        match self.worker_speedup.partial_cmp(&required) {
            Some(std::cmp::Ordering::Greater) => Winner::Hybrid,
            Some(std::cmp::Ordering::Less) => Winner::DataParallel,
            _ => Winner::Tie,
        }
    }

    /// Returns the time of the data-parallel job divided by that of the hybrid job; above 1 if the
    /// hybrid job is faster.
    #[must_use]
    pub fn gain(&self) -> f64 {
        self.worker_speedup / self.required_speedup()
    }

    /// Returns the speed-up of the data-parallel job over the worker that the scaling efficiencies
    /// are relative to, in the time to the target. `epochs` is `E_1`, the number of epochs of that
    /// worker to the target. The speed-up is `SE_MN x M x N x E_1 / E_MN`.
    #[must_use]
    pub fn data_parallel_speedup(&self, epochs: f64) -> f64 {
        self.data_parallel_efficiency * self.gpus() as f64 * (epochs / self.data_parallel_epochs)
    }

    /// Returns the speed-up of the hybrid job over the worker that the scaling efficiencies are
    /// relative to, in the time to the target. `epochs` is `E_1`, the number of epochs of that
    /// worker to the target. The speed-up is `SU^M x SE_N x N x E_1 / E_N`.
    #[must_use]
    pub fn hybrid_speedup(&self, epochs: f64) -> f64 {
        self.worker_speedup * self.hybrid_efficiency * self.workers as f64 * (epochs / self.hybrid_epochs)
    }

    /// Returns the ratio `SE_MN / SE_N` at which the hybrid job would be `gain` times as fast as
    /// the data-parallel job, with the speed-up and the epochs of this comparison.
    #[must_use]
    pub fn efficiency_ratio_for(&self, gain: f64) -> f64 {
        let epochs = self.data_parallel_epochs / self.hybrid_epochs;
        self.worker_speedup / (gain * self.gpus_per_worker as f64) * epochs
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workers, gpus_per_worker: m, worker_speedup, .. } = self;
        let winner = self.winner();
        let sign = match winner {
            Winner::Hybrid => '>',
            Winner::DataParallel => '<',
            Winner::Tie => '=',
        };
        write!(
            f,
            "{} GPUs: SU^{m} = {worker_speedup:.3} {sign} {:.3} = {m} x ({:.3} / {:.3}) x ({:.2} / {:.2}): \
             {workers} workers of {m} GPUs ",
            self.gpus(),
            self.required_speedup(),
            self.data_parallel_efficiency,
            self.hybrid_efficiency,
            self.hybrid_epochs,
            self.data_parallel_epochs,
        )?;
        match winner {
            Winner::Hybrid => write!(f, "are {:.3} times as fast as data parallelism", self.gain()),
            Winner::DataParallel => {
                write!(f, "are slower: data parallelism is {:.3} times as fast", 1.0 / self.gain())
            }
            Winner::Tie => f.write_str("take as long as data parallelism"),
        }
    }
}

/// Comparisons on several numbers of GPUs, with the smallest number from which the hybrid job is
/// faster.
#[derive(Debug, Clone, PartialEq)]
pub struct Crossover {
    comparisons: Vec<Comparison>,
}

impl Crossover {
    /// Compares both jobs on each of the given numbers of GPUs.
    ///
    /// `curve` gives the epochs to the target. `worker_speedup` is SU^M of workers of
    /// `gpus_per_worker` GPUs at `batch_per_worker` samples. `efficiency` returns the scaling
    /// efficiency of a number of workers at the same batch per worker, or `None` if it is unknown.
    /// It may be relative to any worker, but to the same one for all numbers of workers. `gpus` are
    /// the numbers of GPUs, in any order.
    ///
    /// # Errors
    /// - [`AccuracyError::OutsideCurve`] if a global batch is outside the curve.
    /// - [`AccuracyError::NoEfficiency`] if an efficiency is unknown.
    /// - [`AccuracyError::Indivisible`] if a number of GPUs is not a multiple of `gpus_per_worker`.
    /// - [`AccuracyError::Empty`] without a number of GPUs.
    /// - [`AccuracyError::OutOfRange`] if a number of GPUs or `batch_per_worker` is zero, or if the
    ///   speed-up or an efficiency is not finite and positive.
    pub fn new(
        curve: &EpochCurve,
        batch_per_worker: usize,
        (gpus_per_worker, worker_speedup): (usize, f64),
        efficiency: impl Fn(usize) -> Option<f64>,
        gpus: impl IntoIterator<Item = usize>,
    ) -> Result<Self, AccuracyError> {
        let mut gpus: Vec<usize> = gpus.into_iter().collect();
        gpus.sort_unstable();
        gpus.dedup();
        let speedup = positive(|| "the speed-up of a worker".into(), worker_speedup)?;
        for (name, count) in [
            ("GPUs of a worker", gpus_per_worker),
            ("samples of a worker", batch_per_worker),
            ("GPUs", gpus.first().copied().ok_or(AccuracyError::Empty { name: "the list of GPU counts" })?),
        ] {
            if count == 0 {
                let name = format!("the number of {name}");
                return Err(AccuracyError::OutOfRange { name, value: "0".into(), expected: "at least 1" });
            }
        }
        let of = |workers: usize| -> Result<(f64, f64), AccuracyError> {
            let epochs = curve.epochs(workers.saturating_mul(batch_per_worker))?.mean;
            let efficiency = efficiency(workers).ok_or(AccuracyError::NoEfficiency { workers })?;
            let name = || format!("the scaling efficiency of {workers} workers");
            Ok((positive(name, efficiency)?, epochs))
        };
        let compare = |gpus: usize| {
            if gpus % gpus_per_worker != 0 {
                return Err(AccuracyError::Indivisible { gpus, gpus_per_worker });
            }
            let workers = gpus / gpus_per_worker;
            let (hybrid_efficiency, hybrid_epochs) = of(workers)?;
            let (data_parallel_efficiency, data_parallel_epochs) = of(gpus)?;
            Ok(Comparison {
                workers,
                gpus_per_worker,
                worker_speedup: speedup,
                hybrid_efficiency,
                data_parallel_efficiency,
                hybrid_epochs,
                data_parallel_epochs,
            })
        };
        let comparisons = gpus.into_iter().map(compare).collect::<Result<_, _>>()?;
        Ok(Self { comparisons })
    }

    /// Returns the comparisons, sorted by the number of GPUs, without duplicates.
    #[must_use]
    pub fn comparisons(&self) -> &[Comparison] {
        &self.comparisons
    }

    /// Returns the comparison on the smallest number of GPUs such that the hybrid job is faster on
    /// it and on all larger numbers compared. `None` if it is not faster on the largest.
    #[must_use]
    pub fn first_hybrid_win(&self) -> Option<&Comparison> {
        let loses = |comparison: &Comparison| comparison.winner() != Winner::Hybrid;
        let from = self.comparisons.iter().rposition(loses).map_or(0, |last| last + 1);
        self.comparisons.get(from)
    }
}

impl fmt::Display for Crossover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for comparison in &self.comparisons {
            writeln!(f, "{comparison}")?;
        }
        match self.first_hybrid_win() {
            Some(comparison) => write!(f, "hybrid wins from {} GPUs on", comparison.gpus()),
            None => f.write_str("hybrid does not win on the largest of these numbers of GPUs"),
        }
    }
}

fn positive(name: impl Fn() -> String, value: f64) -> Result<f64, AccuracyError> {
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    Err(AccuracyError::OutOfRange {
        name: name(),
        value: value.to_string(),
        expected: "a finite number above 0",
    })
}
