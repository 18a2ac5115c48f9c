//! Questions: training set-ups whose throughput has been published and is predicted.
//!
//! A *row* is one measurement of a published table. A *suite* is the software of a row: its source
//! and framework.

use std::collections::BTreeMap;
use std::fmt;

use layer_profile::NumberFormat;

use super::link::{Fabric, Host};
use super::machine::{Gpu, precision_name};
use super::network::Network;

/// Set of questions that are summarised together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum QuestionSet {
    /// Whole training steps in one host.
    OneHost,
    /// Whole training steps on several hosts.
    SeveralHosts,
    /// Forward and backward passes without an optimizer step.
    Passes,
    /// Whole training steps of sources with a few rows, without the rules that compare suites.
    Single,
}

impl QuestionSet {
    /// Returns the set of whole training steps with these links between hosts.
    pub(super) fn of_steps(fabric: Option<Fabric>) -> Self {
        fabric.map_or(Self::OneHost, |_| Self::SeveralHosts)
    }

    /// Returns the name of the set in tables and CSV files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OneHost => "one host",
            Self::SeveralHosts => "several hosts",
            Self::Passes => "no optimizer",
            Self::Single => "single rows",
        }
    }
}

/// A training set-up. Its published throughput is that of the fastest row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Question {
    pub(super) set: QuestionSet,
    pub(super) network: Network,
    pub(super) gpu: Gpu,
    pub(super) precision: NumberFormat,
    /// Samples of a micro-batch of one GPU.
    pub(super) batch: usize,
    /// Number of micro-batches of an optimizer step.
    pub(super) accumulation: usize,
    /// Number of GPUs of all hosts together.
    pub(super) gpus: usize,
    /// Links between hosts. `None` for one host.
    pub(super) fabric: Option<Fabric>,
}

impl Question {
    /// Returns the number of samples of an optimizer step, over all GPUs.
    pub(super) fn samples(&self) -> usize {
        self.batch * self.accumulation * self.gpus
    }
}

/// Network, GPU, precision and batch, such as `resnet-50, V100, AMP, 8 x 128`.
impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { network, gpu, precision, batch, accumulation, gpus, .. } = self;
        write!(f, "{network}, {}, {}, {gpus} x {batch}", gpu.name(), precision_name(*precision))?;
        if *accumulation > 1 { write!(f, " x {accumulation}") } else { Ok(()) }
    }
}

/// A published throughput of a question.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PublishedStep {
    pub(super) question: Question,
    /// Links inside the host.
    pub(super) host: Host,
    /// Source and framework.
    pub(super) suite: String,
    /// Samples per second of all GPUs.
    pub(super) samples_per_s: f64,
    /// Name of the file, and number of the line in it.
    pub(super) place: (&'static str, usize),
}

/// Returns the fastest row of each question; the first one of several equal ones.
pub(super) fn fastest<'a>(
    steps: impl IntoIterator<Item = &'a PublishedStep>,
) -> BTreeMap<Question, &'a PublishedStep> {
    let mut fastest: BTreeMap<Question, &PublishedStep> = BTreeMap::new();
    for step in steps {
        let best = fastest.entry(step.question).or_insert(step);
        if step.samples_per_s > best.samples_per_s {
            *best = step;
        }
    }
    fastest
}
