//! Device models: prediction of layer times, and the fit of such models to measurements.

mod costs;
mod demand;
mod direction;
mod errors;
mod fit;
mod json;
mod nonnegative;
mod observations;
mod refit;
mod roofline;
mod term;

use std::time::Duration;

use layer_graph::{Layer, LayerGraph, LayerId};

use crate::table::check_batches;
use crate::{
    BatchTime, DataSheet, Gpu, HeldOutErrors, LayerProfile, LayerTime, ModelAccuracy, NetworkTime,
    NumberFormat, Origin, ProfileError, ProfileTable,
};
use costs::Costs;
use demand::Demand;
use roofline::{CPU_CORE, Roofline};

pub use direction::Direction;
pub use errors::NetworkErrors;
pub use fit::FitReport;
pub use observations::{Iteration, Observations, Optimizer};

/// Name of the built-in model of a CPU core.
const CORE: &str = "cpu-core";

/// Fitted models, as written by `experiments published --fit`.
const FITTED: [&str; 9] = [
    include_str!("h200.json"),
    include_str!("h200-bf16.json"),
    include_str!("h200-fp32.json"),
    include_str!("a100.json"),
    include_str!("a100-bf16.json"),
    include_str!("h100.json"),
    include_str!("h100-bf16.json"),
    include_str!("v100.json"),
    include_str!("v100-fp16.json"),
];

/// Model of a device: predicts layer times from floating-point operations, bytes and shapes.
///
/// A pass of a layer has a demand for some 50 terms. A device has a cost for each term. The
/// predicted time is the sum of demand times cost. The terms are:
///
/// - kernel launches;
/// - for convolutions, 1x1 convolutions, linear layers and attention, forward and backward:
///   floating-point operations, the *depth* (number of products summed into one value), and
///   megabytes of inputs, outputs and parameters;
/// - for pooling: megabytes moved, megabytes covered by the windows, and megabytes of the indices
///   of maxima;
/// - for other layers: megabytes moved.
///
/// Launches and depth do not grow with the batch: a long sum takes the same time on one
/// multiprocessor even if the others are idle. Because of these two terms, small layers use the
/// device badly and strong scaling saturates. The efficiency of a layer is the time of its
/// floating-point operations divided by its whole time, which grows with the size of the layer.
///
/// The terms are added, whereas a roofline takes their maximum, because layout changes, workspaces
/// and partial waves of thread blocks hardly overlap with arithmetic in the measured times. A
/// layer's time therefore increases with the samples, and its time for each sample decreases.
/// Rounding channels up to the tiles of tensor cores did not improve the fit, but for groups of
/// few channels.
///
/// # Devices
/// A name is that of a GPU (`a100`, `a100-80gb`, `h100`, `h200`, `v100`, `v100-32gb`), with the
/// [number format](NumberFormat) of its products at the end if it is not the GPU's default:
/// `a100` multiplies in TF32, `a100-bf16` in BF16 by automatic mixed precision, `a100-fp32` without
/// tensor cores. A `v100` multiplies in FP32, `v100-fp16` in FP16.
///
/// | model | fitted to |
/// |---|---|
/// | `h200`, `h200-bf16`, `h200-fp32` | iterations of six networks in PyTorch, and kernels |
/// | `a100` | layer times published with `DeepPool`; iterations of ResNet-50 and BERT-base |
/// | `a100-bf16`, `h100`, `h100-bf16` | iterations of ResNet-50 and BERT-base |
/// | `v100` | as `v100-fp16`, and layers of `PipeDream` |
/// | `v100-fp16` | kernels of `DeepBench`; iterations of ResNet-50 and BERT-base |
/// | others | scaled from one of these by [data sheets](DataSheet) |
///
/// Iterations are published ones of the fastest software on one GPU, whose normalisations and
/// activations are fused; those of the H200 are not. Each model is a [`refit`](Self::refit) of
/// another one, and carries its errors on iterations that it was not fitted to, by
/// [family](crate::NetworkFamily) of networks. `experiments published --fit` repeats the fits.
///
/// `cpu-core` is one core of a processor with AVX2 and fused multiply-add, by a roofline formula.
/// Its constants are fixed and plausible but not measured, so that plans made with it are the same
/// on every machine.
///
/// Other models are fitted to measurements by [`fit`](Self::fit) or read from JSON.
///
/// # Limits
/// The weights of the fits were chosen with the errors on other networks in view, so that errors on
/// further networks may be larger. The times are those of kernels that follow each other without
/// gaps, as in captured graphs: the time in which a framework launches small kernels one by one is
/// not predicted. The backward pass of a network's first layer counts the gradient of its input,
/// which training omits.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceModel {
    name: String,
    formula: Formula,
    accuracy: ModelAccuracy,
}

