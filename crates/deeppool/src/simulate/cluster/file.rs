//! The file format of the jobs of a cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;

use super::{GpuPlacement, JobGpus};
use crate::Error;
use crate::document::{document, not_null, parse};

/// Name and version of the format.
const SCHEMA: &str = "deeppool/cluster-jobs/v1";
/// Maximum number of GPUs of a cluster, and of jobs.
const MAX_GPUS: usize = 1 << 20;
/// Maximum time of a start in microseconds (about 11 days).
const MAX_START_US: f64 = 1e12;

/// The jobs of a cluster, as read from a file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ClusterJobsFile {
    schema: String,
    /// Name of the link model of the cluster, or path of its file.
    pub link: String,
    /// Number of GPUs of the cluster.
    pub gpus: usize,
    /// Jobs, in the order in which they are placed.
    pub jobs: Vec<ClusterJobSpec>,
}

/// One job of a [`ClusterJobsFile`], or several equal ones.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ClusterJobSpec {
    /// Name of the job.
    pub name: String,
    /// Name of a built-in network, or path of an ONNX or `.pt2` file or of a network in JSON.
    pub model: String,
    /// Path of the file of its plan, instead of a new plan.
    #[serde(default, deserialize_with = "not_null")]
    pub plan: Option<String>,
    /// Name of the device model of its layer times, or path of its file.
    #[serde(default, deserialize_with = "not_null")]
    pub device: Option<String>,
    /// Path of the file of its layer times, instead of a device model.
    #[serde(default, deserialize_with = "not_null")]
    pub profile: Option<String>,
    /// Global batch, in samples. By default that of the plan.
    #[serde(default, deserialize_with = "not_null")]
    pub batch: Option<usize>,
    /// Number of GPUs. By default the length of `on_gpus`, or the GPUs of the plan.
    #[serde(default, deserialize_with = "not_null")]
    pub gpus: Option<usize>,
    /// Kind of a new plan. By default a burst plan.
    #[serde(default, deserialize_with = "not_null")]
    pub mode: Option<JobMode>,
    /// Maximum amplification of a new burst plan. By default that of `deeppool plan`.
    #[serde(default, deserialize_with = "not_null")]
    pub amplification: Option<f64>,
    /// GPUs of the cluster, one for each rank, instead of `placement`.
    #[serde(default, deserialize_with = "not_null")]
    pub on_gpus: Option<Vec<usize>>,
    /// Rule by which the job gets its GPUs. By default packed.
    #[serde(default, deserialize_with = "not_null")]
    pub placement: Option<GpuPlacement>,
    /// Number of equal jobs. By default 1.
    #[serde(default, deserialize_with = "not_null")]
    pub count: Option<usize>,
    /// Virtual time of the start of the first of them, in microseconds. By default 0.
    #[serde(default)]
    pub start_us: f64,
    /// Time between the starts of two of them, in microseconds. By default 0.
    #[serde(default)]
    pub start_step_us: f64,
}

/// Kind of the plan of a job in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobMode {
    /// Every layer on all GPUs.
    Dp,
    /// Each layer on its own GPU count.
    Burst,
}

impl ClusterJobsFile {
    /// Reads a JSON document of the format `deeppool/cluster-jobs/v1`:
    ///
    /// ```
    /// # use deeppool::simulate::ClusterJobsFile;
    /// let cluster = ClusterJobsFile::from_json(r#"{
    ///   "schema": "deeppool/cluster-jobs/v1", "link": "dgx-a100-pod", "gpus": 32,
    ///   "jobs": [
    ///     {"name": "vgg", "model": "vgg16", "device": "a100", "batch": 256, "gpus": 8,
    ///      "mode": "dp", "placement": "spread", "count": 2, "start_step_us": 20000},
    ///     {"name": "resnet", "model": "resnet-50", "device": "a100", "batch": 64,
    ///      "on_gpus": [30, 31]}
    ///   ]
    /// }"#)?;
    /// assert_eq!(cluster.jobs[0].names(), ["vgg-1", "vgg-2"]);
    /// # Ok::<(), deeppool::Error>(())
    /// ```
    ///
    /// The fields are those of this type and of [`ClusterJobSpec`].
    ///
    /// # Errors
    /// [`Error::Document`] with the path of a field that is missing, unknown or not valid.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let file: Self = parse(text)?;
        if file.schema != SCHEMA {
            return Err(document("schema", format!("expected {SCHEMA:?}, got {:?}", file.schema)));
        }
        if !(1..=MAX_GPUS).contains(&file.gpus) {
            return Err(document("gpus", format!("expected 1 to {MAX_GPUS}, got {}", file.gpus)));
        }
        if file.jobs.is_empty() {
            return Err(document("jobs", "expected at least one job, got none"));
        }
        let mut names = BTreeSet::new();
        for (index, job) in file.jobs.iter().enumerate() {
            let at = |(field, problem): (&str, String)| document(format!("jobs[{index}].{field}"), problem);
            job.check().map_err(at)?;
            if let Some(name) = job.names().into_iter().find(|name| !names.insert(name.clone())) {
                return Err(at(("name", format!("another job is called `{name}`"))));
            }
        }
        Ok(file)
    }
}

