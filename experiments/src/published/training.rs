//! Published training throughputs beside predicted ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context;
use layer_profile::DeviceModel;
use rayon::prelude::*;
use serde::Serialize;

use super::dominated::is_dominated;
use super::link::{Host, link_of};
use super::machine::{device_name, precision_name};
use super::network::{Network, family_name};
use super::prediction::{StepTime, dispatch_s, optimizer_of, step_time};
use super::question::{PublishedStep, Question, QuestionSet, fastest};
use super::slow::{SuiteUse, relative_throughputs, slow_suites, suite_use};
use super::sources::{self, SourceRow, SourceRows};
use super::split::{FittedQuestion, fitted_questions, is_fitted};

/// Whether a question is in the summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// Its published throughput is as good as any.
    Compared,
    /// Its suite is slow.
    Slow,
    /// Another question shows that faster software exists.
    Dominated,
}

/// A question with its published and its predicted throughput, as a record of the CSV file of
/// questions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct QuestionRow {
    pub(super) set: &'static str,
    pub(super) network: String,
    pub(super) family: &'static str,
    pub(super) gpu: &'static str,
    pub(super) precision: &'static str,
    /// Samples of a micro-batch of one GPU.
    pub(super) batch: usize,
    pub(super) accumulation: usize,
    pub(super) gpus: usize,
    pub(super) verdict: Verdict,
    /// Whether device models may be fitted to it.
    pub(super) fitted: bool,
    pub(super) suite: String,
    pub(super) file: &'static str,
    pub(super) line: usize,
    pub(super) published_samples_per_s: f64,
    pub(super) predicted_samples_per_s: Option<f64>,
    /// Predicted / published - 1.
    pub(super) error: Option<f64>,
    /// Name of the device model.
    pub(super) device: String,
    /// Name of the link model; `None` on one GPU.
    pub(super) link: Option<String>,
    /// Reason why there is no prediction.
    pub(super) reason: Option<String>,
    #[serde(skip)]
    pub(super) question: Question,
}

impl QuestionRow {
    /// Returns the set, the verdict and the part of the split, by which rows are sorted.
    fn order(&self) -> (QuestionSet, Verdict, bool) {
        (self.question.set, self.verdict, self.fitted)
    }

    /// Returns the magnitude of the logarithm of predicted / published throughput; -1 without a
    /// prediction.
    fn magnitude(&self) -> f64 {
        self.error.map_or(-1.0, |error| (1.0 + error).ln().abs())
    }
}

/// Relative throughput of a suite, see [`relative_throughputs`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SuiteRow {
    suite: String,
    gpu: &'static str,
    precision: &'static str,
    family: &'static str,
    /// Geometric mean of its throughput divided by the best one.
    pub(super) relative: f64,
    pub(super) is_slow: bool,
}

/// Number of rows of a file that answer no question, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct UnusedRows {
    pub(super) reason: String,
    pub(super) file: String,
    pub(super) rows: usize,
}

/// Published training throughputs and their predictions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Training {
    /// All questions by set and verdict, held-out ones before fitted ones, largest errors first.
    pub(super) questions: Vec<QuestionRow>,
    /// Suites that share a network with another one.
    pub(super) suites: Vec<SuiteRow>,
    /// Rows that answer no question, by reason.
    pub(super) unused: Vec<UnusedRows>,
    /// Number of rows that answer a question of the set `one host`.
    pub(super) used_rows: usize,
    /// Compared questions that device models may be fitted to.
    pub(super) fitted: Vec<FittedQuestion>,
    /// Names of the files that do not exist.
    pub(super) missing: Vec<&'static str>,
    /// All rows of the tables.
    #[serde(skip)]
    pub(super) rows: Vec<SourceRow>,
}

/// Questions of the published rows, and the rules applied to them.
struct Judged<'a> {
    questions: BTreeMap<Question, &'a PublishedStep>,
    relative: BTreeMap<SuiteUse, f64>,
    slow: BTreeSet<SuiteUse>,
}

