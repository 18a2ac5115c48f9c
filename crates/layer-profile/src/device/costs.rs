use std::collections::BTreeMap;
use std::time::Duration;

use super::demand::Demand;
use super::term::Term;
use super::{DataSheet, duration};

/// What a device takes for one unit of each term, in microseconds: all terms, none of them negative.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Costs(BTreeMap<Term, f64>);

impl Costs {
    /// Costs by term; what `cost_us` does not know is an error of its own.
    pub(super) fn try_new<E>(mut cost_us: impl FnMut(Term) -> Result<f64, E>) -> Result<Self, E> {
        let costs = Term::all().into_iter().map(|term| Ok((term, cost_us(term)?)));
        Ok(Self(costs.collect::<Result<_, E>>()?))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Term, f64)> + '_ {
        self.0.iter().map(|(&term, &cost)| (term, cost))
    }

    pub(super) fn time_us(&self, demand: &Demand) -> f64 {
        demand.amounts().map(|(term, amount)| amount * self.0.get(&term).copied().unwrap_or_default()).sum()
    }

    pub(super) fn time(&self, demand: &Demand) -> Duration {
        duration(self.time_us(demand) / 1e6)
    }

    /// The costs on another device, where each kind of unit is as much cheaper as the data sheets say.
    pub(super) fn scaled(&self, from: &DataSheet, to: &DataSheet) -> Self {
        let scale = |term: Term| {
            let (unit, _) = term.textbook();
            unit.peak_us(to) / unit.peak_us(from)
        };
        Self(self.iter().map(|(term, cost)| (term, cost * scale(term))).collect())
    }
}