/// Formula by which a model predicts times.
#[derive(Debug, Clone, PartialEq)]
enum Formula {
    /// Sum over terms of demand times cost.
    Costs(Costs),
    /// Roofline with a saturation curve.
    Roofline(&'static Roofline),
}

impl DeviceModel {
    /// Returns the built-in model with the given name, one of [`names`](Self::names).
    ///
    /// # Errors
    /// [`ProfileError::UnknownDevice`], which lists the known names, if there is none.
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        match name {
            CORE => Ok(Self {
                name: CORE.into(),
                formula: Formula::Roofline(&CPU_CORE),
                accuracy: ModelAccuracy {
                    basis: "fixed units, so that plans are repeatable; not the times of this machine".into(),
                    errors: None,
                    held_out: Vec::new(),
                },
            }),
            name => Self::among(&Self::fitted()?, name),
        }
    }

    /// Returns the built-in models that were fitted to measurements. The first of a number format
    /// is the one that GPUs of other chips are scaled from.
    ///
    /// # Errors
    /// None: the files of the models are valid.
    pub fn fitted() -> Result<Vec<Self>, ProfileError> {
        FITTED.iter().map(|text| Self::from_json(text)).collect()
    }

    /// Returns the model of a GPU with a data sheet: the one of this name among `models`, or one
    /// that is scaled by data sheets from that of the same chip with another memory, or else from
    /// the first one in the same number format.
    ///
    /// # Errors
    /// [`ProfileError::UnknownDevice`] if the name is not that of a [`Gpu`], or if no model is in
    /// its number format.
    pub fn among(models: &[Self], name: &str) -> Result<Self, ProfileError> {
        let unknown = || ProfileError::UnknownDevice { name: name.into(), known: Self::names() };
        let gpu = Gpu::named(name).map_err(|_| unknown())?;
        let mut best: Option<(u8, Gpu, &Self)> = None;
        for model in models {
            let fitted = Gpu::named(&model.name)?;
            let rank = match (fitted == gpu, fitted.format == gpu.format) {
                (true, _) => 3,
                (_, true) if fitted.sheet.has_chip_of(&gpu.sheet) => 2,
                (_, true) => 1,
                _ => continue,
            };
            if best.is_none_or(|(best, ..)| rank > best) {
                best = Some((rank, fitted, model));
            }
        }
        let (rank, fitted, model) = best.ok_or_else(unknown)?;
        let scaled = model.scaled(name, &fitted, &gpu);
        // The iterations of a GPU were measured with each of its memories.
        let (gpu_name, _) = NumberFormat::split(&model.name);
        if rank == 3 || (rank == 2 && name.starts_with(gpu_name)) {
            return Ok(scaled);
        }
        let basis = format!("scaled from {} by data sheets", model.name);
        Ok(Self { accuracy: ModelAccuracy { basis, errors: None, held_out: Vec::new() }, ..scaled })
    }

    /// Returns this model, which is one of the GPU `from`, scaled to the GPU `to` by the ratios of
    /// their peak rates. Its accuracy is that of this model. `cpu-core` is not scaled.
    #[must_use]
    pub fn scaled(&self, name: impl Into<String>, from: &Gpu, to: &Gpu) -> Self {
        let mut model = Self { name: name.into(), ..self.clone() };
        if let Formula::Costs(costs) = &mut model.formula {
            *costs = costs.scaled(from, to);
        }
        model
    }

