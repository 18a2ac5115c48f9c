//! Times of layers and networks on one device, and the spread of repeated measurements. Batch sizes
//! are numbers of samples on that device.

use std::time::Duration;

/// Times of a layer, or of a whole network, on one device in one training iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LayerTime {
    /// Time of the forward pass.
    pub forward: Duration,
    /// Time of the backward pass: the gradients of the inputs and of the parameters.
    pub backward: Duration,
    /// Time of the optimiser step over the layer's parameters. Independent of the batch size.
    pub update: Duration,
}

impl LayerTime {
    /// Returns the sum of the three times.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.forward.saturating_add(self.backward).saturating_add(self.update)
    }
}

impl std::ops::Add for LayerTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            forward: self.forward.saturating_add(other.forward),
            backward: self.backward.saturating_add(other.backward),
            update: self.update.saturating_add(other.update),
        }
    }
}

impl std::iter::Sum for LayerTime {
    fn sum<I: Iterator<Item = Self>>(times: I) -> Self {
        times.fold(Self::default(), |sum, time| sum + time)
    }
}

/// Origin of the times of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Measured on the device.
    Measured,
    /// Computed by a [`DeviceModel`](crate::DeviceModel).
    Modelled,
    /// Imported from files of another program.
    Imported,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Measured => "measured",
            Self::Modelled => "modelled",
            Self::Imported => "imported",
        })
    }
}

/// Times of a layer at one batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchTime {
    /// Batch size in samples.
    pub batch: usize,
    /// Time of the forward pass; the median of the repeats if it was measured.
    pub forward: Duration,
    /// Time of the backward pass; the median of the repeats if it was measured.
    pub backward: Duration,
    /// Spread of the repeats. `None` if the times were not measured.
    pub spread: Option<BatchSpread>,
}

/// Spread of the repeats of one measurement around their median.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spread {
    /// Median absolute deviation of the repeats from their median.
    pub deviation: Duration,
    /// Number of repeats that differ from the median by more than five deviations and more than 1%.
    /// `None` if it was not recorded.
    pub outliers: Option<usize>,
    /// Whether the warm-up before the repeats ended at its limit while the times were still
    /// unstable.
    pub warm_up_unstable: bool,
}

/// Spreads of a layer's times at one batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchSpread {
    /// Spread of the forward pass.
    pub forward: Spread,
    /// Spread of the backward pass.
    pub backward: Spread,
}

/// Spreads of a whole network's times at one batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NetworkSpread {
    /// Spread of the forward pass.
    pub forward: Spread,
    /// Spread of the backward pass.
    pub backward: Spread,
    /// Spread of the optimiser step.
    pub update: Spread,
}

/// Times of the whole network on one device at one batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkTime {
    /// Batch size in samples.
    pub batch: usize,
    /// Times of all layers together. Measured ones are timed in one run from end to end.
    pub time: LayerTime,
    /// Spread of the repeats. `None` if the times were not measured.
    pub spread: Option<NetworkSpread>,
}

/// Times of one layer at several batch sizes: a row of a [`ProfileTable`](crate::ProfileTable).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerProfile {
    /// Name of the layer, unique in the network.
    pub name: String,
    /// Kind of the layer; see [`LayerKind::label`](layer_graph::LayerKind::label).
    pub kind: String,
    /// Description of the profiled layer as text: its kind with all hyper-parameters, its shapes
    /// and the owner of its parameters. `None` if it was not recorded.
    pub structure: Option<String>,
    /// Time of the optimiser step. `None` for a layer that owns no parameters, or if the time is
    /// known for the whole network only.
    pub update: Option<Duration>,
    /// Spread of the repeats of the optimiser step. `None` if its time was not measured or not
    /// recorded.
    pub update_spread: Option<Spread>,
    /// Times of the passes, at least one, by ascending batch size.
    pub times: Vec<BatchTime>,
}
