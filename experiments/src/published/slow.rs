//! Slow suites: software that is clearly slower than others on the same networks and GPUs.

use std::collections::{BTreeMap, BTreeSet};

use layer_profile::{NetworkFamily, NumberFormat};

use super::machine::Gpu;
use super::network::Network;
use super::question::{PublishedStep, QuestionSet};

/// Relative throughput below which a suite is slow.
pub(super) const LIMIT: f64 = 0.85;

/// A suite on one kind of GPU, with one precision and one family of networks.
pub(super) type SuiteUse = (String, Gpu, NumberFormat, NetworkFamily);

/// Returns the suite, GPU, precision and family of a row. The V100 of a DGX-2 count as V100.
pub(super) fn suite_use(step: &PublishedStep) -> SuiteUse {
    let question = &step.question;
    (step.suite.clone(), question.gpu.kind(), question.precision, question.network.family())
}

/// Returns the relative throughput of each suite that shares a network with another one: the
/// geometric mean, over the shared networks, of its best throughput a GPU divided by that of any
/// suite. Batches and numbers of GPUs may differ. Rows of sets other than
/// [`OneHost`](QuestionSet::OneHost) are ignored.
pub(super) fn relative_throughputs(steps: &[PublishedStep]) -> BTreeMap<SuiteUse, f64> {
    // Best throughput a GPU by network, GPU and precision, and by suite.
    let mut best: BTreeMap<(Network, Gpu, NumberFormat), BTreeMap<&str, f64>> = BTreeMap::new();
    for step in steps.iter().filter(|step| step.question.set == QuestionSet::OneHost) {
        let question = &step.question;
        let of_gpu = step.samples_per_s / question.gpus as f64;
        let key = (question.network, question.gpu.kind(), question.precision);
        let of_suite = best.entry(key).or_default().entry(&step.suite).or_insert(0.0);
        *of_suite = of_suite.max(of_gpu);
    }
    let mut logarithms: BTreeMap<SuiteUse, Vec<f64>> = BTreeMap::new();
    for ((network, gpu, precision), suites) in best.iter().filter(|(_, suites)| suites.len() > 1) {
        let fastest = suites.values().copied().fold(0.0, f64::max);
        for (suite, of_suite) in suites {
            let key = ((*suite).to_owned(), *gpu, *precision, network.family());
            logarithms.entry(key).or_default().push((of_suite / fastest).ln());
        }
    }
    let mean = |values: Vec<f64>| (values.iter().sum::<f64>() / values.len() as f64).exp();
    logarithms.into_iter().map(|(key, values)| (key, mean(values))).collect()
}

/// Returns the suites whose relative throughput is below [`LIMIT`].
pub(super) fn slow_suites(relative: &BTreeMap<SuiteUse, f64>) -> BTreeSet<SuiteUse> {
    relative.iter().filter(|(_, ratio)| **ratio < LIMIT).map(|(key, _)| key.clone()).collect()
}
