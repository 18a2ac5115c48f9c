//! Training with partial backpropagation, epoch by epoch.
//!
//! *Compute* is modelled time of forward, backward and update steps. It is counted in epochs of
//! full backpropagation.

use std::sync::Mutex;
use std::time::Duration;

use anyhow::bail;
use collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::data::{DataSource, Dataset};
use deeppool::program::{LowerOptions, LoweredTraining, Placement, lower_rotation};
use deeppool::train::{Length, Progress, TrainConfig, train};
use layer_graph::{
    AdaptiveAvgPool2d, BatchNorm, Conv2d, GraphError, LayerGraph, LayerId, LayerKind, Linear, zoo,
};
use layer_profile::DeviceModel;
use serde::{Deserialize, Serialize};

use super::{GPUS, Method};

/// Samples of the global batch.
pub(super) const BATCH: usize = 32;
/// Name of the device model by which compute is counted.
pub(super) const DEVICE: &str = "cpu-core";
/// Numbers of parts into which structured partial backpropagation splits batches.
const PARTS: [usize; 3] = [2, 4, 8];
/// Number of parts whose compute the baselines match.
const BASELINE_PARTS: usize = 4;

/// A network that is trained, and its data.
pub(super) struct TrainedNetwork {
    /// Display name of the network.
    pub(super) title: String,
    network: LayerGraph,
    dataset: Dataset,
    learning_rate: f64,
}

/// Mean training loss and test accuracy (0 to 1) of each epoch of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LearningCurve(Vec<(f64, f64)>);

/// An epoch of a run.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LearningRow {
    /// Name of the network.
    pub(super) model: String,
    /// Display name of the network.
    #[serde(skip)]
    pub(super) title: String,
    /// Label of the backpropagation method.
    #[serde(rename = "way")]
    pub(super) method: String,
    /// Seed of the run's random numbers.
    pub(super) seed: u64,
    /// Number of the epoch, from 1.
    pub(super) epoch: u64,
    /// Number of iterations from the start of training to the end of this epoch.
    pub(super) iterations: u64,
    /// Compute from the start of training to the end of this epoch, in epochs of full
    /// backpropagation.
    pub(super) compute: f64,
    /// Compute of one epoch, in epochs of full backpropagation.
    pub(super) compute_share: f64,
    /// Mean training loss of the epoch.
    pub(super) train_loss: f64,
    /// Test accuracy after the epoch, from 0 to 1.
    pub(super) test_accuracy: f64,
}

/// Returns the networks for a data set: a residual one with batch normalisation and, for the
/// bundled digits, also one without.
///
/// # Errors
/// If the data set cannot be read, or is not one of images.
pub(super) fn networks(source: &DataSource) -> anyhow::Result<Vec<TrainedNetwork>> {
    let dataset = match source {
        DataSource::Digits => Dataset::digits()?,
        DataSource::Mnist(folder) => Dataset::mnist(folder)?,
        DataSource::Cifar10(folder) => Dataset::cifar10(folder)?,
        other => bail!(
            "data set `{other}`: backpropagation methods are compared on digits, mnist:DIR or cifar10:DIR"
        ),
    };
    dataset.check_batch(BATCH)?;
    let mut networks = Vec::new();
    if *source == DataSource::Digits {
        networks.push(TrainedNetwork {
            title: "digits-cnn".into(),
            network: zoo::model("digits-cnn")?,
            dataset: dataset.clone(),
            learning_rate: 0.03,
        });
    }
    networks.push(TrainedNetwork {
        title: format!("a residual network on {}", dataset.name()),
        network: residual_network(&dataset)?,
        dataset,
        learning_rate: 0.03,
    });
    Ok(networks)
}

/// Builds six residual blocks of two convolutions, 16, 32 and 32 channels wide. Images larger than
/// those of digits are halved first.
fn residual_network(dataset: &Dataset) -> Result<LayerGraph, GraphError> {
    let shape = dataset.shape().clone();
    let side = shape.dims().last().copied().unwrap_or_default();
    let stride = if side > 8 { 2 } else { 1 };
    let mut net = LayerGraph::new(format!("{}-resnet", dataset.name()), shape)?;
    let input = net.input();
    let mut x = normalised(&mut net, "stem", Conv2d::new(16, 3).stride(stride).padding(1), input)?;
    x = net.add("stem.relu", LayerKind::Relu, [x])?;
    for (block, (width, stride)) in
        [(16, 1), (16, 1), (32, 2), (32, 1), (32, 2), (32, 1)].into_iter().enumerate()
    {
        x = residual_block(&mut net, block, (width, stride), x)?;
    }
    x = net.add("pool", AdaptiveAvgPool2d { output: [1, 1] }, [x])?;
    x = net.add("flatten", LayerKind::Flatten, [x])?;
    x = net.add("fc", Linear::new(dataset.classes().unwrap_or_default()), [x])?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    Ok(net)
}

