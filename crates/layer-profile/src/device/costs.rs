//! Costs of a device in a device model. A *term* is a resource that work uses, such as kernel
//! launches or megabytes moved; a *demand* is the amounts of the terms that work uses; a *cost* is
//! the time for one unit of a term.

use std::collections::BTreeMap;
use std::time::Duration;

use super::demand::Demand;
use super::duration;
use super::term::Term;
use crate::Gpu;

/// Costs of a device: time in microseconds for one unit of each term. Holds every term, with a
/// non-negative cost.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Costs(BTreeMap<Term, f64>);

impl Costs {
    /// Creates the costs from a function that returns the cost of a term in microseconds for one
    /// unit. Returns the function's first error, if any.
    pub(super) fn try_new<E>(mut cost_us: impl FnMut(Term) -> Result<f64, E>) -> Result<Self, E> {
        let costs = Term::all().into_iter().map(|term| Ok((term, cost_us(term)?)));
        Ok(Self(costs.collect::<Result<_, E>>()?))
    }

    /// Creates the costs from the cost of each term in microseconds for one unit.
    pub(super) fn new(mut cost_us: impl FnMut(Term) -> f64) -> Self {
        Self(Term::all().into_iter().map(|term| (term, cost_us(term))).collect())
    }

    /// Returns the cost of a term in microseconds for one unit.
    pub(super) fn cost_us(&self, term: Term) -> f64 {
        self.0.get(&term).copied().unwrap_or_default()
    }

    /// Returns each term with its cost in microseconds for one unit.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Term, f64)> + '_ {
        self.0.iter().map(|(&term, &cost)| (term, cost))
    }

    /// Returns the time of a demand in microseconds: the sum of its amounts times their costs.
    pub(super) fn time_us(&self, demand: &Demand) -> f64 {
        demand.amounts().map(|(term, amount)| amount * self.cost_us(term)).sum()
    }

    /// Returns the time of a demand, as a duration.
    pub(super) fn time(&self, demand: &Demand) -> Duration {
        duration(self.time_us(demand) / 1e6)
    }

    /// Returns the costs on the GPU `to`, from those on the GPU `from`: each is scaled by the ratio
    /// of their peak rates for the resource that the term uses.
    pub(super) fn scaled(&self, from: &Gpu, to: &Gpu) -> Self {
        let scale = |term: Term| {
            let (unit, _) = term.default_cost();
            unit.peak_us(to) / unit.peak_us(from)
        };
        Self(self.iter().map(|(term, cost)| (term, cost * scale(term))).collect())
    }
}
