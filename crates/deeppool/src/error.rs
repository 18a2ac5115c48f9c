use layer_engine::EngineError;

/// Errors of planning, lowering, simulation and training.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A placement is not valid for the network.
    #[error("the placement does not fit: {0}")]
    Placement(String),
    /// A plan does not fit the network or the job.
    #[error("the plan does not fit: {0}")]
    Plan(String),
    /// A rank has another configuration than the others.
    #[error("ranks {rank} and {other} do not agree on the {what}: give all ranks the same")]
    RankDiffers {
        /// The rank that differs from the majority.
        rank: usize,
        /// One of the other ranks.
        other: usize,
        /// The part of the configuration that differs.
        what: &'static str,
    },
    /// A placement is for another number of ranks than were started.
    #[error("the plan is for {planned} ranks, and there are {ranks}: plan for {ranks}, or start {planned}")]
    OtherWorld {
        /// Number of ranks of the placement.
        planned: usize,
        /// Number of ranks that were started.
        ranks: usize,
    },
    /// The batch has no samples.
    #[error("the batch is empty: it needs at least one sample")]
    EmptyBatch,
    /// The network does not end in exactly one loss layer.
    #[error("`{network}` must end in exactly one loss layer, but no layer uses the output of `{layer}`")]
    NotOneLoss {
        /// The network.
        network: String,
        /// The layer whose output is not used.
        layer: String,
    },
    /// A program has no such rank.
    #[error("there is no rank {rank}: the program is for {ranks}")]
    NoSuchRank {
        /// The rank.
        rank: usize,
        /// Number of ranks.
        ranks: usize,
    },
    /// A program is invalid.
    #[error("the program cannot be run: {0}")]
    Program(String),
    /// A program with collectives has no communicator.
    #[error("`{collective}` needs a communicator between the ranks")]
    NoCommunicator {
        /// Label of the collective.
        collective: String,
    },
    /// There are more ranks than samples in a batch.
    #[error(
        "{ranks} ranks are more than the {batch} samples of a batch: give at most as many ranks as samples"
    )]
    MoreRanksThanSamples {
        /// Number of ranks.
        ranks: usize,
        /// Number of samples of the global batch.
        batch: usize,
    },
    /// The links of a device are not known.
    #[error(
        "it is not known how devices such as `{device}` are linked: name a link model, one of {}, \
         or give the file of one",
        collectives::LinkModel::names().join(", ")
    )]
    UnknownLinks {
        /// Name of the device.
        device: String,
    },
    /// There is no sharing policy with this name.
    #[error(
        "there is no policy `{name}`; there are: {}", known.join(", ")
    )]
    UnknownPolicy {
        /// The name.
        name: String,
        /// All known names.
        known: Vec<&'static str>,
    },
    /// A setting is out of range.
    #[error("{setting} must be {expected}, got {got}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// The valid values.
        expected: &'static str,
        /// The given value.
        got: String,
    },
    /// The training data are invalid.
    #[cfg(feature = "train")]
    #[error(transparent)]
    Data(#[from] crate::data::DataError),
    /// The loss is NaN or infinite.
    #[error(
        "iteration {iteration}: the loss is {loss} on rank {rank}{}: try a smaller learning \
         rate, or clip gradients",
        layer
            .as_ref()
            .map(|layer| format!(", and the output of layer `{layer}` is the first that is not finite"))
            .unwrap_or_default()
    )]
    NotFinite {
        /// Number of the iteration, from 1.
        iteration: u64,
        /// The loss.
        loss: f64,
        /// The rank that computed it.
        rank: usize,
        /// The first layer on that rank with an output that is not finite, if it could be
        /// determined.
        layer: Option<String>,
    },
    /// A parameter or velocity is NaN or infinite. It is not written to a checkpoint.
    #[error(
        "after iteration {iteration}: `{tensor}` on rank {rank} is not finite: try a smaller learning \
         rate, or clip gradients"
    )]
    StateNotFinite {
        /// Number of the iteration, from 1.
        iteration: u64,
        /// The rank.
        rank: usize,
        /// Name of the tensor.
        tensor: String,
    },
    /// No run with some batch reached the target accuracy, so the epoch curve has no point for this
    /// batch.
    #[error(
        "none of {runs} runs with batch {batch} reaches accuracy {target}: the best one has {best:.4}{}; \
         allow more epochs, try another learning rate, or leave the batch out",
        if *diverged > 0 { format!(", and in {diverged} the loss was not finite") } else { String::new() }
    )]
    TargetMissed {
        /// Number of samples of the global batch.
        batch: usize,
        /// The target accuracy.
        target: f64,
        /// Number of runs.
        runs: usize,
        /// The highest accuracy of all runs.
        best: f64,
        /// Number of runs in which the loss became NaN or infinite.
        diverged: usize,
    },
    /// An epoch curve, or a question about time to accuracy, is invalid.
    #[error(transparent)]
    Accuracy(#[from] time_to_accuracy::AccuracyError),
    /// A run was stopped before its end.
    #[error("stopped after iteration {done} of {all}; {next}")]
    Stopped {
        /// Number of completed iterations.
        done: u64,
        /// Number of iterations of the whole run.
        all: u64,
        /// How to continue.
        next: String,
    },
    /// A checkpoint cannot be read or used.
    #[error("checkpoint {}: {problem}", path.display())]
    Checkpoint {
        /// The file or folder.
        path: std::path::PathBuf,
        /// The problem.
        problem: String,
    },
    /// A checkpoint cannot be written, although its folder exists.
    #[error("checkpoint {}: {problem}", path.display())]
    CheckpointNotWritten {
        /// The file or folder.
        path: std::path::PathBuf,
        /// The problem.
        problem: String,
    },
    /// Weights are not a valid safetensors file, or those of another network.
    #[error("{source_name}: {problem}")]
    Weights {
        /// Name of the file, folder or network that the weights come from.
        source_name: String,
        /// The problem.
        problem: String,
    },
    /// A JSON document is invalid.
    #[error("at `{path}`: {problem}")]
    Document {
        /// Path inside the document.
        path: String,
        /// The value found and the value expected.
        problem: String,
    },
    /// A network is invalid.
    #[error(transparent)]
    Graph(#[from] layer_graph::GraphError),
    /// An engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A collective failed, or a partition is invalid.
    #[error(transparent)]
    Collectives(#[from] collectives::Error),
    /// A profile lacks a time.
    #[error(transparent)]
    Profile(#[from] layer_profile::ProfileError),
    /// A planning problem has no solution.
    #[error(transparent)]
    Planner(#[from] burst_planner::Error),
    /// A multiplexer was used incorrectly.
    #[error(transparent)]
    Mux(#[from] gpu_mux::Error),
    /// A GPU or its driver failed.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Gpu(#[from] gpu_mux::cuda::Error),
    /// The GPU of a rank failed.
    #[cfg(feature = "cuda")]
    #[error("rank {rank}{}: {error}", while_on_gpu(.under_way.as_deref(), *.is_lost))]
    RankGpu {
        /// The rank.
        rank: usize,
        /// The steps on the device, in training: each of them may be the cause.
        under_way: Option<String>,
        /// Whether a kernel failed while it ran, after which CUDA refuses all further work.
        is_lost: bool,
        /// The cause.
        error: Box<Error>,
    },
}

/// Describes the work of a GPU when it failed.
#[cfg(feature = "cuda")]
fn while_on_gpu(under_way: Option<&str>, is_lost: bool) -> String {
    let under_way =
        under_way.map_or_else(String::new, |steps| format!(", with {steps} under way on its GPU"));
    under_way + if is_lost { ", on which nothing runs any more in this process" } else { "" }
}

#[cfg(feature = "cuda")]
impl From<gpu_mux::DriverError<gpu_mux::cuda::Error>> for Error {
    fn from(error: gpu_mux::DriverError<gpu_mux::cuda::Error>) -> Self {
        match error {
            gpu_mux::DriverError::Refused(error) => error.into(),
            gpu_mux::DriverError::Device(error) => error.into(),
        }
    }
}

impl Error {
    /// Adds the rank of a failed GPU and the work on it. Other errors are unchanged.
    #[cfg(feature = "cuda")]
    pub(crate) fn on_gpu_of(self, rank: usize, under_way: Option<String>) -> Self {
        match self {
            Self::Gpu(_) | Self::Engine(_) if !self.is_input() => Self::RankGpu {
                rank,
                under_way,
                is_lost: matches!(&self, Self::Gpu(error) if error.is_sticky()),
                error: Box::new(self),
            },
            other => other,
        }
    }

    /// Returns whether this error is the consequence of another rank's failure, whose own error has
    /// the reason.
    #[must_use]
    pub fn is_consequence(&self) -> bool {
        matches!(self, Self::Collectives(_))
    }

    /// Returns whether the run was stopped on request.
    #[must_use]
    pub fn is_stop(&self) -> bool {
        matches!(self, Self::Stopped { .. })
    }

    /// Returns whether the cause is the input (a file, an option) rather than the work itself.
    #[must_use]
    pub fn is_input(&self) -> bool {
        match self {
            Self::Collectives(error) => error.is_input(),
            Self::Profile(error) => error.is_input(),
            Self::Engine(
                EngineError::Opaque { .. }
                | EngineError::Label { .. }
                | EngineError::Token { .. }
                | EngineError::Device { .. },
            ) => true,
            Self::Engine(_)
            | Self::Mux(_)
            | Self::NotFinite { .. }
            | Self::StateNotFinite { .. }
            | Self::TargetMissed { .. }
            | Self::CheckpointNotWritten { .. }
            | Self::Stopped { .. } => false,
            #[cfg(feature = "cuda")]
            Self::Gpu(_) | Self::RankGpu { .. } => false,
            _ => true,
        }
    }
}

/// Returns whether the work itself failed, rather than its input being invalid, by the first error
/// of this project among an error and its sources. Commands exit with 1 then, and with 2 otherwise.
#[must_use]
pub fn is_failure(error: &(dyn std::error::Error + 'static)) -> bool {
    let is_input = |error: &(dyn std::error::Error + 'static)| {
        let of_ours = error.downcast_ref::<Error>().map(Error::is_input);
        let of_profile = || error.downcast_ref().map(layer_profile::ProfileError::is_input);
        of_ours.or_else(of_profile)
    };
    std::iter::successors(Some(error), |error| error.source()).any(|error| is_input(error) == Some(false))
}
