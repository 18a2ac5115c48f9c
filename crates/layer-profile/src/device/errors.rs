//! Errors of predicted times on measurements. A *row* is a layer, or several layers that were
//! measured together.

use std::collections::BTreeMap;

use super::Observations;
use super::observations::Observation;

/// Errors of predictions for one network. They are relative: 0.1 is 10% too long, -0.1 is 10% too
/// short.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NetworkErrors {
    /// Name of the network.
    pub network: String,
    /// Errors of the rows at each batch size, in the order of the observations, as (name of the
    /// row, batch size in samples, error). The times of all observed passes of a row are added
    /// first.
    pub rows: Vec<(String, usize, f64)>,
    /// Errors of the whole network as (batch size in samples, error), by ascending batch size.
    pub whole: Vec<(usize, f64)>,
}

impl NetworkErrors {
    /// Returns the median of the rows' absolute errors, over all rows and batch sizes. 0 if there
    /// are none.
    #[must_use]
    pub fn median(&self) -> f64 {
        median(self.rows.iter().map(|row| row.2.abs()))
    }

    /// Returns the maximum absolute error of the whole network over the batch sizes. 0 if there are
    /// none.
    #[must_use]
    pub fn max_error(&self) -> f64 {
        self.whole.iter().map(|row| row.1.abs()).fold(0.0, f64::max)
    }
}

/// Returns the median, or the lower of the two middle values of an even number, or 0 if there are
/// none.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

/// Computes the errors of predictions, one entry for each network. `predict_us` returns the
/// predicted time of an observation in microseconds, or `None` to skip the observation. A network
/// whose observations are all skipped has no entry.
pub(super) fn errors(
    observations: &Observations,
    predict_us: impl Fn(&Observation) -> Option<f64>,
) -> Vec<NetworkErrors> {
    let mut networks = Vec::new();
    for network in observations.networks() {
        let mut order = Vec::new();
        let mut rows = BTreeMap::<_, [f64; 2]>::new();
        let mut whole = BTreeMap::<_, [f64; 2]>::new();
        let of_network = || observations.rows().iter().filter(|row| row.network == network);
        // Where whole iterations were measured, the sums of other rows are no errors of the
        // network.
        let are_iterations = of_network().any(|row| row.is_whole);
        for row in of_network() {
            let Some(predicted) = predict_us(row) else { continue };
            let key = (row.row.as_str(), row.batch);
            let sum = rows.entry(key).or_insert_with(|| {
                order.push(key);
                [0.0; 2]
            });
            let whole = (row.is_whole || !are_iterations).then(|| whole.entry(row.batch).or_insert([0.0; 2]));
            for [sum, measured] in [Some(sum), whole].into_iter().flatten() {
                *sum += predicted;
                *measured += row.time_us;
            }
        }
        if order.is_empty() {
            continue;
        }
        let relative = |predicted: f64, measured: f64| predicted / measured.max(RESOLUTION_US) - 1.0;
        networks.push(NetworkErrors {
            network: network.into(),
            rows: order
                .into_iter()
                .map(|key| (key.0.to_owned(), key.1, relative(rows[&key][0], rows[&key][1])))
                .collect(),
            whole: whole
                .into_iter()
                .map(|(batch, [predicted, sum])| {
                    let measured = observations.whole_us(network, batch).unwrap_or(sum);
                    (batch, relative(predicted, measured))
                })
                .collect(),
        });
    }
    networks
}

/// Minimum divisor of relative errors, in microseconds. It replaces shorter measured times.
pub(super) const RESOLUTION_US: f64 = 0.1;