impl ClusterJobSpec {
    /// Returns the names of the equal jobs, numbered from 1 if there are several.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        match self.count {
            None => vec![self.name.clone()],
            Some(count) => (1..=count).map(|number| format!("{}-{number}", self.name)).collect(),
        }
    }

    /// Returns the starts of the equal jobs, in virtual time.
    #[must_use]
    pub fn starts(&self) -> Vec<Duration> {
        let start = |index: usize| (self.start_us + index as f64 * self.start_step_us) / 1e6;
        (0..self.count.unwrap_or(1))
            .map(|index| Duration::try_from_secs_f64(start(index)).unwrap_or(Duration::MAX))
            .collect()
    }

    /// Returns the GPUs that each of the equal jobs asks for. `gpus` is their number.
    #[must_use]
    pub fn job_gpus(&self, gpus: usize) -> JobGpus {
        match &self.on_gpus {
            Some(listed) => JobGpus::Listed(listed.clone()),
            None => JobGpus::Placed(gpus, self.placement.unwrap_or_default()),
        }
    }

    /// Returns the name of an invalid field and the problem.
    fn check(&self) -> Result<(), (&'static str, String)> {
        if self.name.trim().is_empty() {
            return Err(("name", "expected a name, got none".into()));
        }
        if self.count.is_some_and(|count| !(1..=MAX_GPUS).contains(&count)) {
            return Err(("count", format!("expected 1 to {MAX_GPUS}, got {}", self.count.unwrap_or(0))));
        }
        for (field, us) in [("start_us", self.start_us), ("start_step_us", self.start_step_us)] {
            if !(0.0..=MAX_START_US).contains(&us) {
                return Err((field, format!("expected microseconds from 0 to {MAX_START_US:e}, got {us}")));
            }
        }
        if let Some(limit) = self.amplification.filter(|limit| !(limit.is_finite() && *limit >= 1.0)) {
            return Err(("amplification", format!("expected a limit of at least 1, got {limit}")));
        }
        if self.mode == Some(JobMode::Dp) && self.amplification.is_some() {
            return Err(("amplification", "it is for burst plans: leave it or the mode out".into()));
        }
        if self.plan.is_some() && (self.mode.is_some() || self.amplification.is_some()) {
            return Err(("plan", "it has a mode and an amplification: leave them out".into()));
        }
        if self.profile.is_some() && self.device.is_some() {
            return Err(("profile", "there is a device, too: leave one of them out".into()));
        }
        let Some(listed) = &self.on_gpus else { return Ok(()) };
        if self.placement.is_some() || self.count.is_some() {
            return Err(("on_gpus", "it is for one job without a placement: leave one of them out".into()));
        }
        match self.gpus {
            Some(gpus) if gpus != listed.len() => {
                Err(("on_gpus", format!("expected {gpus} GPUs, got {}", listed.len())))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(job: &str) -> Result<ClusterJobsFile, String> {
        let text = format!(
            r#"{{"schema": "{SCHEMA}", "link": "dgx-a100-pod", "gpus": 16,
                "jobs": [{{"name": "one", "model": "vgg16", {job}}}]}}"#
        );
        ClusterJobsFile::from_json(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn equal_jobs_have_names_and_starts_of_their_own() {
        let file = read(r#""gpus": 8, "count": 2, "start_us": 5, "start_step_us": 2.5"#).unwrap();
        let job = &file.jobs[0];
        assert_eq!(job.names(), ["one-1", "one-2"]);
        assert_eq!(job.starts(), [Duration::from_micros(5), Duration::from_nanos(7_500)]);
        assert_eq!(job.job_gpus(8), JobGpus::Placed(8, GpuPlacement::Packed));
        let listed = read(r#""on_gpus": [1, 0], "mode": "dp""#).unwrap();
        assert_eq!(listed.jobs[0].job_gpus(2), JobGpus::Listed(vec![1, 0]));
        assert_eq!(listed.jobs[0].names(), ["one"]);
    }

    #[test]
    fn errors_name_the_field() {
        for (job, expected) in [
            (r#""ranks": 8"#, "unknown field `ranks`"),
            (r#""placement": "near""#, "jobs[0].placement"),
            (r#""count": 0"#, "jobs[0].count"),
            (r#""start_us": -1"#, "jobs[0].start_us"),
            (r#""amplification": 0.5"#, "jobs[0].amplification"),
            (r#""amplification": 2, "mode": "dp""#, "jobs[0].amplification"),
            (r#""plan": "plan.json", "mode": "dp""#, "jobs[0].plan"),
            (r#""profile": "p.json", "device": "a100""#, "jobs[0].profile"),
            (r#""on_gpus": [1], "gpus": 2"#, "jobs[0].on_gpus"),
            (r#""on_gpus": [1], "placement": "packed""#, "jobs[0].on_gpus"),
        ] {
            let error = read(job).unwrap_err();
            assert!(error.contains(expected), "{job}: {error}");
        }
        for (text, expected) in [
            (r#"{"schema": "deeppool/plan/v3", "link": "x", "gpus": 1, "jobs": []}"#, "schema"),
            (r#"{"schema": "deeppool/cluster-jobs/v1", "link": "x", "gpus": 0, "jobs": []}"#, "gpus"),
            (r#"{"schema": "deeppool/cluster-jobs/v1", "link": "x", "gpus": 1, "jobs": []}"#, "jobs"),
        ] {
            let error = ClusterJobsFile::from_json(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let one = r#"{"name": "one-1", "model": "vgg16"}, {"name": "one", "model": "vgg16", "count": 2}"#;
        let text = format!(r#"{{"schema": "{SCHEMA}", "link": "x", "gpus": 9, "jobs": [{one}]}}"#);
        let error = ClusterJobsFile::from_json(&text).unwrap_err().to_string();
        assert!(error.contains("jobs[1].name") && error.contains("`one-1`"), "{error}");
    }
}
