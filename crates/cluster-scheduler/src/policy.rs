use std::time::Duration;

use crate::{Error, Mode};

/// Which jobs run, on how many GPUs, and what shares them. A value: each rule is a field.
///
/// ```
/// use cluster_scheduler::Policy;
///
/// let careful = Policy::jigsaw(4).with_overlap(0.05);
/// assert_eq!(careful.name, "jigsaw");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// What it is called in reports.
    pub name: String,
    /// Who goes first.
    pub order: Order,
    /// Whether a job that does not fit holds up all that come after it. Otherwise those that fit go ahead.
    pub blocking: bool,
    /// How jobs may be parallelised: the first of these that the table has on an allocation, or for an elastic policy any of them.
    pub modes: Vec<Mode>,
    /// Whether jobs may share GPUs, and how.
    pub sharing: Sharing,
    /// What a job may change at the end of an iteration.
    pub elastic: Elastic,
}

/// What a job may change at the end of an iteration, beside its place.
///
/// Of its executions a job takes that with the smallest t + p n t / g, where t is an iteration's time on n of the cluster's g GPUs. The price p is the smallest at
/// which as few jobs wait as possible: 0, and the fastest executions, where all jobs fit with those. GPUs that are left then make jobs faster. On the
/// GPUs that it has, a job takes the execution with the smallest t + w c / g, where w jobs wait, and c is n t without the part of gaps that others can have:
/// GPU time that it takes from others delays each of them by a g-th of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elastic {
    /// Nothing: it runs on the GPUs that it wants, in the first of the modes that the table has.
    No,
    /// Its mode, on the GPUs that it wants.
    Modes,
    /// Its mode and its number of GPUs, of those that it allows ([`Job::also`](crate::Job::also)).
    ModesAndGpus,
}

/// Who goes first.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    /// Who came first.
    Arrival,
    /// Who has the least to do: remaining iterations times their time, on the fastest GPUs for it.
    RemainingTime,
    /// Who has had the least GPU time, in levels: who has had less than the first is before all others, who has had less than the
    /// second before the rest, and so on. Within a level, who came first.
    AttainedService {
        /// GPU time at which a job goes from a level to the next, in rising order.
        levels: Vec<Duration>,
    },
    /// Who has had the least of a fair share, which a solver finds.
    Fair(Fair),
}

/// Fair shares, which are found by a solver and realised in rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fair {
    /// What is fair.
    pub objective: Objective,
    /// How often jobs take turns, where not all can run.
    pub round: Duration,
    /// How long shares hold at least, also when jobs come and go: until then a new job gets what others leave.
    pub hold: Duration,
}

/// What is fair, after Gavel (Narayanan et al., OSDI 2020).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// The smallest share of GPU time is the largest possible (section 4.1).
    MaxMin,
    /// The largest ratio between the time that a job takes and what it would take on its own 1/n of the cluster is the
    /// smallest possible (section 4.2, after Themis, Mahajan et al., NSDI 2020).
    FinishTime,
}

/// How jobs share GPUs. What shares, and how, follows from the [executions](crate::Execution) of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sharing {
    /// A GPU is one job's.
    None,
    /// Whole iterations of others go where a job's GPUs have nothing to compute: two jobs on the same GPUs, the long parts of one
    /// beside the short parts of the other, or jobs on one GPU each, in slots that are long enough for whole iterations of theirs.
    Iterations {
        /// The part by which work gets slower on GPUs that are shared; an assumption.
        overlap: f64,
    },
    /// Two jobs on one GPU each run on the same one, at the speeds that were [measured](crate::Table::set_together) of such pairs, as Gavel's packing has it.
    Pairs {
        /// What the parts of their speeds alone add up to at least; 1 is no better than taking turns.
        least: f64,
    },
    /// Work of jobs on one GPU goes in the gaps of those on several, in pieces that fit whatever their iterations take.
    Gaps {
        /// The part of a gap that the job in it gets.
        efficiency: f64,
        /// The part by which iterations get slower whose gaps are used.
        overlap: f64,
    },
}

/// Levels of attained service: an hour of GPU time, and a day.
const LEVELS: [Duration; 2] = [Duration::from_secs(3600), Duration::from_secs(86_400)];

/// Burst plans of a frontier that are looked for.
const FRONTIER: u16 = 64;

impl Policy {
    /// First come, first served, each job on all its GPUs at once or not at all; who does not fit blocks those behind. The
    /// common default of batch systems.
    #[must_use]
    pub fn fifo() -> Self {
        Self {
            name: "fifo".into(),
            order: Order::Arrival,
            blocking: true,
            modes: vec![Mode::DataParallel],
            sharing: Sharing::None,
            elastic: Elastic::No,
        }
    }

    /// Shortest remaining time first, preempting at the end of an iteration (Schrage, "A proof of the optimality of the shortest
    /// remaining processing time discipline", Operations Research 1968, for one server). It knows how long jobs will take.
    #[must_use]
    pub fn srtf() -> Self {
        Self { name: "srtf".into(), order: Order::RemainingTime, blocking: false, ..Self::fifo() }
    }

    /// Least attained service first, in levels, preempting at the end of an iteration: Tiresias' discretised two-dimensional
    /// LAS (Gu et al., NSDI 2019, section 3.3), with levels at an hour and a day of GPU time. It knows nothing of the future.
    #[must_use]
    pub fn least_attained_service() -> Self {
        Self {
            name: "las".into(),
            order: Order::AttainedService { levels: LEVELS.to_vec() },
            blocking: false,
            ..Self::fifo()
        }
    }