fn residual_block(
    net: &mut LayerGraph,
    block: usize,
    (width, stride): (usize, usize),
    input: LayerId,
) -> Result<LayerId, GraphError> {
    let name = |part: &str| format!("block{block}.{part}");
    let mut x = normalised(net, &name("1"), Conv2d::new(width, 3).stride(stride).padding(1), input)?;
    x = net.add(name("relu1"), LayerKind::Relu, [x])?;
    x = normalised(net, &name("2"), Conv2d::new(width, 3).padding(1), x)?;
    let mut shortcut = input;
    if stride > 1 || net.layer(input).output_shape() != net.layer(x).output_shape() {
        shortcut = normalised(net, &name("short"), Conv2d::new(width, 1).stride(stride), input)?;
    }
    let sum = net.add(name("add"), LayerKind::Add, [x, shortcut])?;
    net.add(name("relu2"), LayerKind::Relu, [sum])
}

fn normalised(net: &mut LayerGraph, name: &str, conv: Conv2d, input: LayerId) -> Result<LayerId, GraphError> {
    let x = net.add(format!("{name}.conv"), conv.without_bias(), [input])?;
    net.add(format!("{name}.norm"), BatchNorm::default(), [x])
}

impl TrainedNetwork {
    /// Returns a description of the data set: its name, and its numbers of training and test
    /// samples.
    pub(super) fn data_description(&self) -> String {
        let Self { dataset, .. } = self;
        format!(
            "{} ({} samples to train and {} to test)",
            dataset.name(),
            dataset.train().len(),
            dataset.test().len()
        )
    }

    /// Returns the methods: full backpropagation first, then partial with 2, 4 and 8 parts, and
    /// baselines with about the compute of 4 parts.
    ///
    /// # Errors
    /// If the network cannot be divided into parts.
    pub(super) fn methods(&self) -> anyhow::Result<Vec<Method>> {
        let mut methods = vec![Method::Whole];
        methods.extend(PARTS.map(Method::Parts));
        methods.extend([Method::Together(BASELINE_PARTS), Method::Random(BASELINE_PARTS)]);
        let as_much = self.compute_share(&Method::Parts(BASELINE_PARTS))?;
        let mut frozen = None;
        for (_, layer) in self.network.layers().filter(|(_, layer)| layer.parameter_count() > 0).skip(1) {
            let method = Method::Frozen(layer.name().into());
            let off = (self.compute_share(&method)? - as_much).abs();
            if frozen.as_ref().is_none_or(|(_, min)| off < *min) {
                frozen = Some((method, off));
            }
        }
        methods.extend(frozen.map(|(method, _)| method));
        Ok(methods)
    }

    /// Returns the compute of an epoch by a method relative to full backpropagation, with every
    /// layer on all ranks.
    ///
    /// # Errors
    /// If the network cannot be divided into parts.
    pub(super) fn compute_share(&self, method: &Method) -> anyhow::Result<f64> {
        let profile = DeviceModel::named(DEVICE)?.profile(&self.network, &shard_sizes(BATCH, GPUS))?;
        let link = LinkModel::threads_of_one_host();
        let costs = Costs::new(&self.network, &profile, &link);
        let everywhere =
            Placement::first_ranks(&self.network, GPUS, &vec![GPUS; self.network.computing_layers().len()])?;
        let computing = |method: &Method| -> anyhow::Result<f64> {
            let options = LowerOptions::default().with_partial(method.partial(&self.network)?);
            let programs = lower_rotation(&self.network, &everywhere, BATCH, &options)?;
            let mut all = Duration::ZERO;
            for rank in programs.iter().flat_map(|program| &program.ranks) {
                for step in &rank.steps {
                    all += costs.compute_time(rank, &step.op)?;
                }
            }
            Ok(all.as_secs_f64() / programs.len() as f64)
        };
        Ok(computing(method)? / computing(&Method::Whole)?)
    }

    /// Trains the network for a number of epochs on one rank.
    ///
    /// # Errors
    /// If the network cannot be divided into parts, or if training fails.
    pub(super) fn learn(&self, method: &Method, seed: u64, epochs: u64) -> anyhow::Result<LearningCurve> {
        let placement = Placement::single(&self.network)?;
        let lowering = LowerOptions::default().with_partial(method.partial(&self.network)?);
        let training = LoweredTraining::new(&self.network, placement, BATCH, lowering);
        let config = TrainConfig::new(&self.dataset, &training)
            .with_length(Length::Epochs(epochs))
            .with_learning_rate(self.learning_rate)
            .with_seed(seed);
        let of_epochs = Mutex::new(Vec::new());
        train(&config, &|progress| {
            if let (Progress::Epoch(epoch), Ok(mut of_epochs)) = (progress, of_epochs.lock()) {
                of_epochs.push((epoch.train_loss, epoch.test.accuracy.unwrap_or_default()));
            }
        })?;
        Ok(LearningCurve(of_epochs.into_inner().unwrap_or_default()))
    }
}

impl LearningCurve {
    /// Returns a row for each epoch. `share` is the compute of one epoch of the method, in epochs
    /// of full backpropagation.
    pub(super) fn rows(
        &self,
        network: &TrainedNetwork,
        method: &Method,
        seed: u64,
        share: f64,
    ) -> Vec<LearningRow> {
        let of_epoch = (network.dataset.train().len() / BATCH) as u64;
        let row = |(epoch, &(train_loss, test_accuracy)): (u64, &(f64, f64))| LearningRow {
            model: network.network.name().into(),
            title: network.title.clone(),
            method: method.label(),
            seed,
            epoch,
            iterations: epoch * of_epoch,
            compute: epoch as f64 * share,
            compute_share: share,
            train_loss,
            test_accuracy,
        };
        (1..).zip(&self.0).map(row).collect()
    }
}
