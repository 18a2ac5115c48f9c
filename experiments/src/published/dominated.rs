//! Dominated questions: slower than equal software can be, by another published throughput.

use std::collections::BTreeMap;

use super::question::{PublishedStep, Question};

/// Ratio of throughputs a GPU above which the slower one is dominated.
pub(super) const RATIO: f64 = 1.1;

/// Returns whether another question shows that faster software exists. It has the same network, an
/// equal or smaller batch, at least as many GPUs, a GPU that is not faster, the same or a more
/// precise format, and more than [`RATIO`] times the throughput a GPU. With equal software, larger
/// batches, fewer GPUs and faster devices are never slower.
///
/// O(questions).
pub(super) fn is_dominated(question: &Question, questions: &BTreeMap<Question, &PublishedStep>) -> bool {
    let of_gpu = |question: &Question, step: &PublishedStep| step.samples_per_s / question.gpus as f64;
    let Some(own) = questions.get(question).map(|step| of_gpu(question, step)) else { return false };
    questions.iter().any(|(other, step)| {
        other.set == question.set
            && other.network == question.network
            && other.gpu <= question.gpu
            && other.precision <= question.precision
            && other.batch * other.accumulation <= question.batch * question.accumulation
            && other.batch <= question.batch
            && other.gpus >= question.gpus
            && of_gpu(other, step) > RATIO * own
    })
}
