use std::time::Duration;

/// How long one device takes for a layer, or for a whole network, in one training iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LayerTime {
    /// The forward pass.
    pub forward: Duration,
    /// The backward pass: the gradients of the inputs and of the parameters.
    pub backward: Duration,
    /// The optimiser's step over the layer's parameters. It does not depend on the batch.
    pub update: Duration,
}

impl LayerTime {
    /// Everything together.
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

/// Where the times of a table come from.
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

/// A layer's times at one batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchTime {
    /// Samples of the batch.
    pub batch: usize,
    /// The forward pass; of a measured table the median of its repeats.
    pub forward: Duration,
    /// The backward pass, likewise.
    pub backward: Duration,
    /// How far the repeats spread. Only measured tables have it.
    pub spread: Option<BatchSpread>,
}

/// How far the repeats of one measurement spread around their median.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spread {
    /// Their median absolute deviation.
    pub deviation: Duration,
    /// How many lay more than five deviations, and more than 1% of the median, from the median; `None` where that was not
    /// recorded.
    pub outliers: Option<usize>,
    /// Whether the warm-up ended before its times were stable.
    pub unsteady: bool,
}

/// The spreads of a layer's times at one batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchSpread {
    /// Of the forward pass.
    pub forward: Spread,
    /// Of the backward pass.
    pub backward: Spread,
}

/// The spreads of a whole network's times at one batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NetworkSpread {
    /// Of the forward pass.
    pub forward: Spread,
    /// Of the backward pass.
    pub backward: Spread,
    /// Of the optimiser's step.
    pub update: Spread,
}

/// The times of the whole network on one device at one batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkTime {
    /// Samples of the batch.
    pub batch: usize,
    /// All layers, in one run from end to end where it was measured.
    pub time: LayerTime,
    /// How far the repeats spread. Only measured tables have it.
    pub spread: Option<NetworkSpread>,
}

/// The times of one layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerProfile {
    /// The layer's name.
    pub name: String,
    /// Its kind, as in [`LayerKind::label`](layer_graph::LayerKind::label).
    pub kind: String,
    /// Its kind with all hyper-parameters, and its shapes, as text: what the times are of. `None` where that was not
    /// recorded.
    pub structure: Option<String>,
    /// The optimiser's step; `None` for a layer without parameters.
    pub update: Option<Duration>,
    /// How far the repeats of the optimiser's step spread. Only measured tables have it.
    pub update_spread: Option<Spread>,
    /// The times by batch size, ascending.
    pub times: Vec<BatchTime>,
}
