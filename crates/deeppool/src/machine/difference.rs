//! Difference between a simulated and a measured iteration, by layer and by collective.

use std::collections::HashMap;
use std::time::Duration;

use layer_graph::LayerGraph;

use super::observed::{ObservedCollective, ObservedTimes, Phase};
use crate::Error;
use crate::costs::Costs;
use crate::program::Program;
use crate::simulate::{SimulateOptions, simulate};
use crate::timeline::Timeline;

/// Part of an iteration with its simulated and its measured time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DifferenceRow {
    /// Name of the layer, or label of the collective.
    pub name: String,
    /// Part of the iteration.
    pub part: IterationPart,
    /// Simulated time: the median over the ranks.
    pub simulated: Duration,
    /// Measured time: the median over the ranks and iterations.
    pub measured: Duration,
    /// First and third quartile of the measured time over the ranks and iterations.
    pub quartiles: (Duration, Duration),
}

/// Part of an iteration to which a difference belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IterationPart {
    /// All steps of a layer on a rank.
    Layer,
    /// Transfer of a collective, without the time in which a rank computed meanwhile.
    Transfer,
    /// Time from the arrival of the first rank at a collective to that of the last one.
    Wait,
}

impl DifferenceRow {
    /// Returns the measured minus the simulated time in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.measured.as_secs_f64() - self.simulated.as_secs_f64()
    }
}

/// Compares a measured timeline of a program with its simulation. `options` are those of the
/// simulation. Returns a row for each layer, transfer and wait that takes time, by descending
/// absolute difference.
///
/// # Errors
/// As [`simulate`](crate::simulate::simulate()).
pub fn difference(
    program: &Program,
    costs: &Costs<'_>,
    options: &SimulateOptions,
    measured: &Timeline,
) -> Result<Vec<DifferenceRow>, Error> {
    let simulation = simulate(program, costs, &options.clone().with_timeline(true))?;
    let Some(simulated) = simulation.timeline else { return Ok(Vec::new()) };
    let simulated = ObservedTimes::new(program, &simulated);
    let measured = ObservedTimes::new(program, measured);
    let mut rows = layer_rows(costs.network(), &simulated, &measured);
    let transfers = simulated.collectives().into_iter().zip(measured.collectives());
    for (collective, (simulated, measured)) in program.collectives.iter().zip(transfers) {
        let mut add = |part, of: fn(&ObservedCollective) -> Duration| {
            let times = |observed: &[ObservedCollective]| observed.iter().map(of).collect();
            rows.push(row(collective.label.clone(), part, times(&simulated), times(&measured)));
        };
        add(IterationPart::Transfer, |of| of.transfer);
        add(IterationPart::Wait, |of| of.wait);
    }
    rows.retain(|row| !row.simulated.is_zero() || !row.measured.is_zero());
    rows.sort_by(|a, b| b.seconds().abs().total_cmp(&a.seconds().abs()));
    Ok(rows)
}

fn layer_rows(
    network: &LayerGraph,
    simulated: &ObservedTimes<'_>,
    measured: &ObservedTimes<'_>,
) -> Vec<DifferenceRow> {
    let (simulated, measured) = (simulated.layers(network), measured.layers(network));
    let of_layer = |(id, layer): (_, &layer_graph::Layer)| {
        // The phases are of the same ranks and iterations in the same order.
        let sums = |times: &HashMap<(_, Phase), Vec<Duration>>| {
            let mut sums: Vec<Duration> = Vec::new();
            for phase in [Phase::Forward, Phase::Backward, Phase::Update] {
                let times = times.get(&(id, phase)).map_or(&[][..], Vec::as_slice);
                sums.resize(sums.len().max(times.len()), Duration::ZERO);
                sums.iter_mut().zip(times).for_each(|(sum, time)| *sum += *time);
            }
            sums
        };
        row(layer.name().to_owned(), IterationPart::Layer, sums(&simulated), sums(&measured))
    };
    network.computing_layers().map(of_layer).collect()
}

fn row(
    name: String,
    part: IterationPart,
    mut simulated: Vec<Duration>,
    mut measured: Vec<Duration>,
) -> DifferenceRow {
    simulated.sort_unstable();
    measured.sort_unstable();
    let at = |times: &[Duration], quarter: usize| {
        times.get(times.len().saturating_sub(1) * quarter / 4).copied().unwrap_or_default()
    };
    DifferenceRow {
        name,
        part,
        simulated: at(&simulated, 2),
        measured: at(&measured, 2),
        quartiles: (at(&measured, 1), at(&measured, 3)),
    }
}
