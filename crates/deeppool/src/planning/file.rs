use std::path::Path;

use burst_planner::{Explanation, Frontier, Plan, PlanProblem};
use layer_graph::LayerGraph;
use layer_profile::{Measurement, ModelAccuracy, Origin};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::costs::{Costs, micros};
use crate::files::write_atomically;
use crate::program::Placement;

const SCHEMA: &str = "deeppool/plan/v1";

/// A plan as a JSON document of the format `deeppool/plan/v1`, and as what `deeppool plan --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanFile {
    schema: String,
    /// The network, unless the plan is of a problem from elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The global batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<usize>,
    /// `dp` or `bp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The limit that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amplification_limit: Option<f64>,
    /// `per-layer` when the limit was applied to each layer instead of the whole plan, which may then be above it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_rule: Option<String>,
    /// The iteration time that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_us: Option<f64>,
    /// What the layers' times are from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileOrigin>,
    /// The link model that transfers and all-reduces are from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// How many GPUs there were to choose from.
    pub gpus: usize,
    /// The planner's iteration time.
    pub iteration_us: f64,
    /// Its GPU time.
    pub gpu_time_us: f64,
    /// The iteration time on one GPU.
    pub single_gpu_us: f64,
    /// GPU time over single-GPU time.
    pub amplification: f64,
    /// How long the search took.
    pub search_us: f64,
    /// The tolerance that the plan is certified to; 0 is optimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certified_epsilon: Option<f64>,
    /// Where each layer runs, in topological order.
    pub layers: Vec<PlannedLayer>,
    /// The index of each node's option, for a problem from elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<Vec<usize>>,
    /// What each layer could do instead, when it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanations: Option<Vec<Explanation>>,
    /// The Pareto frontier, when it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frontier: Option<Vec<FrontierEntry>>,
}

/// Where layer times are from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileOrigin {
    /// The device.
    pub device: String,
    /// Measured, modelled or imported.
    pub origin: Origin,
    /// How far modelled times are from measured ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<ModelAccuracy>,
    /// How measured times were measured, where that was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement: Option<Measurement>,
}

/// Where a layer runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedLayer {
    /// The layer's name.
    pub name: String,
    /// How many GPUs it runs on.
    pub gpus: usize,
    /// Which.
    pub ranks: Vec<usize>,
    /// Its wave among the branches between the same fork and join, where some run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<usize>,
    /// How long it takes, gradient all-reduce included, transfers not.
    pub time_us: f64,
}

/// A point of the Pareto frontier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrontierEntry {
    /// The iteration time.
    pub iteration_us: f64,
    /// The amplification.
    pub amplification: f64,
    /// The largest GPU count of any layer.
    pub gpus: usize,
}

impl PlanFile {
    /// A plan for a problem.
    #[must_use]
    pub fn new(problem: &PlanProblem, plan: &Plan) -> Self {
        let layers = plan.assignments.iter().map(|layer| PlannedLayer {
            name: layer.name.clone(),
            gpus: layer.gpus,
            ranks: layer.ranks.clone().collect(),
            wave: layer.wave,
            time_us: layer.time_us,
        });
        Self {
            schema: SCHEMA.into(),
            model: None,
            batch: None,
            mode: None,
            amplification_limit: None,
            limit_rule: None,
            deadline_us: None,
            profile: None,
            link: None,
            gpus: problem.gpus,
            iteration_us: plan.totals.iteration_us,
            gpu_time_us: plan.totals.gpu_time_us,
            single_gpu_us: problem.single_gpu_time_us(),
            amplification: plan.totals.amplification,
            search_us: micros(plan.search_time),
            certified_epsilon: plan.certified_epsilon,
            layers: layers.collect(),
            choice: None,
            explanations: None,
            frontier: None,
        }
    }

    /// The same plan, with what it was made from.
    #[must_use]
    pub fn made_from(mut self, costs: &Costs<'_>, batch: usize, mode: super::Mode) -> Self {
        let profile = costs.profile();
        self.model = Some(costs.network().name().into());
        self.batch = Some(batch);
        self.mode = Some(mode.label().into());
        self.amplification_limit = match mode {
            // Without a limit there is no figure to write.
            super::Mode::Burst { amplification } => Some(amplification).filter(|limit| limit.is_finite()),
            super::Mode::DataParallel => None,
        };
        self.profile = Some(ProfileOrigin {
            device: profile.device().into(),
            origin: profile.origin(),
            accuracy: profile.accuracy().cloned(),
            measurement: profile.measurement().cloned(),
        });
        self.link = Some(costs.link().name().into());
        self
    }

    /// The same plan, with the option that each node takes: what a caller with a problem of their own looks up.
    #[must_use]
    pub fn with_choice(mut self, plan: &Plan) -> Self {
        self.choice = Some(plan.choice.clone());
        self
    }

    /// The same plan, with the frontier that it lies on.
    #[must_use]
    pub fn with_frontier(mut self, frontier: &Frontier) -> Self {
        let points = frontier.points().iter().map(|point| FrontierEntry {
            iteration_us: point.totals.iteration_us,
            amplification: point.totals.amplification,
            gpus: point.gpus,
        });
        self.frontier = Some(points.collect());
        self
    }

    /// As JSON.
    ///
    /// # Errors
    /// When a figure is not finite.
    pub fn to_json(&self) -> Result<String, Error> {
        serde_json::to_string_pretty(self)
            .map_err(|error| Error::Document { path: ".".into(), problem: error.to_string() })
    }

    /// Reads a JSON document of the format `deeppool/plan/v1`.
    ///
    /// # Errors
    /// [`Error::Document`] with the path inside the document.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let deserializer = &mut serde_json::Deserializer::from_str(text);
        let plan: Self = serde_path_to_error::deserialize(deserializer).map_err(|error| Error::Document {
            path: error.path().to_string(),
            problem: error.inner().to_string(),
        })?;
        if plan.schema != SCHEMA {
            let problem = format!("expected `{SCHEMA}`, found `{}`", plan.schema);
            return Err(Error::Document { path: "schema".into(), problem });
        }
        Ok(plan)
    }

    /// Writes [`to_json`](Self::to_json) to a file, whole or not at all.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        write_atomically(path, self.to_json()?.as_bytes())
    }

    /// Reads a file that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// [`Error::File`] that names the file and what is wrong in it.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let in_file = |problem: String| Error::File { path: path.into(), problem };
        let text = std::fs::read_to_string(path).map_err(|error| in_file(error.to_string()))?;
        Self::from_json(&text).map_err(|error| in_file(error.to_string()))
    }

    /// Where each layer of a network runs.
    ///
    /// # Errors
    /// [`Error::Placement`] when the plan is of another network.
    pub fn placement(&self, network: &LayerGraph) -> Result<Placement, Error> {
        let layers: Vec<&str> = network.layers().skip(1).map(|(_, layer)| layer.name()).collect();
        let planned: Vec<&str> = self.layers.iter().map(|layer| layer.name.as_str()).collect();
        if layers != planned {
            let other = planned.iter().zip(&layers).find(|(planned, layer)| planned != layer);
            let problem = match other {
                Some((planned, layer)) => {
                    format!("the plan has layer `{planned}` where `{}` has `{layer}`", network.name())
                }
                None => format!(
                    "the plan has {} layers, `{}` has {}",
                    planned.len(),
                    network.name(),
                    layers.len()
                ),
            };
            return Err(Error::Placement(problem));
        }
        Placement::new(network, self.gpus, self.layers.iter().map(|layer| layer.ranks.clone()).collect())
    }
}
