//! What most experiments find: rows of simulations, with what they were made from.

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
use crate::row::Row;
use crate::style::Style;
use crate::testbed::Testbed;

/// What the reader should know of the GPUs before comparing with a real machine.
fn charges(gpu: &DeviceParameters) -> String {
    if *gpu == undisturbed() {
        return "not modelled: what launching costs, and what communication takes from computing beside it"
            .into();
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

/// What each record of a CSV repeats, since it has nowhere else to say it.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Provenance<'a> {
    simulated: bool,
    device: &'a str,
    link: &'a str,
}

/// The format of all reports.
pub(crate) const SCHEMA: &str = "deeppool/report/v1";

/// How a report is drawn.
type Draw = fn(&Report, Style) -> anyhow::Result<Figure>;

/// How a report of what is simulated begins: which experiment it is of, and the models that its numbers are from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Header {
    schema: &'static str,
    pub(crate) experiment: &'static str,
    simulated: bool,
    pub(crate) device: String,
    pub(crate) origin: Origin,
    /// How far the layer times are from measured ones, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    accuracy: Option<ModelAccuracy>,
    pub(crate) link: String,
    /// What the layer times are, for people.
    #[serde(skip)]
    pub(crate) layer_times: String,
}

impl Header {
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

    /// What each record of a CSV repeats of it.
    pub(crate) fn provenance(&self) -> Provenance<'_> {
        Provenance { simulated: self.simulated, device: &self.device, link: &self.link }
    }
}

/// What an experiment found, and what it was made from. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    pub(crate) header: Header,
    pub(crate) gpus: usize,
    /// The limit of burst plans, unless each row says it.
    pub(crate) amplification_limit: Option<f64>,
    /// How background jobs share the GPUs, unless each row says it.
    pub(crate) policy: Option<String>,
    /// Samples of each background job's batch.
    pub(crate) background_batch: usize,
    pub(crate) rows: Vec<Row>,
    /// What is compared, for people, and how it is drawn.
    #[serde(skip)]
    pub(crate) title: &'static str,
    #[serde(skip)]
    draw: Draw,
    /// What the figures are from, for people.
    #[serde(skip)]
    pub(crate) provenance: Vec<String>,
    /// What the rows come to, for people.
    #[serde(skip)]
    pub(crate) summary: Vec<String>,
}

impl Report {
    pub(crate) fn new(
        experiment: &'static str,
        title: &'static str,
        testbed: &Testbed,
        gpu: &DeviceParameters,
        rows: Vec<Row>,
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
            header: Header::new(experiment, &testbed.times, &testbed.link),
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

    /// The same drawn in another way than as a bar a row.
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
