//! Foreground jobs, background jobs and the GPUs that they share.

use anyhow::bail;
use clap::Args;

use super::inputs;
use super::values::{batch, gpus, limit};
use super::{MachineOptions, NetworkOptions};
use crate::layer_times::LayerTimes;
use crate::testbed::{DEFAULT_POLICY, Testbed};
use crate::workload::{BACKGROUND_BATCH, BuiltIn, WORKLOADS, Workload};

/// The limit of burst plans.
#[derive(Debug, Clone, Args)]
pub(crate) struct LimitOptions {
    /// The limit of burst plans: GPU time over the iteration time on one GPU
    #[arg(long, value_name = "LIMIT", default_value = "2.0", value_parser = limit)]
    pub(crate) amplification: f64,
}

/// How background jobs share GPUs with the foreground.
#[derive(Debug, Clone, Args)]
pub(crate) struct PolicyOptions {
    /// How background jobs share the GPUs: naive, priority, ungated, artifact, deeppool, feedback or default; qos compares them all
    #[arg(long, value_name = "NAME", default_value = DEFAULT_POLICY)]
    pub(crate) policy: String,
}

/// What is trained, beside what, and on which GPUs.
#[derive(Debug, Clone, Args)]
pub(crate) struct TestbedOptions {
    #[command(flatten)]
    pub(crate) network: NetworkOptions,
    /// Samples of that network's global batch
    #[arg(long, value_name = "N", value_parser = batch)]
    pub(crate) batch: Option<usize>,
    /// Samples of each background job's batch: it trains the same network
    #[arg(long, value_name = "N", default_value_t = BACKGROUND_BATCH, value_parser = batch)]
    pub(crate) background_batch: usize,
    #[command(flatten)]
    pub(crate) machine: MachineOptions,
    /// How many GPUs there are
    #[arg(long, value_name = "N", default_value = "8", value_parser = gpus)]
    pub(crate) gpus: usize,
}

impl TestbedOptions {
    /// The paper's foreground jobs, or the one that is asked for.
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
            (Some(_), None) => bail!("give the network's global batch, too: --batch N"),
        }
    }

    /// What is asked for, with a limit for burst plans and a policy of sharing.
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

    /// Whether it is about the paper's foreground jobs.
    pub(crate) fn is_of_the_paper(&self) -> bool {
        self.network.model.is_none()
            && self.network.onnx.is_none()
            && !self.machine.has_profile()
            && self.background_batch == BACKGROUND_BATCH
            && self.batch.is_none()
    }
}