impl<'a> Judged<'a> {
    fn new(steps: &'a [PublishedStep]) -> Self {
        let relative = relative_throughputs(steps);
        Self { questions: fastest(steps), slow: slow_suites(&relative), relative }
    }

    /// Returns whether a question is in the summary. The rules apply to whole steps of sources with
    /// many rows; several hosts are compared with nothing, so only the suite counts.
    fn verdict(&self, question: &Question, step: &PublishedStep) -> Verdict {
        let is_slow = || self.slow.contains(&suite_use(step));
        match question.set {
            QuestionSet::OneHost | QuestionSet::SeveralHosts if is_slow() => Verdict::Slow,
            QuestionSet::OneHost if is_dominated(question, &self.questions) => Verdict::Dominated,
            _ => Verdict::Compared,
        }
    }

    /// Returns the questions in the summary that device models may be fitted to.
    fn fitted(&self) -> anyhow::Result<Vec<FittedQuestion>> {
        let compared = self.questions.iter().filter(|(question, step)| {
            self.verdict(question, step) == Verdict::Compared && is_fitted(question)
        });
        fitted_questions(compared.map(|(question, step)| (question, *step)))
    }
}

/// Inputs of a prediction that questions may share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct StepKey {
    question: Question,
    host: Host,
}

impl StepKey {
    /// Returns the key of a question, without its accumulation.
    fn new(question: &Question, host: Host) -> Self {
        Self { question: Question { accumulation: 1, ..*question }, host }
    }
}

/// A prediction, or the reason why there is none: times of a micro-batch and the name of the links.
type Predicted = Result<(StepTime, Option<String>), String>;

/// Returns the compared questions that device models may be fitted to.
///
/// # Errors
/// If the zoo cannot build a network.
pub(super) fn fitted(source: &SourceRows) -> anyhow::Result<Vec<FittedQuestion>> {
    let steps: Vec<PublishedStep> =
        source.rows.iter().filter_map(|row| row.step.as_ref().ok().cloned()).collect();
    Judged::new(&steps).fitted()
}

/// Reads the published tables of a folder.
///
/// # Errors
/// If a file cannot be read or is invalid.
pub(super) fn read(folder: &Path) -> anyhow::Result<SourceRows> {
    sources::read(folder)
}

impl Training {
    /// Predicts the throughput of every question of the rows, in parallel, with the given device
    /// models and those [scaled](DeviceModel::among) from them.
    ///
    /// # Errors
    /// If a simulation fails.
    pub(super) fn new(source: SourceRows, models: &[DeviceModel]) -> anyhow::Result<Self> {
        let steps: Vec<PublishedStep> =
            source.rows.iter().filter_map(|row| row.step.as_ref().ok().cloned()).collect();
        let judged = Judged::new(&steps);
        let predicted = predictions(&judged.questions, models)?;
        let questions = judged.questions.iter().map(|(question, step)| {
            let predicted = &predicted[&StepKey::new(question, step.host)];
            row(question, step, judged.verdict(question, step), predicted)
        });
        let mut questions: Vec<QuestionRow> = questions.collect();
        questions.sort_by(|a, b| a.order().cmp(&b.order()).then(b.magnitude().total_cmp(&a.magnitude())));
        Ok(Self {
            questions,
            suites: suites(&judged),
            unused: unused(&source),
            used_rows: steps.iter().filter(|step| step.question.set == QuestionSet::OneHost).count(),
            fitted: judged.fitted()?,
            missing: source.missing,
            rows: source.rows,
        })
    }

    /// Returns the questions of a set with a verdict.
    pub(super) fn of(&self, set: QuestionSet, verdict: Verdict) -> impl Iterator<Item = &QuestionRow> {
        self.questions.iter().filter(move |row| row.question.set == set && row.verdict == verdict)
    }
}

