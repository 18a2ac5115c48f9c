//! Reports: rows of simulation results and their *provenance*, that is, the devices, links and
//! models that the numbers are based on. Most experiments return one.

mod figure;
mod sharing_table;
mod text;

use std::time::Duration;

use collectives::LinkModel;
use deeppool::gpu_mux::DeviceParameters;
use deeppool::simulate::undisturbed;
use layer_profile::{ModelAccuracy, Origin};
use serde::Serialize;

use crate::canvas::Figure;
use crate::layer_times::LayerTimes;
use crate::outcome::{self, Outcome};
use crate::row::ReportRow;
use crate::style::Style;
use crate::testbed::Testbed;

/// Returns a sentence on the launch and contention costs that the simulation includes.
fn charges(gpu: &DeviceParameters) -> String {
    if *gpu == undisturbed() {
        return "not modelled: launch costs, and contention between communication and computation".into();
    }
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    format!(
        "communication kernels hold {:.0}% of the multiprocessors and use {:.0}% of the memory bandwidth; \
         launching takes the host {:.1} us a kernel, {:.1} us a graph",
        gpu.communication_share * 100.0,
        gpu.communication_memory * 100.0,
        us(gpu.launch_time),
        us(gpu.graph_launch_time),
    )
}

/// Fields on the origin of the numbers that each CSV record repeats.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Provenance<'a> {
    simulated: bool,
    device: &'a str,
    link: &'a str,
}

/// Name and version of the JSON format of all results.
pub(crate) const SCHEMA: &str = "deeppool/report/v1";

/// Function that draws a report.
type Draw = fn(&Report, Style) -> anyhow::Result<Figure>;

/// Header of a JSON report of simulations: the experiment and the models.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ReportHeader {
    schema: &'static str,
    /// Name of the experiment.
    pub(crate) experiment: &'static str,
    simulated: bool,
    /// Name of the GPU or processor that the layer times are of.
    pub(crate) device: String,
    /// Origin of the layer times: measured, modelled or imported.
    pub(crate) origin: Origin,
    /// Error of the layer times relative to measured ones, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    accuracy: Option<ModelAccuracy>,
    /// Name of the link model.
    pub(crate) link: String,
    /// Description of the layer times with their error, for the printed text.
    #[serde(skip)]
    pub(crate) layer_times: String,
}

impl ReportHeader {
    /// Creates the header of an experiment's results with the given layer times and links.
    pub(crate) fn new(experiment: &'static str, times: &LayerTimes, link: &LinkModel) -> Self {
        Self {
            schema: SCHEMA,
            experiment,
            simulated: true,
            device: times.device().into(),
            origin: times.origin(),
            accuracy: times.accuracy().cloned(),
            link: link.name().into(),
            layer_times: times.about(),
        }
    }

    /// Returns the fields that each CSV record repeats.
    pub(crate) fn provenance(&self) -> Provenance<'_> {
        Provenance { simulated: self.simulated, device: &self.device, link: &self.link }
    }
}

/// Result of an experiment and its provenance. As JSON, a document of the format
/// `deeppool/report/v1`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    /// Experiment and models.
    #[serde(flatten)]
    pub(crate) header: ReportHeader,
    /// Number of GPUs of the testbed.
    pub(crate) gpus: usize,
    /// Amplification limit of burst plans. `None` if it differs between rows.
    pub(crate) amplification_limit: Option<f64>,
    /// Name of the GPU-sharing policy. `None` if it differs between rows.
    pub(crate) policy: Option<String>,
    /// Samples of each background job's batch.
    pub(crate) background_batch: usize,
    /// Results. Rows of a network or of a setting are consecutive.
    pub(crate) rows: Vec<ReportRow>,
    /// Title, without the origin of the numbers.
    #[serde(skip)]
    pub(crate) title: &'static str,
    #[serde(skip)]
    draw: Draw,
    /// Origin of the numbers, one line each.
    #[serde(skip)]
    pub(crate) provenance: Vec<String>,
    /// Findings, one line each.
    #[serde(skip)]
    pub(crate) summary: Vec<String>,
}

impl Report {
    /// Creates the report of an experiment's rows and findings, drawn as a bar chart. `gpu` has the
    /// launch and contention costs of the simulation.
    pub(crate) fn new(
        experiment: &'static str,
        title: &'static str,
        testbed: &Testbed,
        gpu: &DeviceParameters,
        rows: Vec<ReportRow>,
        summary: Vec<String>,
    ) -> Self {
        let (limit, background_batch) = (testbed.amplification_limit, testbed.background_batch);
        let compares = rows.iter().all(|row| row.policy.is_some());
        let mut limits = rows.iter().filter(|row| !row.limit_is_dp).filter_map(|row| row.amplification_limit);
        let is_the_same = limits.all(|of_row| of_row.to_bits() == limit.to_bits());
        let amplification_limit = is_the_same.then_some(limit);
        let limit = amplification_limit.map_or_else(|| "as in each row".into(), |limit| limit.to_string());
        let policy = (!compares).then(|| testbed.policy_name.clone());
        let jobs = format!(
            "background: the same network, batch {background_batch} on each GPU{}; policy: {}; \
             burst plans: amplification limit {limit}; all-reduce: overlapped unless stated",
            if compares { " unless stated" } else { "" },
            policy.as_deref().unwrap_or("as in each row"),
        );
        Self {
            header: ReportHeader::new(experiment, &testbed.times, &testbed.link),
            gpus: testbed.gpus,
            amplification_limit,
            policy,
            background_batch,
            rows,
            title,
            draw: figure::draw,
            provenance: vec![testbed.origin(), jobs, charges(gpu)],
            summary,
        }
    }

    /// Returns the report with `draw` as the function that draws its figure, instead of a bar
    /// chart.
    pub(crate) fn drawn_by(self, draw: Draw) -> Self {
        Self { draw, ..self }
    }
}

impl Outcome for Report {
    fn title(&self) -> String {
        format!("{} (simulated)", self.title)
    }

    fn text(&self) -> String {
        text::text(self)
    }

    fn findings(&self) -> String {
        self.summary.join("\n")
    }

    fn provenance(&self) -> Vec<String> {
        self.provenance.clone()
    }

    fn csv(&self) -> anyhow::Result<Vec<u8>> {
        outcome::csv(self.rows.iter().map(|row| (row, self.header.provenance())))
    }

    fn figures(&self, style: Style) -> anyhow::Result<Vec<Figure>> {
        Ok(vec![(self.draw)(self, style)?])
    }

    fn to_json(&self) -> anyhow::Result<String> {
        outcome::json(self)
    }
}
