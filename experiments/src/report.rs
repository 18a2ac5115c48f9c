use std::path::{Path, PathBuf};
use std::time::Duration;

use deeppool::gpu_mux::DeviceParameters;
use deeppool::simulate::undisturbed;
use layer_profile::{ModelAccuracy, Origin};
use serde::Serialize;

use crate::page::{Marks, Section};
use crate::row::Row;
use crate::testbed::Testbed;
use crate::{figure, files, spreadsheet, table};

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

/// The format of all reports.
pub(crate) const SCHEMA: &str = "deeppool/report/v1";

/// What an experiment found, and what it was made from. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Report {
    schema: &'static str,
    pub(crate) experiment: &'static str,
    simulated: bool,
    pub(crate) device: String,
    origin: Origin,
    /// How far the layer times are from measured ones.
    accuracy: ModelAccuracy,
    pub(crate) link: String,
    pub(crate) gpus: usize,
    pub(crate) amplification_limit: f64,
    /// How background jobs share the GPUs, unless each row says it.
    pub(crate) policy: Option<String>,
    /// Samples of each background job's batch.
    pub(crate) background_batch: usize,
    pub(crate) rows: Vec<Row>,
    /// What is compared, for people.
    #[serde(skip)]
    pub(crate) title: &'static str,
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
        let policy = (!compares).then(|| testbed.policy_name.clone());
        let jobs = format!(
            "background: the same network, batch {background_batch} on each GPU{}; policy: {}; \
             burst plans: amplification limit {limit}; all-reduce: overlapped unless stated",
            if compares { " unless stated" } else { "" },
            policy.as_deref().unwrap_or("as in each row"),
        );
        Self {
            schema: SCHEMA,
            experiment,
            simulated: true,
            device: testbed.device.name().into(),
            origin: Origin::Modelled,
            accuracy: testbed.device.accuracy().clone(),
            link: testbed.link.name().into(),
            gpus: testbed.gpus,
            amplification_limit: limit,
            policy,
            background_batch,
            rows,
            title,
            provenance: vec![testbed.origin(), jobs, charges(gpu)],
            summary,
        }
    }

    /// One report with the rows of several, of the same testbed.
    pub(crate) fn of_all(reports: &[Self], testbed: &Testbed) -> Self {
        let rows = reports.iter().flat_map(|report| report.rows.clone()).collect();
        let mut all = Self::new("all", "All experiments", testbed, &undisturbed(), rows, Vec::new());
        // The last line of each says what its GPUs charge.
        all.provenance.pop();
        for report in reports {
            let charges = report.provenance.last().map_or("", String::as_str);
            all.provenance.push(format!("{}: {charges}", report.experiment));
        }
        all
    }

    pub(crate) fn to_json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The report on a page of several, whose bars say what they are.
    pub(crate) fn section(&self) -> anyhow::Result<Section> {
        let bars = |contains, rate: fn(&Row) -> f64, whose: &str| {
            let drawn = self.rows.iter().filter(|row| rate(row) > 0.0);
            let setting = |row: &Row| row.setting.map_or_else(|| row.title.clone(), str::to_owned);
            let value =
                |row: &Row| format!("{}, {}: {whose} {:.1} samples/s", setting(row), row.label(), rate(row));
            Marks { tag: "<rect", contains, legend: 1, values: drawn.map(value).collect() }
        };
        let marks = [
            bars("#0072B2", |row| row.foreground_samples_per_s, "foreground"),
            bars("#E69F00", |row| row.background_samples_per_s, "background"),
        ];
        let text = (table::text(self), self.summary.join("\n"));
        let figure = (figure::svg(self)?, &marks[..]);
        Section::new(
            self.experiment,
            format!("{} (simulated)", self.title),
            text,
            figure,
            spreadsheet::csv(self)?,
        )
    }

    /// Writes CSV, figure and JSON to a folder, each whole or not at all.
    pub(crate) fn save(&self, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let written = [
            ("csv", spreadsheet::csv(self)?),
            ("svg", figure::svg(self)?.into_bytes()),
            ("json", self.to_json()?.into_bytes()),
        ];
        files::save(folder, self.experiment, &written)
    }
}
