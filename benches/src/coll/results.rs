//! Conversion of samples into a report.

use crate::coll::backend::Implementation;
use crate::coll::machine;
use crate::coll::rounds::Series;
use crate::coll::timing::Samples;
use crate::coll::{CollReport, CollRow};
use crate::statistics::Distribution;

/// Creates a report with one row for each series that has samples. Copies have no rows; they are
/// columns of the rows that are compared with them.
pub(crate) fn report(all: &[Series]) -> CollReport {
    let rows = all
        .iter()
        .filter(|series| !matches!(series.implementation, Implementation::Copy | Implementation::StridedCopy))
        .filter_map(|series| row(series, all));
    let mut rows: Vec<CollRow> = rows.collect();
    // The sort is stable: implementations stay in the requested order.
    rows.sort_by_key(|row| (row.op, row.ranks, row.bytes));
    CollReport::new(machine::describe(), rows)
}

/// Returns the row of a series, or `None` without samples.
fn row(series: &Series, all: &[Series]) -> Option<CollRow> {
    let samples = series.rounds.iter().map(|samples| samples.times_us.len()).sum();
    let times_us =
        Distribution::of(series.rounds.iter().flat_map(|samples| samples.times_us.iter().copied()))?;
    let time_us = times_us.median();
    let same = |implementation: Implementation| {
        all.iter().find(|other| {
            other.implementation == implementation
                && (other.operation, other.ranks, other.bytes)
                    == (series.operation, series.ranks, series.bytes)
        })
    };
    let [copy, strided] = [Implementation::Copy, Implementation::StridedCopy].map(same);
    let peer = same(Implementation::OpenMpi).filter(|_| series.implementation != Implementation::OpenMpi);
    let operations = series.rounds.iter().map(|samples| samples.iterations * samples.times_us.len() as u64);
    Some(CollRow {
        backend: series.implementation.backend().to_owned(),
        wait: series.implementation.wait().map(|wait| wait.name().to_owned()),
        op: series.operation,
        ranks: series.ranks,
        bytes: series.bytes,
        time_us,
        time_p10_us: times_us.percentile(0.1),
        time_p90_us: times_us.percentile(0.9),
        bus_bandwidth_gb_s: series
            .operation
            .bus_factor(series.ranks)
            .map(|factor| factor * series.bytes as f64 / time_us / 1e3),
        samples,
        iterations: operations.sum(),
        copy_us: copy.and_then(|copy| median(round_medians(copy))),
        copy_bound_share: copy.and_then(|copy| ratio(copy, series)),
        strided_copy_us: strided.and_then(|copy| median(round_medians(copy))),
        speedup_over_open_mpi: peer.and_then(|peer| ratio(peer, series)),
    })
}

/// Returns the median over the rounds of the first series' time divided by the second's.
fn ratio(first: &Series, second: &Series) -> Option<f64> {
    let pairs = round_medians(first).zip(round_medians(second));
    median(pairs.map(|(first, second)| first / second))
}

fn round_medians(series: &Series) -> impl Iterator<Item = f64> {
    series.rounds.iter().filter_map(|Samples { times_us, .. }| median(times_us.iter().copied()))
}

fn median(figures: impl Iterator<Item = f64>) -> Option<f64> {
    Distribution::of(figures).map(|figures| figures.median())
}