/// Returns the predictions of all questions. Each network, device and number of GPUs is simulated
/// once.
fn predictions(
    questions: &BTreeMap<Question, &PublishedStep>,
    models: &[DeviceModel],
) -> anyhow::Result<BTreeMap<StepKey, Predicted>> {
    let keys: BTreeSet<StepKey> =
        questions.iter().map(|(question, step)| StepKey::new(question, step.host)).collect();
    let networks: BTreeSet<Network> = keys.iter().map(|key| key.question.network).collect();
    let graphs = networks.into_iter().map(|network| Ok((network, network.graph()?)));
    let graphs = graphs.collect::<anyhow::Result<BTreeMap<_, _>>>()?;
    let keys: Vec<StepKey> = keys.into_iter().collect();
    let predicted = keys.par_iter().map(|key| {
        let Question { network, gpu, precision, batch, gpus, fabric, .. } = key.question;
        let name = device_name(gpu, precision);
        let Ok(device) = DeviceModel::among(models, &name) else {
            return Ok((*key, Err(format!("no device model `{name}`"))));
        };
        let link = match link_of(gpu, key.host, fabric, gpus) {
            Ok(link) => link,
            Err(reason) => return Ok((*key, Err(reason))),
        };
        let optimizer = optimizer_of(&key.question);
        let time = step_time(&graphs[&network], &device, optimizer, &link, (batch, gpus));
        let time = time.with_context(|| key.question.to_string())?;
        let time = time.with_dispatch(dispatch_s(&key.question, &graphs[&network]));
        Ok((*key, Ok((time, (gpus > 1).then(|| link.name().to_owned())))))
    });
    predicted.collect()
}

fn row(question: &Question, step: &PublishedStep, verdict: Verdict, predicted: &Predicted) -> QuestionRow {
    let rate =
        |(time, _): &(StepTime, Option<String>)| question.samples() as f64 / time.of(question.accumulation);
    let predicted_samples_per_s = predicted.as_ref().ok().map(rate);
    QuestionRow {
        set: question.set.name(),
        network: question.network.to_string(),
        family: family_name(question.network.family()),
        gpu: question.gpu.name(),
        precision: precision_name(question.precision),
        batch: question.batch,
        accumulation: question.accumulation,
        gpus: question.gpus,
        verdict,
        fitted: is_fitted(question),
        suite: step.suite.clone(),
        file: step.place.0,
        line: step.place.1,
        published_samples_per_s: step.samples_per_s,
        predicted_samples_per_s,
        error: predicted_samples_per_s.map(|predicted| predicted / step.samples_per_s - 1.0),
        device: device_name(question.gpu, question.precision),
        link: predicted.as_ref().ok().and_then(|(_, link)| link.clone()),
        reason: predicted.as_ref().err().cloned(),
        question: *question,
    }
}

fn suites(judged: &Judged<'_>) -> Vec<SuiteRow> {
    let row = |(key, relative): (&SuiteUse, &f64)| {
        let (suite, gpu, precision, family) = key;
        SuiteRow {
            suite: suite.clone(),
            gpu: gpu.name(),
            precision: precision_name(*precision),
            family: family_name(*family),
            relative: *relative,
            is_slow: judged.slow.contains(key),
        }
    };
    judged.relative.iter().map(row).collect()
}

fn unused(source: &SourceRows) -> Vec<UnusedRows> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (row, reason) in source.rows.iter().filter_map(|row| Some((row, row.step.as_ref().err()?))) {
        *counts.entry((reason, row.file)).or_default() += 1;
    }
    for (file, rows, reason) in &source.counted {
        *counts.entry((reason, file)).or_default() += rows;
    }
    let row = |((reason, file), rows): ((&str, &str), usize)| UnusedRows {
        reason: reason.to_owned(),
        file: file.to_owned(),
        rows,
    };
    counts.into_iter().map(row).collect()
}
