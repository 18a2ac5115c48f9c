use std::collections::BTreeMap;

use super::Observations;
use super::observations::Observation;

/// How far predictions are from the observations of one network. Errors are relative: 0.1 is 10% too long, -0.1 too short.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NetworkErrors {
    /// The network.
    pub network: String,
    /// By row and batch size, as (row, batch, error), in the order of the observations.
    pub rows: Vec<(String, usize, f64)>,
    /// Of the whole network, as (batch, error), by batch size.
    pub whole: Vec<(usize, f64)>,
}

impl NetworkErrors {
    /// The median of the rows' errors without their signs.
    #[must_use]
    pub fn median(&self) -> f64 {
        median(self.rows.iter().map(|row| row.2.abs()))
    }

    /// The largest error of the whole network, without its sign.
    #[must_use]
    pub fn worst(&self) -> f64 {
        self.whole.iter().map(|row| row.1.abs()).fold(0.0, f64::max)
    }
}

/// The median, 0 of nothing; of an even number the smaller of the two in the middle.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

/// The errors by network of the predictions, in microseconds, for the observations that it knows.
pub(super) fn errors(
    observations: &Observations,
    predict_us: impl Fn(&Observation) -> Option<f64>,
) -> Vec<NetworkErrors> {
    let mut networks = Vec::new();
    for network in observations.networks() {
        let mut order = Vec::new();
        let mut rows = BTreeMap::<_, [f64; 2]>::new();
        let mut whole = BTreeMap::<_, [f64; 2]>::new();
        for row in observations.rows().iter().filter(|row| row.network == network) {
            let Some(predicted) = predict_us(row) else { continue };
            let key = (row.row.as_str(), row.batch);
            let sum = rows.entry(key).or_insert_with(|| {
                order.push(key);
                [0.0; 2]
            });
            let both = [sum, whole.entry(row.batch).or_default()];
            for [sum, measured] in both {
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

/// Shorter times than this, in microseconds, are not told apart.
pub(super) const RESOLUTION_US: f64 = 0.1;
