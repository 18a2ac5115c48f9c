//! Errors of this crate. *Update* is the optimiser step.

use std::time::Duration;

/// Errors of profiles, of files that hold one, and of requests for their times.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The profile has no row for a layer.
    #[error("the profile of `{model}` has no row for layer `{layer}`")]
    MissingLayer {
        /// Name of the requested layer.
        layer: String,
        /// Name of the profiled network.
        model: String,
    },
    /// The profile has no time of the optimiser step for a layer with parameters.
    #[error(
        "the profile of `{model}` has no `update_us`, neither for layer `{layer}` nor for the whole network"
    )]
    MissingUpdate {
        /// Name of the layer.
        layer: String,
        /// Name of the profiled network.
        model: String,
    },
    /// Other work ran on the machine while the profile was measured: the sum of the layers and the
    /// whole network differ by more than a factor of 1.6.
    #[error(
        "the profile was disturbed: at batch {batch} the layers take {layers:.1?} one by one, and the \
         network {network:.1?}: measure again on a machine that does nothing else"
    )]
    Disturbed {
        /// Batch size in samples.
        batch: usize,
        /// Sum over the layers of their forward, backward and update times, each measured alone.
        layers: Duration,
        /// Forward, backward and update time of the whole network, measured in one run.
        network: Duration,
    },
    /// The profile has no times of the whole network.
    #[error("the profile of `{model}` has no times of the whole network: its `network` is empty")]
    MissingNetwork {
        /// Name of the profiled network.
        model: String,
    },
    /// A time was requested at a batch size outside the profile. Times are not extrapolated.
    #[error(
        "the profile of {subject} covers batches of {smallest} to {largest} samples, not {samples}: \
         profile it at that size too"
    )]
    OutsideRange {
        /// Subject of the times, such as ``layer `conv1` ``.
        subject: String,
        /// Requested number of samples.
        samples: usize,
        /// Smallest batch size of the profile, in samples.
        smallest: usize,
        /// Largest batch size of the profile, in samples.
        largest: usize,
    },
    /// The profile is of a network with another name.
    #[error("the profile is of `{profile}`, not of `{network}`")]
    NetworkMismatch {
        /// Name of the profiled network.
        profile: String,
        /// Name of the network that the profile was to be used for.
        network: String,
    },
    /// A layer of the network has another kind in the profile.
    #[error("the profile's layer `{layer}` is of kind `{profile}`, but in the network it is `{network}`")]
    KindMismatch {
        /// Name of the layer.
        layer: String,
        /// Kind in the profile, such as `conv2d`.
        profile: String,
        /// Kind in the network.
        network: &'static str,
    },
    /// A layer of the network has other hyper-parameters or shapes in the profile.
    #[error(
        "the profile is of another `{model}`: its layer `{layer}` is {profile}, but in the network it is \
         {network}; profile this network"
    )]
    StructureMismatch {
        /// Name of the network.
        model: String,
        /// Name of the layer.
        layer: String,
        /// Hyper-parameters and shapes in the profile, as text.
        profile: String,
        /// Hyper-parameters and shapes in the network, as text.
        network: String,
    },
    /// The profile has a layer that is not in the network.
    #[error(
        "the profile is of another `{model}`: it has a layer `{layer}`, which is not in the network; \
         profile this network"
    )]
    ExtraLayer {
        /// Name of the network.
        model: String,
        /// Name of the additional layer.
        layer: String,
    },
    /// The profile was measured by an incompatible version of this crate.
    #[error(
        "the profile of `{model}` was measured by layer-profile {profiler}, whose times are not comparable \
         with those of {}: profile the network again",
        crate::MeasurementConditions::PROFILER
    )]
    IncompatibleVersion {
        /// Name of the profiled network.
        model: String,
        /// Version of this crate that measured the profile.
        profiler: String,
    },
    /// No built-in device model or data sheet has the given name.
    #[error(
        "unknown device `{name}`; known devices: {}; a GPU may have a number format at its end: -fp32, \
         -bf16, or -fp16 for a V100",
        known.join(", ")
    )]
    UnknownDevice {
        /// Requested name.
        name: String,
        /// Names that exist.
        known: Vec<&'static str>,
    },
    /// A GPU does not multiply in a number format, or its name asks for another one.
    #[error(
        "the device model `{device}` does not multiply in {format}: give another one, or another precision"
    )]
    NumberFormat {
        /// Name of the GPU.
        device: String,
        /// Name of the number format.
        format: &'static str,
    },
    /// A device model with fixed constants (`cpu-core`) cannot be written to a file.
    #[error("the constants of `{name}` are fixed: only models that were fitted can be written")]
    FixedDevice {
        /// Name of the model.
        name: String,
    },
    /// A JSON document is not a valid device model.
    #[error("not a valid device model: at `{path}`: {problem}")]
    InvalidDevice {
        /// Path inside the document, such as `costs.launch_us`.
        path: String,
        /// Description of the expected and the actual content.
        problem: String,
    },
    /// A fit has no observations.
    #[error("a device model needs measured times to be fitted to: add a profile")]
    NoObservations,
    /// A profile given to a fit holds modelled times.
    #[error("the profile of `{model}` is modelled, at least in part: fit a device model to measured times")]
    NotMeasured {
        /// Name of the profiled network.
        model: String,
    },
    /// A network was added twice to the observations at the same batch size, where it would count
    /// twice.
    #[error(
        "`{model}` at batch {batch} was added before: fit to one profile of a network at each batch size"
    )]
    DuplicateObservation {
        /// Name of the network.
        model: String,
        /// Batch size in samples.
        batch: usize,
    },
    /// Two profiles given to a fit were measured on different devices, engines or precisions.
    #[error(
        "the profile of `{model}` was measured on {found}, an earlier one on {first}: fit to one device, \
         engine and precision"
    )]
    ConditionsMismatch {
        /// Name of the profiled network.
        model: String,
        /// Device, precision and libraries of the profile.
        found: String,
        /// Device, precision and libraries of the earlier profiles.
        first: String,
    },
    /// A table, or a JSON document of one, is invalid.
    #[error("not a valid profile: at `{path}`: {problem}")]
    Invalid {
        /// Path inside the document, such as `layers[3].times[0].forward_us`.
        path: String,
        /// Description of the expected and the actual content.
        problem: String,
    },
    /// The batch sizes to profile, given in samples, are empty, zero or not ascending.
    #[error("batches to profile must be at least one, positive and ascending, not {0:?}")]
    Batches(Vec<usize>),
    /// A published profile is malformed, or of another network.
    #[error("line {line}: {problem}")]
    Published {
        /// Line number in the file, from 1.
        line: usize,
        /// Description of the expected and the actual content.
        problem: String,
    },
    /// A trace of PyTorch's profiler cannot be read.
    #[error("not a trace of PyTorch's profiler: {0}")]
    Trace(String),
    /// A trace has no calls of modules, so that its times cannot be assigned to layers.
    #[error(
        "the trace has no names of modules: {times}; record it in `deeppool.profiling.marked(module)`, or \
         with `with_stack=True`"
    )]
    UnnamedTrace {
        /// Description of the times that are not assigned.
        times: String,
    },
    /// A trace is not one of training iterations of the network.
    #[error("the trace is not one of training `{network}`: {problem}")]
    TraceMismatch {
        /// Name of the network.
        network: String,
        /// First difference.
        problem: String,
    },
    /// A trace has no operators of a layer, and no device model supplies its times.
    #[error(
        "the trace has no operators of layer `{layer}` ({kind}): give a device model (--device), which \
         supplies its times"
    )]
    UntracedLayer {
        /// Name of the layer.
        layer: String,
        /// Kind of the layer, such as `dropout`.
        kind: &'static str,
    },
    /// A trace has no step of the optimiser, and no device model supplies its time.
    #[error(
        "the trace has no step of an optimiser: record one, or give a device model (--device), which \
         supplies its time"
    )]
    UntracedUpdate,
    /// An unfinished profile cannot be resumed.
    #[cfg(feature = "measure")]
    #[error(
        "the unfinished profile {problem}; resume it with the same settings, or delete it to start again"
    )]
    Journal {
        /// Reason, a clause whose subject is the unfinished profile.
        problem: String,
    },
    /// The journal of an unfinished profile cannot be read or written.
    #[cfg(feature = "measure")]
    #[error("{0}")]
    JournalFile(std::io::Error),
    /// An opaque layer cannot be measured, because no engine runs it.
    #[error(
        "layer `{layer}` cannot be measured: of its operation `{op}` only the cost is known. Measure the \
         module that the network was made from in its own framework, or use a device model"
    )]
    Opaque {
        /// Name of the layer.
        layer: String,
        /// Name of the operation in its framework.
        op: String,
    },
    /// The engine failed during a measurement.
    #[cfg(feature = "measure")]
    #[error("measuring {subject} at batch {batch}: {problem}")]
    Engine {
        /// Subject of the measurement, such as ``layer `conv1` ``.
        subject: String,
        /// Batch size in samples.
        batch: usize,
        /// Error of the engine.
        problem: layer_engine::EngineError,
    },
}

impl ProfileError {
    /// Returns whether the input or the request is wrong, rather than the engine having failed:
    /// `true` for all errors except `Engine`, which exists with feature `measure`.
    #[must_use]
    pub fn is_input(&self) -> bool {
        match self {
            #[cfg(feature = "measure")]
            Self::Engine { .. } => false,
            _ => true,
        }
    }
}
