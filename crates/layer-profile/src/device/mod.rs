mod costs;
mod demand;
mod direction;
mod errors;
mod fit;
mod json;
mod nonnegative;
mod observations;
mod roofline;
mod sheet;
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

pub use direction::Direction;
pub use errors::NetworkErrors;
pub use fit::FitReport;
pub use observations::Observations;
pub use sheet::DataSheet;

/// The name of the one built-in model that is not of a GPU.
const CORE: &str = "cpu-core";

/// The costs of an A100, as `cargo run -p layer-profile --example fit_a100` prints them.
const A100: &str = include_str!("a100.json");

/// Predicts how long a layer takes on a device, from its floating-point operations, its bytes and its shape.
///
/// A pass of a layer asks for amounts of some 50 terms, a device has a cost for each of them, and the time is the sum of
/// amounts times costs:
///
/// - kernels that are launched;
/// - for convolutions, 1x1 convolutions, linear layers and attention, each forward and backward: floating-point
///   operations; the *depth*, which is the number of products that are summed into one value; and megabytes of inputs,
///   outputs and parameters;
/// - for pooling: megabytes moved, megabytes that the windows cover, and those of the places of maxima;
/// - for everything else: megabytes that are moved in passing.
///
/// Launches and depth do not grow with the batch: a sum of thousands of products takes its time on one multiprocessor
/// even if the others have nothing to do. They are why a small layer does not use the device well, and why strong scaling
/// saturates: its efficiency is `flops cost / (flops cost + all else)`, which rises with its size. The terms are added, not
/// compared as in a roofline, since what kernels wait for (changes of layout, workspaces, last waves of thread blocks that are not full) is hardly
/// overlapped in the measured times. So a layer's time rises with the samples, and the time of a sample falls.
/// Whole tiles of tensor cores instead of the channels that there are did not explain the measurements any better.
///
/// # Devices
/// - `a100`: NVIDIA A100 SXM4 40 GB, single precision with TF32 tensor cores, layers as captured graphs. Fitted to the
///   layer times published with DeepPool (Park et al., MLSys 2022) for VGG-16, WRN-101-2 and Inception-V3.
/// - `a100-40gb`: the same by another name.
/// - `a100-80gb`, `h100`, `h200`, `v100` (16 GB), `v100-16gb`, `v100-32gb`: the costs of `a100` times the ratio of the
///   [data sheets](DataSheet). They have not been compared with measurements.
/// - `cpu-core`: one core of a processor with AVX2 and fused multiply-add, by a roofline of its own. Fixed constants of a
///   plausible machine, measured nowhere: a plan that is made from them is the same everywhere.
///
/// Others come from measurements by [`fit`](Self::fit), and from files by [`load`](Self::load).
///
/// # How `a100` was fitted
/// By [`fit`](Self::fit), to rows that were read as follows (the example `fit_a100` reads them so, and prints the model):
///
/// - Rows are matched to layers by position. The published backward of a convolution or linear layer is charged to the ReLU
///   after it, so that the two are one row; forward they are two observations.
/// - A bottleneck of WRN-101-2 is one row and the sum of its layers. Its first convolution has no normalisation there.
/// - The rows of Inception-V3 are convolutions without bias, and pools. The normalisations and activations that follow
///   each convolution in this workspace's network (as in torchvision's) are not in them: the published program
///   registers the convolution alone, the published parameter counts are those of bare convolutions, and the first row's
///   249 us forward at batch 64 leave no room for five more passes over 182 MB. So like is compared with like: the
///   published rows with the layers that they cover.
/// - The backward pass of the last linear layer was not published.
///
/// Sums of rows over whole networks, and the median over rows, at the published batches (1 to 64; WRN-101-2 to 32):
///
/// | | whole network | rows, median | left out of the fit: whole network | rows, median |
/// |---|---|---|---|---|
/// | VGG-16 | -2.0% to +4.1% | 3.8% | +0.2% to +8.3% | 6.5% |
/// | WRN-101-2 | -6.7% to +0.2% | 5.2% | -4.3% to +5.2% | 8.3% |
/// | Inception-V3 | -6.4% to +0.2% | 5.7% | -7.3% to -0.4% | 10.2% |
///
/// The terms were chosen with all three networks in view, so that the errors on another network may be larger than
/// those that were left out. What the published rows do not cover is extrapolated: with its normalisations and activations
/// Inception-V3 is predicted to take 52.8 ms at batch 32, of which the published rows cover 39.5 (published: 40.9); linear
/// layers over sequences and attention have the textbook's costs, at an A100's peaks. The backward pass of a network's first
/// layer counts the gradient of its input, though training, and what is measured, leave that out: a little too long where
/// that layer is large.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceModel {
    name: String,
    formula: Formula,
    accuracy: ModelAccuracy,
}

#[derive(Debug, Clone, PartialEq)]
enum Formula {
    Costs(Costs),
    Roofline(&'static Roofline),
}

impl DeviceModel {
    /// The built-in model of this name.
    ///
    /// # Errors
    /// [`ProfileError::UnknownDevice`], which lists the names that exist.
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        match known_names::find(name, Self::names()).unwrap_or(name) {
            CORE => Ok(Self {
                name: CORE.into(),
                formula: Formula::Roofline(&CPU_CORE),
                accuracy: ModelAccuracy {
                    basis: "fixed units, so that plans are repeatable; not the times of this machine".into(),
                    seen: None,
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
        let accuracy = ModelAccuracy { basis: "scaled from a100 by data sheets".into(), seen: None };
        Ok(Self { name: name.into(), accuracy, ..model })
    }

    /// The names of all built-in models.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        DataSheet::names().into_iter().chain([CORE]).collect()
    }

    /// The model's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How far it is from measurements.
    #[must_use]
    pub fn accuracy(&self) -> &ModelAccuracy {
        &self.accuracy
    }

    /// Its errors on measurements, by network.
    #[must_use]
    pub fn errors(&self, observations: &Observations) -> Vec<NetworkErrors> {
        errors::errors(observations, |row| match &self.formula {
            Formula::Costs(costs) => Some(costs.time_us(&row.demand)),
            Formula::Roofline(_) => None,
        })
    }

    /// How long a layer takes for this many samples. With no samples at all, forward and backward take no time. The
    /// input layer never does.
    #[must_use]
    pub fn layer_time(&self, layer: &Layer, samples: usize) -> LayerTime {
        LayerTime {
            forward: self.pass_time(layer, Direction::Forward, samples),
            backward: self.pass_time(layer, Direction::Backward, samples),
            update: self.update_time(layer.parameter_bytes()),
        }
    }

    /// The times of all layers of a network at these batch sizes, ascending. The network's own times are the layers'
    /// sums, since one device runs them one after another. Parameters that several layers use are updated once, by the one
    /// that they belong to.
    ///
    /// # Errors
    /// [`ProfileError::Batches`] when the batch sizes are none, zero or not ascending; [`ProfileError::Invalid`] when the
    /// network has no layer but its input.
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

/// A time that is too long for a [`Duration`] becomes [`Duration::MAX`].
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
