//! Scheduling policies. An *idle period* is the time of an iteration in which a GPU of a job does
//! not compute. The *attained* GPU time of a job is that of its completed iterations. A *share* of
//! a job is the fraction of time in which it runs. Sections refer to the cited papers.

use std::time::Duration;

use crate::{Error, Mode};

/// Scheduling policy: which jobs run, on how many GPUs, and which jobs share GPUs. Each rule is a
/// field.
///
/// ```
/// use cluster_scheduler::Policy;
///
/// let careful = Policy::jigsaw(4).with_overlap(0.05);
/// assert_eq!(careful.name, "jigsaw");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Name of the policy in reports.
    pub name: String,
    /// Order in which jobs are considered for GPUs.
    pub order: Order,
    /// Whether a job that does not fit on the free GPUs blocks all jobs after it. Otherwise jobs
    /// that fit may run before it.
    pub blocking: bool,
    /// Permitted parallelization modes, in order of preference. An elastic policy chooses any of
    /// them, others the first one that the table has for the job on its GPUs.
    pub modes: Vec<Mode>,
    /// Rule by which jobs share GPUs.
    pub sharing: Sharing,
    /// Properties of a job that the policy may change at the end of an iteration.
    pub elastic: Elastic,
}

/// Properties that a policy may change at the end of an iteration, beyond the placement.
///
/// A job takes the execution that minimizes t + p n t / g, where t is the duration of an iteration
/// on n of the cluster's g GPUs. The price p is the smallest one for which the number of waiting
/// jobs is minimal; it is 0, which selects the fastest executions, if all jobs fit with those.
/// Remaining GPUs are then used to make jobs faster. On its GPUs, a job takes the execution that
/// minimizes t + w c / g. Here w is the number of waiting jobs, and c is n t less the part of the
/// idle periods that other jobs can use. The second term is the delay of the waiting jobs: each of
/// them waits c / g longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elastic {
    /// Nothing: a job runs on the GPUs that it wants, in the first mode that the table has.
    Fixed,
    /// The mode, on the GPUs that the job wants.
    Modes,
    /// The mode and the number of GPUs, among those that the job allows
    /// ([`Job::other_gpu_counts`](crate::Job::other_gpu_counts)).
    ModesAndGpus,
}

/// Order in which jobs are considered for GPUs.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    /// By arrival time.
    Arrival,
    /// By remaining work, in increasing order: remaining iterations times the duration of an
    /// iteration on the fastest GPUs.
    RemainingTime,
    /// By attained GPU time, in levels: jobs below the first level precede those below the second,
    /// and so on. Within a level, by arrival.
    AttainedService {
        /// GPU times at which a job moves to the next level, in increasing order.
        levels: Vec<Duration>,
    },
    /// By a fair share, which a solver computes, divided by the time for which the job has run
    /// since then, in decreasing order.
    Fair(Fair),
}

/// Parameters of fair shares, which are computed by a solver and realized in rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fair {
    /// Objective that the shares optimize.
    pub objective: Objective,
    /// Interval at which jobs take turns if not all can run.
    pub round: Duration,
    /// Minimum time for which shares remain valid when jobs arrive or leave. Until then a new job
    /// gets GPUs that others leave.
    pub hold: Duration,
}

/// Objective of a fair policy, after Gavel (Narayanan et al., OSDI 2020).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// Maximizes the minimum share of GPU time (section 4.1).
    MaxMin,
    /// Minimizes the maximum ratio of a job's completion time to its time on 1/n of the cluster
    /// (section 4.2, after Themis, Mahajan et al., NSDI 2020).
    FinishTime,
}

