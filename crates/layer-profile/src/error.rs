use std::path::PathBuf;
use std::time::Duration;

/// What can be wrong with a profile, a file that holds one, or a request for its times.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// A file cannot be written.
    #[error(transparent)]
    Output(#[from] whole_file::OutputError),
    /// The profile has no row for a layer.
    #[error("the profile of `{model}` has no row for layer `{layer}`")]
    MissingLayer {
        /// The layer that was asked for.
        layer: String,
        /// The network that the profile is of.
        model: String,
    },
    /// The profile does not say how long the optimiser takes for a layer with parameters.
    #[error(
        "the profile of `{model}` has no `update_us`, neither for layer `{layer}` nor for the whole network"
    )]
    MissingUpdate {
        /// A layer with parameters.
        layer: String,
        /// The network that the profile is of.
        model: String,
    },
    /// The machine did something else while the profile was measured.
    #[error(
        "the profile was disturbed: at batch {batch} the layers take {layers:.1?} one by one, and the network {network:.1?}: measure \
         again on a machine that does nothing else"
    )]
    Disturbed {
        /// Samples.
        batch: usize,
        /// All layers, one by one.
        layers: Duration,
        /// The whole network.
        network: Duration,
    },
    /// The profile has no times of the whole network.
    #[error("the profile of `{model}` has no times of the whole network: its `network` is empty")]
    MissingNetwork {
        /// The network that the profile is of.
        model: String,
    },
    /// A time was asked for at a batch size outside those of the profile, which is not extrapolated.
    #[error(
        "the profile of {subject} covers batches of {smallest} to {largest} samples, not {samples}: \
         profile it at that size too"
    )]
    OutsideRange {
        /// What the times are of, such as ``layer `conv1` ``.
        subject: String,
        /// Samples that were asked for.
        samples: usize,
        /// Smallest batch of the profile.
        smallest: usize,
        /// Largest batch of the profile.
        largest: usize,
    },
    /// The profile is of another network.
    #[error("the profile is of `{profile}`, not of `{network}`")]
    OtherModel {
        /// The network that the profile is of.
        profile: String,
        /// The network that it was to be used for.
        network: String,
    },
    /// A layer has the right name but is of another kind.
    #[error("the profile's layer `{layer}` is of kind `{profile}`, but in the network it is `{network}`")]
    OtherKind {
        /// The layer.
        layer: String,
        /// Its kind in the profile.
        profile: String,
        /// Its kind in the network.
        network: &'static str,
    },
    /// A layer has the right name and kind, but other hyper-parameters or shapes.
    #[error(
        "the profile is of another `{model}`: its layer `{layer}` is {profile}, but in the network it is {network}; \
         profile this network"
    )]
    OtherStructure {
        /// The network.
        model: String,
        /// The layer.
        layer: String,
        /// What was profiled.
        profile: String,
        /// What it is in the network.
        network: String,
    },
    /// The profile has a layer that the network has not.
    #[error(
        "the profile is of another `{model}`: it has a layer `{layer}`, which the network has not; profile this network"
    )]
    ExtraLayer {
        /// The network.
        model: String,
        /// A layer of the profile.
        layer: String,
    },
    /// The profile was measured by a version of this crate that measures otherwise.
    #[error(
        "the profile of `{model}` was measured by layer-profile {profiler}, whose times are not comparable with those of \
         {}: profile the network again",
        crate::MeasurementConditions::PROFILER
    )]
    OtherVersion {
        /// The network.
        model: String,
        /// The version that measured.
        profiler: String,
    },
    /// No device model of this name is built in.
    #[error("unknown device `{name}`; known devices: {}{}", known.join(", "), known_names::hint(name, known.iter().copied()))]
    UnknownDevice {
        /// The name that was asked for.
        name: String,
        /// All names that exist.
        known: Vec<&'static str>,
    },
    /// A device model that is to be written has a formula that the format cannot express.
    #[error("the constants of `{name}` are fixed: only models that were fitted can be written")]
    FixedDevice {
        /// The model.
        name: String,
    },
    /// A JSON document of a device model breaks the format's rules.
    #[error("not a valid device model: at `{path}`: {problem}")]
    InvalidDevice {
        /// Where in the document, such as `costs.launch_us`.
        path: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// There is nothing to fit a device model to.
    #[error("a device model needs measured times to be fitted to: add a profile")]
    NoObservations,
    /// A profile that is to be fitted to was made by a model.
    #[error("the profile of `{model}` is modelled, at least in part: fit a device model to measured times")]
    NotMeasured {
        /// The network that the profile is of.
        model: String,
    },
    /// A network is observed at a batch size that it was observed at before, where both together would count twice.
    #[error(
        "`{model}` at batch {batch} was added before: fit to one profile of a network at each batch size"
    )]
    ObservedTwice {
        /// The network.
        model: String,
        /// Samples of the batch.
        batch: usize,
    },
    /// Two profiles that a model is to be fitted to were measured on different things.
    #[error(
        "the profile of `{model}` was measured on {found}, an earlier one on {first}: fit to one device, engine and \
         precision"
    )]
    OtherConditions {
        /// The network that the profile is of.
        model: String,
        /// The profile's device, precision and libraries.
        found: String,
        /// Those of the profiles before it.
        first: String,
    },
    /// A table, or a JSON document of one, breaks the format's rules.
    #[error("not a valid profile: at `{path}`: {problem}")]
    Invalid {
        /// Where in the document, such as `layers[3].times[0].forward_us`.
        path: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// Batch sizes to profile at that are none, zero, or not in ascending order.
    #[error("batches to profile must be at least one, positive and ascending, not {0:?}")]
    Batches(Vec<usize>),
    /// A published profile breaks its format's rules, or is of another network.
    #[error("line {line}: {problem}")]
    Published {
        /// The line in the file, from 1.
        line: usize,
        /// What was found and what was expected.
        problem: String,
    },
    /// A file could not be read or written.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What went wrong with it.
        problem: String,
    },
    /// An unfinished profile cannot go on.
    #[cfg(feature = "measure")]
    #[error(
        "{}: the unfinished profile {problem}; finish it as it was begun, or delete it to begin again", path.display()
    )]
    Journal {
        /// The file with the measurements that are finished.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Of a layer nothing but its cost is known: no engine runs it.
    #[error(
        "layer `{layer}` cannot be measured: of its operation `{op}` only the cost is known. Measure the module that the network was made \
         from in its own framework, or use a device model"
    )]
    Opaque {
        /// The layer.
        layer: String,
        /// What it computes, as its maker calls it.
        op: String,
    },
    /// The engine failed while it was measured.
    #[cfg(feature = "measure")]
    #[error("measuring {subject} at batch {batch}: {problem}")]
    Engine {
        /// What was being measured, such as ``layer `conv1` ``.
        subject: String,
        /// Samples of the batch.
        batch: usize,
        /// What the engine says.
        problem: layer_engine::EngineError,
    },
}

impl ProfileError {
    /// Whether it is about what was asked for, rather than a failure of the work itself.
    #[must_use]
    pub fn is_input(&self) -> bool {
        match self {
            Self::Output(error) => error.is_input(),
            #[cfg(feature = "measure")]
            Self::Engine { .. } => false,
            _ => true,
        }
    }
}
