//! The experiment `published`: numbers published by others beside our predictions: those of the
//! original system, and training throughputs of many machines.
//!
//! A *question* is a training set-up with a published throughput. A *suite* is the software of a
//! measurement: its source and framework.

mod dominated;
mod figure;
mod fit;
mod link;
mod machine;
mod network;
mod original;
mod prediction;
mod question;
mod sheet;
mod slow;
mod sources;
mod split;
mod summary;
mod text;
mod training;

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use layer_profile::DeviceModel;
use serde::Serialize;

use crate::canvas::Figure;
use crate::experiment::{Experiment, Prepared, prepared};
use crate::journal::Journal;
use crate::options::RunOptions;
use crate::outcome::{self, Outcome};
use crate::report::SCHEMA;
use crate::style::Style;
use crate::testbed::Testbed;
use fit::Folders;
use original::OriginalRow;
use sources::SourceRows;
use summary::ErrorRow;
use training::Training;

/// Name of the experiment on the command line, and stem of its files.
pub(crate) const NAME: &str = "published";
const TITLE: &str = "Numbers that others have published, beside ours";

/// Default folder of published tables.
const DATA: &str = "../shared/data/published";

/// Options of the experiment `published`.
#[derive(Args)]
#[command(after_help = "\
Compares numbers published with the original system, and training throughputs of other software,
with predictions. Without the folder of throughputs there are only the former. published.csv has the
numbers of the original, published-questions.csv the throughputs with their predictions (largest
errors first), and published-rows.csv all published rows.

Examples:
  experiments published
  experiments published --json
  experiments published --data ../shared/data/published --out results
  experiments published --fit crates/layer-profile/src/device")]
pub(crate) struct PublishedOptions {
    #[command(flatten)]
    run: RunOptions,
    /// Folder of published training throughputs: `deeplearningexamples.csv`, `lambda_pytorch.csv`
    /// and others
    /// [default: ../shared/data/published, if it exists]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Fit the device models again, write them to this folder, and predict with them
    #[arg(long, value_name = "DIR")]
    fit: Option<PathBuf>,
    /// With --fit: folder of the layer times published with the original
    #[arg(long, value_name = "DIR", default_value = "../shared/data/a100-profiles")]
    profiles: PathBuf,
    /// With --fit: folder of iterations measured on an H200
    #[arg(long, value_name = "DIR", default_value = "benchmarks/2026-11-27-nvidia-h200")]
    h200: PathBuf,
}

impl Experiment for PublishedOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let testbed = original::testbed()?;
        let data = self.data.as_deref().unwrap_or(Path::new(DATA));
        let source = if data.is_dir() {
            Ok(training::read(data)?)
        } else if self.data.is_some() || self.fit.is_some() {
            bail!("the folder {} of published tables does not exist: give it with --data DIR", data.display())
        } else {
            Err(format!(
                "left out because the folder {DATA} does not exist: published training throughputs; give it \
                 with --data DIR"
            ))
        };
        let models = match (&source, &self.fit) {
            (Ok(source), Some(_)) => {
                let folders = Folders { published: data, a100_profiles: &self.profiles, h200: &self.h200 };
                fit::fit(&folders, &training::fitted(source)?)?
            }
            _ => DeviceModel::fitted()?,
        };
        let folder = self.fit.clone();
        Ok(prepared(move |journal| {
            let published = Published::run(&testbed, source, &models, journal)?;
            if let (Some(folder), Some(training)) = (folder, &published.training) {
                fit::write(&folder, models, training)?;
            }
            Ok(published)
        }))
    }
}

/// All numbers. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Published {
    schema: &'static str,
    experiment: &'static str,
    simulated: bool,
    device: String,
    link: String,
    /// Numbers published with the original system.
    rows: Vec<OriginalRow>,
    /// Training throughputs; `None` if their folder does not exist.
    training: Option<Training>,
    /// Errors of the sets of questions, and of the held-out ones by property.
    errors: Vec<ErrorRow>,
    #[serde(skip)]
    provenance: Vec<String>,
}

impl Published {
    fn run(
        testbed: &Testbed,
        source: Result<SourceRows, String>,
        models: &[DeviceModel],
        journal: &Journal,
    ) -> anyhow::Result<Self> {
        let rows = original::rows(testbed, journal)?;
        let mut provenance = vec![testbed.origin()];
        let training = match source {
            Ok(source) => {
                provenance.extend(TRAINING_PROVENANCE.map(str::to_owned));
                Some(Training::new(source, models)?)
            }
            Err(missing) => {
                provenance.push(missing);
                None
            }
        };
        let errors =
            training.as_ref().map(|training| [summary::totals(training), summary::groups(training)].concat());
        Ok(Self {
            schema: SCHEMA,
            experiment: NAME,
            simulated: true,
            device: testbed.times.device().into(),
            link: testbed.link.name().into(),
            rows,
            training,
            errors: errors.unwrap_or_default(),
            provenance,
        })
    }
}

/// Origin of the training throughputs and of their predictions.
const TRAINING_PROVENANCE: [&str; 2] = [
    "published training throughputs: NVIDIA DeepLearningExamples, Lambda (tf_cnn_benchmarks and PyTorch), \
     DLPerf, FlagPerf and smaller sets; each row names its file and line",
    "predicted: data parallelism with the built-in device model of the GPU and precision, all-reduces of \
     32-bit gradients overlapped, no memory limit; accumulation adds passes without an all-reduce; Adam and \
     LAMB take 9/5 of the update of SGD with momentum; mixed FP16 as BF16 on A100 and H100; passes without \
     an optimizer take 110 us a layer longer, for launches, fitted to ResNet-50",
];

impl Outcome for Published {
    fn title(&self) -> String {
        TITLE.into()
    }

    fn text(&self) -> String {
        let (provenance, table) = (self.provenance.join("\n"), original::table(&self.rows));
        let original = original::findings(&self.rows).pop().unwrap_or_default();
        let training = self.training.as_ref().map(|training| format!("\n{}\n", text::training(training)));
        format!("{TITLE} ({NAME})\n{provenance}\n\n{table}\n{original}\n{}", training.unwrap_or_default())
    }

    fn findings(&self) -> String {
        let mut lines = original::findings(&self.rows);
        if let Some(training) = &self.training {
            lines.extend(text::rules(training));
            lines.extend(text::findings(training));
        }
        lines.join("\n")
    }

    fn provenance(&self) -> Vec<String> {
        self.provenance.clone()
    }

    fn csv(&self) -> anyhow::Result<Vec<u8>> {
        outcome::csv(&self.rows)
    }

    fn more_csv(&self) -> anyhow::Result<Vec<(&'static str, Vec<u8>)>> {
        let Some(training) = &self.training else { return Ok(Vec::new()) };
        let rows = training.rows.iter().map(|row| (row, row.answer()));
        Ok(vec![("questions", outcome::csv(&training.questions)?), ("rows", outcome::csv(rows)?)])
    }

    fn figures(&self, style: Style) -> anyhow::Result<Vec<Figure>> {
        let origin = self.provenance.iter().skip(1).cloned().collect::<Vec<_>>();
        let draw = |training| figure::draw(training, origin.clone(), style);
        self.training.iter().map(draw).collect()
    }

    fn to_json(&self) -> anyhow::Result<String> {
        outcome::json(self)
    }
}
