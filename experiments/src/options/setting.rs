//! Options of the foreground jobs, the background jobs and their GPUs.

use anyhow::bail;
use clap::Args;
use command_line::numbers::amplification;

use super::inputs;
use super::values::{batch, gpus};
use super::{MachineOptions, NetworkOptions};
use crate::layer_times::LayerTimes;
use crate::testbed::{DEFAULT_POLICY, Testbed};
use crate::workload::{BACKGROUND_BATCH, BuiltIn, WORKLOADS, Workload};

/// Option of the amplification limit of burst plans.
#[derive(Debug, Clone, Args)]
pub(crate) struct LimitOptions {
    /// Amplification limit of burst plans: GPU time over the iteration time on one GPU
    #[arg(long, value_name = "LIMIT", default_value = "2.0", value_parser = amplification)]
    pub(crate) amplification: f64,
}

/// Option of the GPU-sharing policy.
#[derive(Debug, Clone, Args)]
pub(crate) struct PolicyOptions {
    /// GPU-sharing policy: naive, priority, ungated, artifact, deeppool, feedback or default; `qos`
    /// compares them
    #[arg(long, value_name = "NAME", default_value = DEFAULT_POLICY)]
    pub(crate) policy: String,
}

/// Options of the foreground jobs, the background jobs and their GPUs.
#[derive(Debug, Clone, Args)]
pub(crate) struct TestbedOptions {
    /// Network of the foreground and background jobs.
    #[command(flatten)]
    pub(crate) network: NetworkOptions,
    /// Samples of the foreground's global batch
    #[arg(long, value_name = "N", value_parser = batch)]
    pub(crate) batch: Option<usize>,
    /// Samples of each background job's batch; it trains the foreground's network
    #[arg(long, value_name = "N", default_value_t = BACKGROUND_BATCH, value_parser = batch)]
    pub(crate) background_batch: usize,
    /// Layer times and links.
    #[command(flatten)]
    pub(crate) machine: MachineOptions,
    /// Number of GPUs
    #[arg(long, value_name = "N", default_value = "8", value_parser = gpus)]
    pub(crate) gpus: usize,
}

impl TestbedOptions {
    /// Returns the paper's foreground jobs, or the job that the options describe.
    fn workloads(&self, times: &LayerTimes) -> anyhow::Result<Vec<Workload>> {
        match (self.network.load(times)?, self.batch) {
            (None, batch) => {
                let built_in = |built_in: &BuiltIn| {
                    let workload = built_in.load()?;
                    let batch = batch.unwrap_or(workload.batch);
                    Ok(Workload { batch, background_batch: self.background_batch, ..workload })
                };
                WORKLOADS.iter().map(built_in).collect()
            }
            (Some(network), Some(batch)) => Ok(vec![Workload::new(network, batch, self.background_batch)]),
            (Some(_), None) => {
                bail!("the network has no default batch: give its global batch with --batch N")
            }
        }
    }

    /// Returns the testbed of these options, that is, the simulated machine and its jobs, with an
    /// amplification limit of burst plans and the GPU-sharing policy of the given name.
    ///
    /// # Errors
    /// If a name is unknown, if a file is invalid, or if the layer times do not cover the jobs.
    pub(crate) fn testbed(&self, amplification_limit: f64, policy: &str) -> anyhow::Result<Testbed> {
        let (times, link) = self.machine.load(self.gpus)?;
        let workloads = self.workloads(&times)?;
        for workload in &workloads {
            times.check(&workload.network, &workload.batches(self.gpus))?;
        }
        Ok(Testbed {
            times,
            link,
            gpus: self.gpus,
            amplification_limit,
            policy_name: policy.into(),
            policy: inputs::policy(policy)?,
            workloads,
            background_batch: self.background_batch,
        })
    }

    /// Returns whether the options describe the foreground jobs of the DeepPool paper with the
    /// default batches.
    pub(crate) fn is_of_the_paper(&self) -> bool {
        self.network.model.is_none()
            && self.network.onnx.is_none()
            && !self.machine.has_profile()
            && self.background_batch == BACKGROUND_BATCH
            && self.batch.is_none()
    }
}