/// Sharing of GPUs by jobs. The [executions](crate::Execution) of a table determine which jobs fit
/// together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sharing {
    /// Every GPU runs one job.
    None,
    /// Whole iterations of other jobs run while a job's GPUs do not compute. Either two jobs run on
    /// the same GPUs, so that a GPU that computes long for one computes briefly for the other. Or
    /// one-GPU jobs run in idle periods that are long enough for whole iterations.
    Iterations {
        /// Relative slow-down of iterations on shared GPUs: 0.02 is 2%. An assumption.
        overlap: f64,
    },
    /// Two one-GPU jobs run on the same GPU, at [measured](crate::Table::set_pair_speeds) speeds,
    /// as in Gavel's packing.
    Pairs {
        /// Minimum sum of the two relative speeds (speed beside the other divided by speed alone),
        /// at most 2. 1 is no better than taking turns.
        min_speed_sum: f64,
    },
    /// Work of one-GPU jobs runs in the idle periods of jobs on several GPUs, in pieces of any
    /// length.
    IdlePeriods {
        /// Fraction of an idle period, above 0 and at most 1, that the job in it can use.
        efficiency: f64,
        /// Relative slow-down of iterations whose idle periods are used: 0.01 is 1%. An assumption.
        overlap: f64,
    },
}

/// Levels of attained service: one hour and one day of GPU time.
const LEVELS: [Duration; 2] = [Duration::from_secs(3600), Duration::from_secs(86_400)];

/// Maximum number of burst plans of a frontier.
const FRONTIER: u16 = 64;

impl Policy {
    /// Returns the policy *first come, first served*: a job gets all its GPUs at once, and a job
    /// that does not fit blocks those behind it. The common default of batch systems.
    #[must_use]
    pub fn fifo() -> Self {
        Self {
            name: "fifo".into(),
            order: Order::Arrival,
            blocking: true,
            modes: vec![Mode::DataParallel],
            sharing: Sharing::None,
            elastic: Elastic::Fixed,
        }
    }

    /// Returns the policy *shortest remaining time first*, with preemption at the end of an
    /// iteration (Schrage, "A proof of the optimality of the shortest remaining processing time
    /// discipline", Operations Research 1968, for one server). It knows the durations of jobs in
    /// advance.
    #[must_use]
    pub fn srtf() -> Self {
        Self { name: "srtf".into(), order: Order::RemainingTime, blocking: false, ..Self::fifo() }
    }

    /// Returns the policy *least attained service first*, in levels, with preemption at the end of
    /// an iteration: Tiresias' discretized two-dimensional LAS (Gu et al., NSDI 2019, section 3.3),
    /// with levels at one hour and one day of GPU time. It needs no knowledge of durations.
    #[must_use]
    pub fn least_attained_service() -> Self {
        Self {
            name: "las".into(),
            order: Order::AttainedService { levels: LEVELS.to_vec() },
            blocking: false,
            ..Self::fifo()
        }
    }

    /// Returns the policy *max-min fairness*, after Gavel (Narayanan et al., OSDI 2020, section
    /// 4.1), which maximizes the minimum share of GPU time.
    #[must_use]
    pub fn max_min_fairness() -> Self {
        Self::fair("max-min", Objective::MaxMin)
    }

    /// Returns the policy *finish-time fairness*, after Gavel (OSDI 2020, section 4.2) and Themis
    /// (Mahajan et al., NSDI 2020): it minimizes the maximum ratio of a job's completion time to
    /// its time on 1/n of the cluster, for n jobs.
    #[must_use]
    pub fn finish_time_fairness() -> Self {
        Self::fair("finish-time", Objective::FinishTime)
    }

    fn fair(name: &str, objective: Objective) -> Self {
        // The values of Gavel.
        let (round, hold) = (Duration::from_secs(360), Duration::from_secs(1920));
        let order = Order::Fair(Fair { objective, round, hold });
        Self { name: name.into(), order, blocking: false, ..Self::fifo() }
    }

    /// Returns [least attained service](Self::least_attained_service) with whole iterations of
    /// other jobs while a job's GPUs wait for communication.
    #[must_use]
    pub fn iteration_level() -> Self {
        Self {
            name: "iteration-level".into(),
            sharing: Sharing::Iterations { overlap: 0.02 },
            ..Self::least_attained_service()
        }
    }

    /// Returns the policy of `JigSaw` (arXiv 2111.10672), as inferred from its abstract:
    /// [`iteration_level`](Self::iteration_level) with structured partial backpropagation in
    /// `parts` parts, and iterations of other jobs in the idle periods that it leaves.
    #[must_use]
    pub fn jigsaw(parts: u16) -> Self {
        let modes = vec![Mode::Spb(parts), Mode::DataParallel];
        Self { name: "jigsaw".into(), modes, ..Self::iteration_level() }
    }