    /// Returns the names of all built-in models, those of GPUs without number formats:
    /// [`Gpu::names`] has both.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        DataSheet::names().into_iter().chain([CORE]).collect()
    }

    /// Returns the model's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the accuracy of the model compared with measurements.
    #[must_use]
    pub fn accuracy(&self) -> &ModelAccuracy {
        &self.accuracy
    }

    /// Sets the errors on iterations that the model was not fitted to.
    #[must_use]
    pub fn with_held_out(mut self, held_out: Vec<HeldOutErrors>) -> Self {
        self.accuracy.held_out = held_out;
        self
    }

    /// Returns the errors of the model on measurements, by network. Empty for `cpu-core`, which is
    /// not evaluated.
    #[must_use]
    pub fn errors(&self, observations: &Observations) -> Vec<NetworkErrors> {
        errors::errors(observations, |row| match &self.formula {
            Formula::Costs(costs) => Some(costs.time_us(&row.demand)),
            Formula::Roofline(_) => None,
        })
    }

    /// Predicts the times of a layer for the given number of samples. For 0 samples the forward and
    /// backward passes take no time. The optimiser step is that over all parameters of the layer,
    /// owned or shared. The input layer takes no time.
    #[must_use]
    pub fn layer_time(&self, layer: &Layer, samples: usize) -> LayerTime {
        LayerTime {
            forward: self.pass_time(layer, Direction::Forward, samples),
            backward: self.pass_time(layer, Direction::Backward, samples),
            update: self.update_time(layer.parameter_bytes()),
        }
    }

    /// Predicts the times of all layers of a network at the given batch sizes, in samples.
    ///
    /// The times of the network are the sums of its layers, since one device runs them in sequence.
    /// Shared parameters are updated once, by the layer that owns them.
    ///
    /// # Errors
    /// [`ProfileError::Batches`] if the batch sizes are empty, zero or not ascending;
    /// [`ProfileError::Invalid`] if the network has only its input layer.
    pub fn profile(&self, network: &LayerGraph, batches: &[usize]) -> Result<ProfileTable, ProfileError> {
        check_batches(batches)?;
        let working = || network.computing_layers();
        let update = |id: LayerId, layer: &Layer| {
            (network.own_parameter_count(id) > 0).then(|| self.update_time(layer.parameter_bytes()))
        };
        let layers = working().map(|(id, layer)| {
            let times = batches.iter().map(|&batch| {
                let LayerTime { forward, backward, .. } = self.layer_time(layer, batch);
                BatchTime { batch, forward, backward, spread: None }
            });
            LayerProfile::new(network, id, update(id, layer), times.collect())
        });
        let whole = batches.iter().map(|&batch| NetworkTime {
            batch,
            time: working()
                .map(|(id, layer)| LayerTime {
                    update: update(id, layer).unwrap_or_default(),
                    ..self.layer_time(layer, batch)
                })
                .sum(),
            spread: None,
        });
        let table = ProfileTable::new(
            network.name(),
            self.name.as_str(),
            Origin::Modelled,
            layers.collect(),
            whole.collect(),
        );
        Ok(table?.with_accuracy(self.accuracy.clone()))
    }

    fn pass_time(&self, layer: &Layer, pass: Direction, samples: usize) -> Duration {
        match &self.formula {
            Formula::Costs(costs) => costs.time(&Demand::of(layer, pass, samples)),
            Formula::Roofline(roofline) => roofline.pass_time(layer, pass, samples),
        }
    }

    fn update_time(&self, parameter_bytes: u64) -> Duration {
        match &self.formula {
            Formula::Costs(costs) => costs.time(&Demand::of_update(parameter_bytes)),
            Formula::Roofline(roofline) => roofline.update_time(parameter_bytes),
        }
    }
}

/// Converts seconds to a [`Duration`]; [`Duration::MAX`] if it does not fit.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
