//! The option `--background`: the network, the batch and the GPUs of a background job.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::bail;
use command_line::numbers::within;
use deeppool::plan::MAX_GPUS;
use layer_graph::LayerGraph;

use super::counts::BATCH;
use super::network::named_network;

/// Background job as `MODEL:BATCH`, `MODEL:BATCH@GPUS` or `MODEL:BATCH@PLAN.json`. The model may be
/// a file `.onnx`, `.pt2` or `.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackgroundSpec {
    /// Name of a built-in network, or path of an ONNX or `.pt2` file or of a network in JSON.
    pub(crate) model: String,
    /// Number of samples of an iteration: of each copy, or the global batch of one job.
    pub(crate) batch: usize,
    /// GPUs on which the job runs.
    pub(crate) gpus: BackgroundGpus,
}

/// GPUs on which a background job runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BackgroundGpus {
    /// A separate copy of the job on each GPU.
    Each,
    /// One data-parallel job on this number of GPUs.
    Count(usize),
    /// One job by the plan in this file.
    Plan(PathBuf),
}

impl BackgroundSpec {
    /// Builds or reads the network.
    ///
    /// # Errors
    /// If the name is unknown, or the file cannot be read.
    pub(crate) fn network(&self) -> anyhow::Result<LayerGraph> {
        named_network(&self.model)
    }

    /// Checks that the job is a copy on each GPU, for a `command` that runs no other jobs.
    ///
    /// # Errors
    /// If it is one job on several GPUs.
    pub(crate) fn check_on_each_gpu(&self, command: &str) -> anyhow::Result<()> {
        if self.gpus == BackgroundGpus::Each {
            return Ok(());
        }
        bail!(
            "`{command}` runs a copy of a background job on each GPU, and `{self}` is one job on its own \
             GPUs: write `{}:{}`",
            self.model,
            self.batch
        )
    }
}

impl fmt::Display for BackgroundSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.model, self.batch)?;
        match &self.gpus {
            BackgroundGpus::Each => Ok(()),
            BackgroundGpus::Count(count) => write!(f, "@{count}"),
            BackgroundGpus::Plan(path) => write!(f, "@{}", path.display()),
        }
    }
}

impl FromStr for BackgroundSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected MODEL:BATCH, FILE.onnx:BATCH, FILE.pt2:BATCH or FILE.json:BATCH with a batch of at \
                 least 1, such as vgg16:8, or such a job on several GPUs, such as vgg16:64@4 or \
                 vgg16:64@plan.json, got `{text}`"
            )
        };
        let (job, gpus) = match split_gpus(text) {
            Some((job, gpus)) => (job, gpus.parse()?),
            None => (text, BackgroundGpus::Each),
        };
        let (model, batch) =
            job.rsplit_once(':').filter(|(model, _)| !model.is_empty()).ok_or_else(expected)?;
        Ok(Self { model: model.into(), batch: within(BATCH)(batch)?, gpus })
    }
}

/// Splits a job at the `@` after its batch. A path of the model may contain an `@` too, which no
/// batch precedes.
fn split_gpus(text: &str) -> Option<(&str, &str)> {
    let ends_in_batch =
        |job: &str| job.rsplit_once(':').is_some_and(|(_, batch)| batch.parse::<usize>().is_ok());
    let mut places = text.match_indices('@').map(|(place, _)| (&text[..place], &text[place + 1..]));
    places.find(|(job, _)| ends_in_batch(job))
}

impl FromStr for BackgroundGpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_json = Path::new(text).extension().is_some_and(|extension| extension == "json");
        if is_json {
            return Ok(Self::Plan(text.into()));
        }
        within(1..=MAX_GPUS)(text).map(Self::Count).map_err(|expected| {
            format!("`@{text}`: {expected} GPUs, or the file of a plan that ends in .json")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus_of(text: &str) -> Result<(String, usize, BackgroundGpus), String> {
        text.parse().map(|spec: BackgroundSpec| (spec.model, spec.batch, spec.gpus))
    }

    #[test]
    fn gpus_of_a_job_follow_its_batch() {
        use BackgroundGpus::{Count, Each, Plan};
        for (text, model, batch, gpus) in [
            ("vgg16:8", "vgg16", 8, Each),
            ("vgg16:64@4", "vgg16", 64, Count(4)),
            ("vgg16:64@1", "vgg16", 64, Count(1)),
            ("vgg16:64@plans/a.json", "vgg16", 64, Plan("plans/a.json".into())),
            ("dir@2/net.json:8", "dir@2/net.json", 8, Each),
            ("dir@2/net.json:8@4", "dir@2/net.json", 8, Count(4)),
            ("net.onnx:8@dir@2/b:3.json", "net.onnx", 8, Plan("dir@2/b:3.json".into())),
        ] {
            assert_eq!(gpus_of(text), Ok((model.into(), batch, gpus)), "{text}");
            assert_eq!(text.parse::<BackgroundSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_jobs_are_refused_with_the_expected_form() {
        for (text, expected) in [
            ("vgg16", "MODEL:BATCH"),
            ("vgg16@4", "MODEL:BATCH"),
            (":8", "MODEL:BATCH"),
            ("vgg16:0@4", "from 1 to"),
            ("vgg16:8@0", "`@0`: expected a whole number"),
            ("vgg16:8@", "`@`: expected a whole number"),
            ("vgg16:8@four", "ends in .json"),
        ] {
            let error = gpus_of(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