    /// Max-min fairness, after Gavel (Narayanan et al., OSDI 2020, section 4.1): the least that a job gets of the GPUs' time
    /// is the most possible.
    #[must_use]
    pub fn max_min_fairness() -> Self {
        Self::fair("max-min", Objective::MaxMin)
    }

    /// Finish-time fairness, after Gavel (OSDI 2020, section 4.2) and Themis (Mahajan et al., NSDI 2020).
    #[must_use]
    pub fn finish_time_fairness() -> Self {
        Self::fair("finish-time", Objective::FinishTime)
    }

    fn fair(name: &str, objective: Objective) -> Self {
        // As Gavel has them.
        let (round, hold) = (Duration::from_secs(360), Duration::from_secs(1920));
        let order = Order::Fair(Fair { objective, round, hold });
        Self { name: name.into(), order, blocking: false, ..Self::fifo() }
    }

    /// Scheduling by the iteration without SPB: as [least attained service](Self::least_attained_service), and other jobs'
    /// iterations run while a job's GPUs wait for its communication.
    #[must_use]
    pub fn iteration_level() -> Self {
        Self {
            name: "iteration-level".into(),
            sharing: Sharing::Iterations { overlap: 0.02 },
            ..Self::least_attained_service()
        }
    }

    /// `JigSaw` (arXiv 2111.10672), in our reading of its abstract: as [`iteration_level`](Self::iteration_level), with jobs under
    /// structured partial backpropagation with so many parts, and other jobs' iterations in the slots that it leaves.
    #[must_use]
    pub fn jigsaw(parts: u16) -> Self {
        let modes = vec![Mode::Spb(parts), Mode::DataParallel];
        Self { name: "jigsaw".into(), modes, ..Self::iteration_level() }
    }

    /// Pairs of jobs on one GPU, as Gavel packs them (OSDI 2020, section 3.1): as [least attained service](Self::least_attained_service), and who has no GPU
    /// runs beside another, where what was measured of both adds up to at least 1.5 of their speeds alone.
    #[must_use]
    pub fn measured_pairs() -> Self {
        let sharing = Sharing::Pairs { least: 1.5 };
        Self { name: "pairs".into(), sharing, ..Self::least_attained_service() }
    }

    /// Burst parallelism (`DeepPool`, Park et al., MLSys 2022): jobs take the burst plan that pays of those on the frontiers for each number of GPUs (the
    /// first 64 points of each), or data parallelism where that is better, and jobs on one GPU run in their gaps, or on GPUs of their own where there are
    /// any. What pays is in [`Elastic`].
    #[must_use]
    pub fn burst() -> Self {
        Self {
            name: "burst".into(),
            modes: (0..FRONTIER).map(Mode::Burst).chain([Mode::DataParallel]).collect(),
            sharing: Sharing::Gaps { efficiency: 0.9, overlap: 0.01 },
            elastic: Elastic::ModesAndGpus,
            ..Self::least_attained_service()
        }
    }

    /// The same with every job on the GPUs that it wants: what is chosen is the plan.
    #[must_use]
    pub fn burst_fixed() -> Self {
        Self { name: "burst-fixed".into(), elastic: Elastic::Modes, ..Self::burst() }
    }

    /// Static partitions: as [`burst`](Self::burst), by data parallelism and without sharing: jobs on as many GPUs as pay, and each GPU one
    /// job's.
    #[must_use]
    pub fn partition() -> Self {
        Self { name: "partition".into(), elastic: Elastic::ModesAndGpus, ..Self::least_attained_service() }
    }

    /// The same policy where sharing a GPU slows work down by another part, if that is not measured.
    #[must_use]
    pub fn with_overlap(mut self, part: f64) -> Self {
        match &mut self.sharing {
            Sharing::None | Sharing::Pairs { .. } => {}
            Sharing::Iterations { overlap } | Sharing::Gaps { overlap, .. } => *overlap = part,
        }
        self
    }

    /// The same policy where jobs take turns at another pace and shares hold for so long, if it is a fair one.
    #[must_use]
    pub fn with_rounds(mut self, round: Duration, hold: Duration) -> Self {
        if let Order::Fair(fair) = &mut self.order {
            (fair.round, fair.hold) = (round, hold);
        }
        self
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let bad = |name, value: String, expected| Err(Error::BadFigure { name, value, expected });
        let (overlap, efficiency) = match self.sharing {
            Sharing::None | Sharing::Pairs { .. } => (0.0, 1.0),
            Sharing::Iterations { overlap } => (overlap, 1.0),
            Sharing::Gaps { efficiency, overlap } => (overlap, efficiency),
        };
        if !(0.0..=10.0).contains(&overlap) {
            return bad("the cost of sharing", overlap.to_string(), "a part from 0 to 10");
        }
        if !(efficiency > 0.0 && efficiency <= 1.0) {
            return bad("the part of gaps that is used", efficiency.to_string(), "more than 0, up to 1");
        }
        if let Sharing::Pairs { least } = self.sharing {
            if !(least > 0.0 && least <= 2.0) {
                return bad("what the speeds of a pair add up to", least.to_string(), "more than 0, up to 2");
            }
        }
        match &self.order {
            Order::AttainedService { levels } if !levels.is_sorted() => {
                bad("levels of attained service", format!("{levels:?}"), "rising times")
            }
            Order::Fair(fair) if fair.round.is_zero() => {
                bad("a round of a fair policy", "0".into(), "more than 0")
            }
            _ => Ok(()),
        }
    }
}