    /// Returns the policy of Gavel's packing (OSDI 2020, section 3.1): [least attained
    /// service](Self::least_attained_service), where a one-GPU job without a GPU runs beside
    /// another one if their measured relative speeds sum to at least 1.5.
    #[must_use]
    pub fn measured_pairs() -> Self {
        let sharing = Sharing::Pairs { min_speed_sum: 1.5 };
        Self { name: "pairs".into(), sharing, ..Self::least_attained_service() }
    }

    /// Returns the policy of burst parallelism (`DeepPool`, Park et al., MLSys 2022): a job takes
    /// the best burst plan of the frontiers of all permitted numbers of GPUs (the first 64 plans of
    /// each), or data parallelism if that is better. One-GPU jobs run in the idle periods of such
    /// plans, or on separate GPUs if available. [`Elastic`] defines the criterion.
    #[must_use]
    pub fn burst() -> Self {
        Self {
            name: "burst".into(),
            modes: (0..FRONTIER).map(Mode::Burst).chain([Mode::DataParallel]).collect(),
            sharing: Sharing::IdlePeriods { efficiency: 0.9, overlap: 0.01 },
            elastic: Elastic::ModesAndGpus,
            ..Self::least_attained_service()
        }
    }

    /// Returns [`burst`](Self::burst) with every job on the GPUs that it wants: only the plan is
    /// chosen.
    #[must_use]
    pub fn burst_fixed() -> Self {
        Self { name: "burst-fixed".into(), elastic: Elastic::Modes, ..Self::burst() }
    }

    /// Returns the policy of static partitions: [`burst`](Self::burst) with data parallelism only
    /// and without sharing. The number of GPUs of each job is chosen, and each GPU runs one job.
    #[must_use]
    pub fn partition() -> Self {
        Self { name: "partition".into(), elastic: Elastic::ModesAndGpus, ..Self::least_attained_service() }
    }

    /// Sets the relative slow-down of shared GPUs (0.02 is 2%), if the policy has one that is not
    /// measured.
    #[must_use]
    pub fn with_overlap(mut self, part: f64) -> Self {
        match &mut self.sharing {
            Sharing::None | Sharing::Pairs { .. } => {}
            Sharing::Iterations { overlap } | Sharing::IdlePeriods { overlap, .. } => *overlap = part,
        }
        self
    }

    /// Sets the interval at which jobs take turns ([`Fair::round`]) and the minimum validity of
    /// shares ([`Fair::hold`]), if the policy is a fair one.
    #[must_use]
    pub fn with_rounds(mut self, round: Duration, hold: Duration) -> Self {
        if let Order::Fair(fair) = &mut self.order {
            (fair.round, fair.hold) = (round, hold);
        }
        self
    }

    /// Checks the values of the policy.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if a value is outside its range.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let bad = |name, value: String, expected| Err(Error::OutOfRange { name, value, expected });
        let (overlap, efficiency) = match self.sharing {
            Sharing::None | Sharing::Pairs { .. } => (0.0, 1.0),
            Sharing::Iterations { overlap } => (overlap, 1.0),
            Sharing::IdlePeriods { efficiency, overlap } => (overlap, efficiency),
        };
        if !(0.0..=10.0).contains(&overlap) {
            return bad("the slow-down by sharing", overlap.to_string(), "from 0 to 10");
        }
        if !(efficiency > 0.0 && efficiency <= 1.0) {
            return bad("the fraction of gaps that is used", efficiency.to_string(), "more than 0, up to 1");
        }
        if let Sharing::Pairs { min_speed_sum } = self.sharing {
            if !(min_speed_sum > 0.0 && min_speed_sum <= 2.0) {
                let value = min_speed_sum.to_string();
                return bad("the minimum sum of the speeds of a pair", value, "more than 0, up to 2");
            }
        }
        match &self.order {
            Order::AttainedService { levels } if !levels.is_sorted() => {
                bad("levels of attained service", format!("{levels:?}"), "increasing times")
            }
            Order::Fair(fair) if fair.round.is_zero() => {
                bad("a round of a fair policy", "0".into(), "more than 0")
            }
            _ => Ok(()),
        }
    }
}
