//! Device models: prediction of layer times, and the fit of such models to measurements.

mod costs;
mod data_sheet;
mod demand;
mod direction;
mod errors;
mod fit;
mod json;
mod nonnegative;
mod observations;
mod roofline;
mod term;

use std::time::Duration;

use layer_graph::{Layer, LayerGraph, LayerId, LayerKind};

use crate::table::check_batches;
use crate::{
    BatchTime, LayerProfile, LayerTime, ModelAccuracy, NetworkTime, Origin, ProfileError, ProfileTable,
    structure,
};
use costs::Costs;
use demand::Demand;
use roofline::{CPU_CORE, Roofline};

pub use data_sheet::DataSheet;
pub use direction::Direction;
pub use errors::NetworkErrors;
pub use fit::FitReport;
pub use observations::Observations;

/// Name of the built-in model of a CPU core.
const CORE: &str = "cpu-core";

/// Costs of an A100, as printed by `cargo run -p layer-profile --example fit_a100`.
const A100: &str = include_str!("a100.json");

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
/// Rounding channels up to the tiles of tensor cores did not improve the fit.
///
/// # Devices
/// - `a100`: NVIDIA A100 SXM4 40 GB, single precision with TF32 tensor cores, layers as captured
///   graphs. Fitted to the layer times published with DeepPool (Park et al., MLSys 2022) for
///   VGG-16, WRN-101-2 and Inception-V3.
/// - `a100-40gb`: another name of `a100`.
/// - `a100-80gb`, `h100`, `h200`, `v100` (16 GB), `v100-16gb`, `v100-32gb`: the costs of `a100`
///   scaled by [data sheets](DataSheet). Not compared with measurements.
/// - `cpu-core`: one core of a processor with AVX2 and fused multiply-add, by a roofline formula.
///   Its constants are fixed and plausible but not measured, so that plans made with it are the
///   same on every machine.
///
/// Other models are fitted to measurements by [`fit`](Self::fit) or read from JSON.
///
/// # Fit of `a100`
/// The example `fit_a100` repeats the [`fit`](Self::fit) and prints the model. The published rows
/// are read as follows.
///
/// - Rows are matched to layers by position. The published backward time of a convolution or linear
///   layer is charged to the following ReLU, so the two layers are one observation backward and two
///   forward.
/// - A bottleneck of WRN-101-2 is one row, compared with the sum of its layers. The first
///   convolution of the published network has no normalisation.
/// - The rows of Inception-V3 are convolutions without bias, and pools. They do not include the
///   normalisation and activation that follow each convolution in this workspace's network and in
///   torchvision's: the published program registers only the convolution, the published parameter
///   counts are those of convolutions, and 249 us for the first row (forward, batch 64) leave no
///   time for five more passes over 182 MB. The rows are compared with the layers they cover.
/// - The backward pass of the last linear layer was not published.
///
/// Errors of whole networks (sums of rows) and of rows (median), at the published batch sizes 1 to
/// 64 (WRN-101-2: 1 to 32):
///
/// | | whole network | rows, median | left out of the fit: whole network | rows, median |
/// |---|---|---|---|---|
/// | VGG-16 | -2.0% to +4.1% | 3.8% | +0.2% to +8.3% | 6.5% |
/// | WRN-101-2 | -6.7% to +0.2% | 5.2% | -4.3% to +5.2% | 8.3% |
/// | Inception-V3 | -6.4% to +0.2% | 5.7% | -7.3% to -0.4% | 10.2% |
///
/// The terms were chosen with all three networks in view, so errors on other networks may be larger
/// than those in cross-validation. Layers that the published rows do not cover are extrapolated:
/// Inception-V3 with its normalisations and activations is predicted to take 52.8 ms at batch 32,
/// of which the published rows cover 39.5 ms (published: 40.9 ms). Linear layers over sequences and
/// attention have the default costs at the peaks of an A100. The backward pass of a network's first
/// layer counts the gradient of its input, which training omits, so a large first layer is
/// predicted too slow.
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
                },
            }),
            name => match DataSheet::named(name) {
                Ok(DataSheet::A100) => Ok(Self { name: name.into(), ..Self::from_json(A100)? }),
                Ok(sheet) => Self::scaled_from_a100(name, &sheet),
                Err(_) => Err(ProfileError::UnknownDevice { name: name.into(), known: Self::names() }),
            },
        }
    }

    fn scaled_from_a100(name: &str, sheet: &DataSheet) -> Result<Self, ProfileError> {
        let mut model = Self::from_json(A100)?;
        if let Formula::Costs(costs) = &mut model.formula {
            *costs = costs.scaled(&DataSheet::A100, sheet);
        }
        let accuracy = ModelAccuracy { basis: "scaled from a100 by data sheets".into(), errors: None };
        Ok(Self { name: name.into(), accuracy, ..model })
    }

    /// Returns the names of all built-in models.
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
        let working = || network.layers().filter(|(_, layer)| *layer.kind() != LayerKind::Input);
        let update = |id: LayerId, layer: &Layer| {
            (network.own_parameter_count(id) > 0).then(|| self.update_time(layer.parameter_bytes()))
        };
        let layers = working().map(|(id, layer)| {
            let times = batches.iter().map(|&batch| {
                let LayerTime { forward, backward, .. } = self.layer_time(layer, batch);
                BatchTime { batch, forward, backward, spread: None }
            });
            LayerProfile {
                name: layer.name().into(),
                kind: layer.kind().label().into(),
                structure: Some(structure::of(network, id)),
                update: update(id, layer),
                update_spread: None,
                times: times.collect(),
            }
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
