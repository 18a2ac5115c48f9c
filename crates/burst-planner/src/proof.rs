//! Proofs: lower bounds of the iteration time within a budget of work.

use std::str::FromStr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{Error, Stop};

/// Operations of a proof by default, per evaluation of the search.
const OPERATIONS_PER_EVALUATION: u64 = 200;
/// Minimum number of operations of a proof by default.
const MIN_OPERATIONS: u64 = 100_000;
/// Number of operations after which the clock and the switch are read again.
const CHECK_INTERVAL: u64 = 20_000;

/// Budget of a proof. An *operation* is the examination of one pair of GPU counts, or of a label,
/// which has lower bounds for a part of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ProofBudget {
    /// No proof: the bound is 0.
    Off,
    /// A fixed multiple of the search's evaluations. The bound is the same on every machine.
    #[default]
    Default,
    /// Maximum number of operations. The bound is the same on every machine.
    Operations(u64),
    /// Maximum duration. The bound depends on the machine and its load.
    Time(Duration),
}

impl ProofBudget {
    /// Returns whether the same problem gives the same bound on every machine.
    #[must_use]
    pub fn is_reproducible(self) -> bool {
        !matches!(self, Self::Time(_))
    }
}

impl FromStr for ProofBudget {
    type Err = Error;

    /// Parses `off`, `default`, or a duration in `ms`, `s` or `min`, such as `30s`.
    ///
    /// # Errors
    /// [`Error::BadProofBudget`] for other text.
    fn from_str(text: &str) -> Result<Self, Error> {
        let duration = || {
            let begin = text.find(|c: char| c.is_ascii_alphabetic())?;
            let seconds = match &text[begin..] {
                "ms" => 1e-3,
                "s" => 1.0,
                "min" => 60.0,
                _ => return None,
            };
            let duration = seconds * text[..begin].trim().parse::<f64>().ok()?;
            Duration::try_from_secs_f64(duration).ok().filter(|duration| !duration.is_zero())
        };
        match text {
            "off" => Ok(Self::Off),
            "default" => Ok(Self::Default),
            _ => duration().map(Self::Time).ok_or_else(|| Error::BadProofBudget { text: text.into() }),
        }
    }
}

/// Reason for the end of a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ProofEnd {
    /// The budget is [`ProofBudget::Off`].
    Off,
    /// The bound equals the time of the plan, which is optimal.
    Optimal,
    /// More work does not raise the bound.
    Complete,
    /// The operations of the budget are spent.
    Budget,
    /// The time of the budget is over.
    Time,
    /// The proof was [stopped](Stop).
    Stopped,
}

/// A lower bound of the iteration time, and the work of its proof.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct LowerBound {
    /// The bound, microseconds; 0 if nothing is proved.
    pub us: f64,
    /// Number of [operations](crate::ProofBudget) of the proof.
    pub operations: u64,
    /// Reason for the end of the proof.
    pub end: ProofEnd,
}

/// Work of a proof so far, and its limits.
pub(crate) struct Work<'s> {
    /// Number of operations so far.
    pub(crate) operations: u64,
    max_operations: u64,
    deadline: Option<Instant>,
    /// Number of operations at which the clock and the switch are read.
    next_check: u64,
    stop: &'s Stop,
}

impl<'s> Work<'s> {
    /// Creates the work of a proof for a search of `evaluations` evaluations. `stop` ends it.
    pub(crate) fn new(budget: ProofBudget, evaluations: u64, stop: &'s Stop) -> Self {
        let (max_operations, deadline) = match budget {
            ProofBudget::Off => (0, None),
            ProofBudget::Default => {
                let operations = evaluations.saturating_mul(OPERATIONS_PER_EVALUATION);
                (operations.max(MIN_OPERATIONS), None)
            }
            ProofBudget::Operations(operations) => (operations, None),
            ProofBudget::Time(duration) => (u64::MAX, Instant::now().checked_add(duration)),
        };
        Self { operations: 0, max_operations, deadline, next_check: 0, stop }
    }

    /// Counts operations. Returns an error with the reason if the proof ends here.
    pub(crate) fn spend(&mut self, operations: u64) -> Result<(), ProofEnd> {
        self.operations = self.operations.saturating_add(operations);
        if self.operations > self.max_operations {
            return Err(ProofEnd::Budget);
        }
        if self.operations >= self.next_check {
            self.next_check = self.operations + CHECK_INTERVAL;
            self.stop.set_proof(self.operations, None);
            if self.stop.is_stopped() {
                return Err(ProofEnd::Stopped);
            }
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(ProofEnd::Time);
            }
        }
        Ok(())
    }

    /// Shows a bound to other threads, microseconds.
    pub(crate) fn report(&self, lower_bound_us: f64) {
        self.stop.set_proof(self.operations, Some(lower_bound_us));
    }

    /// Returns the number of operations that are left.
    pub(crate) fn left(&self) -> u64 {
        self.max_operations.saturating_sub(self.operations)
    }
}
