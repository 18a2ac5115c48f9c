//! The JSON format of workloads.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::{Iteration, StepWork, Workload, WorkloadStep};
use crate::json::{self, duration, micros, not_null};
use crate::{Communication, Error, Kernel};

const SCHEMA: &str = "deeppool/workload/v1";

/// Maximum number of kernels of a background iteration times its samples, because a policy may cut
/// it into single samples.
const MAX_KERNELS: usize = 1 << 22;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadFile {
    schema: String,
    name: String,
    foreground: IterationFields,
    background: IterationFields,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IterationFields {
    samples: usize,
    steps: Vec<StepFields>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepFields {
    name: String,
    lane: LaneName,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kernels: Vec<KernelFields>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    transfer_us: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    partners_us: Option<f64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    receives: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    all_reduces: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<usize>,
}

#[derive(Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum LaneName {
    Compute,
    Communication,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KernelFields {
    time_us: f64,
    share: f64,
    memory: f64,
    #[serde(default = "one_wave", skip_serializing_if = "is_one_wave")]
    waves: NonZeroU32,
}

fn one_wave() -> NonZeroU32 {
    NonZeroU32::MIN
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_one_wave(waves: &NonZeroU32) -> bool {
    *waves == NonZeroU32::MIN
}

impl Workload {
    /// Reads a JSON document of the format `deeppool/workload/v1`:
    ///
    /// ```json
    /// {"schema": "deeppool/workload/v1", "name": "two layers",
    ///  "foreground": {"samples": 32, "steps": [
    ///    {"name": "receive", "lane": "communication", "transfer_us": 20, "partners_us": 300,
    ///     "receives": true},
    ///    {"name": "layer", "lane": "compute", "after": 0, "kernels": [
    ///      {"time_us": 80, "share": 1, "memory": 0.3, "waves": 4}]}]},
    ///  "background": {"samples": 8, "steps": [
    ///    {"name": "layer", "lane": "compute", "kernels": [
    ///      {"time_us": 50, "share": 0.5, "memory": 0.3}]}]}}
    /// ```
    ///
    /// The fields are those of [`Workload`], [`WorkloadStep`], [`StepWork`] and [`Kernel`], with
    /// times in microseconds. A communication with `"all_reduces": true` is an all-reduce, one with
    /// `"receives": true` a receive, and otherwise a send. `after` and `waves` (default 1) are
    /// optional. The number of samples of the background times the number of its kernels is at most
    /// 4194304 (2^22), because a policy may cut it into single samples.
    ///
    /// # Errors
    /// [`Error::BadDocument`] with the position in the document.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let fields: WorkloadFile = json::parse(text, SCHEMA)?;
        let wrong = |of: &str, (place, reason): Wrong| Error::BadDocument {
            reason: format!("{of}.{place}: {reason}"),
        };
        let foreground = iteration(fields.foreground).map_err(|what| wrong("foreground", what))?;
        let background = iteration(fields.background).and_then(can_be_cut);
        let background = background.map_err(|what| wrong("background", what))?;
        Ok(Self { name: fields.name, foreground, background })
    }

    /// Returns the JSON document that [`from_json`](Self::from_json) reads.
    #[must_use]
    pub fn to_json(&self) -> String {
        json::to_text(&WorkloadFile {
            schema: SCHEMA.to_owned(),
            name: self.name.clone(),
            foreground: iteration_fields(&self.foreground),
            background: iteration_fields(&self.background),
        })
    }
}

/// Position and reason of an error.
type Wrong = (String, String);

fn iteration(fields: IterationFields) -> Result<Iteration, Wrong> {
    if fields.samples == 0 {
        return Err(("samples".to_owned(), "expected at least 1".to_owned()));
    }
    let lanes: Vec<bool> = fields.steps.iter().map(|step| step.lane == LaneName::Compute).collect();
    let mut steps = Vec::with_capacity(fields.steps.len());
    for (index, step) in fields.steps.into_iter().enumerate() {
        let wrong = |reason: String| (format!("steps[{index}]"), reason);
        if let Some(after) = step.after {
            if after >= index || lanes[after] == lanes[index] {
                let expected = "an earlier step on the other lane";
                return Err(wrong(format!("after is {after}, expected the index of {expected}")));
            }
        }
        steps.push(WorkloadStep { work: work(&step).map_err(wrong)?, name: step.name, after: step.after });
    }
    let iteration = Iteration { samples: fields.samples, steps };
    if iteration.compute_time().is_zero() {
        return Err(("steps".to_owned(), "expected a kernel that takes time".to_owned()));
    }
    Ok(iteration)
}

/// Refuses a background that would need too much memory when cut into single samples.
fn can_be_cut(iteration: Iteration) -> Result<Iteration, Wrong> {
    let (samples, kernels) = (iteration.samples, iteration.kernels().count().max(1));
    let max = MAX_KERNELS / kernels;
    if samples > max {
        let reason = format!("{samples}, expected at most {max} with {kernels} kernels an iteration");
        return Err(("samples".to_owned(), reason));
    }
    Ok(iteration)
}

fn work(step: &StepFields) -> Result<StepWork, String> {
    let time = |name: &str, us: Option<f64>| {
        let us = us.ok_or(format!("a communication needs {name}"))?;
        duration(us).ok_or(format!("{name} is {us}, expected a time of at least 0"))
    };
    if step.lane == LaneName::Communication {
        if !step.kernels.is_empty() {
            return Err("a communication has no kernels".to_owned());
        }
        let communication = match (step.receives, step.all_reduces) {
            (false, false) => Communication::Send,
            (true, false) => Communication::Receive,
            (false, true) => Communication::AllReduce,
            (true, true) => return Err("a communication receives or all_reduces: leave one out".to_owned()),
        };
        return Ok(StepWork::Communication {
            transfer: time("transfer_us", step.transfer_us)?,
            partners_after: time("partners_us", step.partners_us)?,
            communication,
        });
    }
    if step.transfer_us.is_some() || step.partners_us.is_some() || step.receives || step.all_reduces {
        return Err("compute has no transfer_us, partners_us, receives and all_reduces".to_owned());
    }
    let kernels = step.kernels.iter().map(|kernel| {
        let time = duration(kernel.time_us)
            .ok_or_else(|| format!("time_us is {}, expected a time of at least 0", kernel.time_us))?;
        let of_time = Kernel::new(time, kernel.share, kernel.memory).map_err(|error| error.to_string())?;
        Ok::<_, String>(of_time.in_waves(kernel.waves))
    });
    Ok(StepWork::Compute(kernels.collect::<Result<_, _>>()?))
}

fn iteration_fields(iteration: &Iteration) -> IterationFields {
    let steps = iteration.steps.iter().map(|step| {
        let mut fields = StepFields {
            name: step.name.clone(),
            lane: LaneName::Compute,
            kernels: Vec::new(),
            transfer_us: None,
            partners_us: None,
            receives: false,
            all_reduces: false,
            after: step.after,
        };
        match &step.work {
            StepWork::Compute(kernels) => {
                let kernel = |kernel: &Kernel| KernelFields {
                    time_us: micros(kernel.time()),
                    share: kernel.share(),
                    memory: kernel.memory(),
                    waves: kernel.waves(),
                };
                fields.kernels = kernels.iter().map(kernel).collect();
            }
            StepWork::Communication { transfer, partners_after, communication } => {
                fields.lane = LaneName::Communication;
                fields.transfer_us = Some(micros(*transfer));
                fields.partners_us = Some(micros(*partners_after));
                fields.receives = *communication == Communication::Receive;
                fields.all_reduces = *communication == Communication::AllReduce;
            }
        }
        fields
    });
    IterationFields { samples: iteration.samples, steps: steps.collect() }
}
