//! The error type of this crate. A *placement* is the ranks of each layer and the order of the
//! layers.

use layer_engine::EngineError;

/// Errors of planning, lowering, simulation and training.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A placement is not valid for the network. The text is the reason.
    #[error("the placement does not fit: {0}")]
    Placement(String),
    /// A plan does not fit the network, or the job (batch and lowering options) for which it is
    /// used. The text is the reason.
    #[error("the plan does not fit: {0}")]
    Plan(String),
    /// A rank has another configuration (such as network, data, plan or options) than the others.
    #[error("ranks {rank} and {other} do not agree on the {part}: give all ranks the same")]
    RankDiffers {
        /// The first rank that differs from the majority, or from rank 0 if there is none.
        rank: usize,
        /// One of the ranks from which it differs.
        other: usize,
        /// Name of the part of the configuration that differs, such as `plan`.
        part: &'static str,
    },
    /// A placement is for another number of ranks than were started.
    #[error("the plan is for {planned} ranks, and there are {ranks}: plan for {ranks}, or start {planned}")]
    WorldSizeMismatch {
        /// Number of ranks of the placement, idle ones included.
        planned: usize,
        /// Number of ranks that were started.
        ranks: usize,
    },
    /// A batch has no samples.
    #[error("the batch is empty: it needs at least one sample")]
    EmptyBatch,
    /// The network has no loss layer.
    #[error("`{network}` has no loss layer, so it cannot be trained: add one that reads its output")]
    NoLoss {
        /// Name of the network.
        network: String,
    },
    /// A layer reads the output of a loss layer.
    #[error(
        "layer `{layer}` of `{network}` reads the loss `{loss}`: losses are summed by their weights, so \
         leave the layer out and set the `loss_weight` of losses"
    )]
    ReadLoss {
        /// Name of the network.
        network: String,
        /// Name of the loss layer.
        loss: String,
        /// Name of the layer that reads its output.
        layer: String,
    },
    /// No loss depends on a layer.
    #[error(
        "no loss of `{network}` depends on layer `{layer}`: train the network without it \
         (`LayerGraph::without_unused_layers`)"
    )]
    UnusedLayer {
        /// Name of the network.
        network: String,
        /// Name of the layer.
        layer: String,
    },
    /// A rank was requested that the program does not have.
    #[error("there is no rank {rank}: the program is for {ranks}")]
    NoSuchRank {
        /// The requested rank.
        rank: usize,
        /// Number of ranks of the program, which are `0..ranks`.
        ranks: usize,
    },
    /// A program cannot be executed or exported. The text is the reason.
    #[error("the program cannot be run: {0}")]
    Program(String),
    /// A program with collectives was loaded without a communicator.
    #[error("`{collective}` needs a communicator between the ranks")]
    NoCommunicator {
        /// Label of a collective of the program.
        collective: String,
    },
    /// A layer has more ranks than there are samples in a batch.
    #[error(
        "{ranks} ranks are more than the {batch} samples of a batch: give at most as many ranks as samples"
    )]
    MoreRanksThanSamples {
        /// Number of ranks of the layer.
        ranks: usize,
        /// Number of samples of the global batch.
        batch: usize,
    },
    /// A background job of several ranks has ended on one of them.
    #[error("the background job `{job}` ended on rank {rank}: {problem}")]
    BackgroundJob {
        /// Name of the job, such as `digits-cnn:64@4`.
        job: String,
        /// Rank of the run.
        rank: usize,
        /// The error that ended it.
        problem: String,
    },
    /// There is no default link model for a device.
    #[error(
        "it is not known how devices such as `{device}` are linked: name a link model, one of {}, \
         or give the file of one",
        collectives::LinkModel::names().join(", ")
    )]
    UnknownLinks {
        /// Name of the device, as in its profile.
        device: String,
    },
    /// There is no sharing policy (rules for running background beside the foreground) with this
    /// name.
    #[error(
        "there is no policy `{name}`; there are: {}", known.join(", ")
    )]
    UnknownPolicy {
        /// The given name.
        name: String,
        /// Names of all sharing policies.
        known: Vec<&'static str>,
    },
    /// A setting is out of range, or does not fit the other settings.
    #[error("{setting} must be {expected}, got {got}")]
    Setting {
        /// Description of the setting, such as `the number of GPUs of a plan`.
        setting: &'static str,
        /// Description of the valid values, such as `from 1 to 16384`.
        expected: &'static str,
        /// The given value, as text.
        got: String,
    },
    /// Samples that move between ranks have an odd number of elements of 16 bits.
    #[error(
        "in bf16 a sample that moves between ranks needs an even number of elements, and layer `{layer}` has \
         {elements}: plan data parallelism (--mode dp), or give --precision f32 or tf32"
    )]
    OddSample {
        /// Name of the layer whose output or gradient moves.
        layer: String,
        /// Number of elements of a sample.
        elements: usize,
    },
    /// A layer that is no embedding reads or computes tokens, which 16 bits cannot represent.
    #[error(
        "in bf16 only embeddings can read tokens, and from an input of the network, but layer `{layer}` \
         reads or computes them: give --precision f32 or tf32"
    )]
    Tokens {
        /// Name of the layer.
        layer: String,
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
        /// Number of the iteration with this loss, from 1.
        iteration: u64,
        /// Mean loss per sample of the global batch.
        loss: f64,
        /// The rank that has the loss.
        rank: usize,
        /// Name of the first layer on that rank with an output that is not finite; `None` if no
        /// such layer was found.
        layer: Option<String>,
    },
    /// A parameter, velocity (momentum of the optimiser) or running statistic is NaN or infinite.
    /// It is not written to a checkpoint.
    #[error(
        "after iteration {iteration}: `{tensor}` on rank {rank} is not finite: try a smaller learning \
         rate, or clip gradients"
    )]
    StateNotFinite {
        /// Number of the last completed iteration, from 1.
        iteration: u64,
        /// The rank that holds the tensor.
        rank: usize,
        /// Name of the tensor, as in the checkpoint.
        tensor: String,
    },
    /// No run with some batch reached the target accuracy, so the epoch curve (epochs to the target
    /// by global batch) has no point for this batch.
    #[error(
        "none of {runs} runs with batch {batch} reaches accuracy {target}: the best one has {best:.4}{}; \
         allow more epochs, try another learning rate, or leave the batch out",
        if *diverged > 0 { format!(", and in {diverged} the loss was not finite") } else { String::new() }
    )]
    TargetMissed {
        /// Number of samples of the global batch.
        batch: usize,
        /// Target accuracy on the held-out samples, above 0 and at most 1.
        target: f64,
        /// Number of runs with this batch.
        runs: usize,
        /// Highest accuracy at the end of an epoch in any of these runs, from 0 to 1.
        best: f64,
        /// Number of these runs in which the loss became NaN or infinite.
        diverged: usize,
    },
    /// An epoch curve, or a query for the time to an accuracy, is invalid.
    #[error(transparent)]
    Accuracy(#[from] time_to_accuracy::AccuracyError),
    /// A run was stopped on request before its end.
    #[error("stopped after iteration {done} of {all}; {next}")]
    Stopped {
        /// Number of completed iterations.
        done: u64,
        /// Number of iterations of the whole run.
        all: u64,
        /// Hint for the user: how to continue, or what is lost.
        next: String,
    },
    /// A training checkpoint (the saved state of a run) cannot be read or used.
    #[error("checkpoint {}: {problem}", path.display())]
    Checkpoint {
        /// The file or folder that failed.
        path: std::path::PathBuf,
        /// Description of the problem.
        problem: String,
    },
    /// A training checkpoint cannot be written, although its folder exists.
    #[error("checkpoint {}: {problem}", path.display())]
    CheckpointNotWritten {
        /// The file or folder that failed.
        path: std::path::PathBuf,
        /// Description of the problem.
        problem: String,
    },
    /// Weights are not a valid safetensors file, or those of another network.
    #[error("{source_name}: {problem}")]
    Weights {
        /// Name of the file, folder or network that the weights come from.
        source_name: String,
        /// Description of the problem.
        problem: String,
    },
    /// A JSON document is invalid.
    #[error("at `{path}`: {problem}")]
    Document {
        /// Path of the field inside the document, such as `layers[3].ranks`; `.` is the document.
        path: String,
        /// Description of the problem, such as the value found and the value expected.
        problem: String,
    },
    /// A network is invalid.
    #[error(transparent)]
    Graph(#[from] layer_graph::GraphError),
    /// An engine (the implementation of layers on a device) failed or refused a layer.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A collective failed, or a division of samples among ranks is invalid.
    #[error(transparent)]
    Collectives(#[from] collectives::Error),
    /// A profile is invalid or lacks a time.
    #[error(transparent)]
    Profile(#[from] layer_profile::ProfileError),
    /// A planning problem is invalid, or no plan is within its limits.
    #[error(transparent)]
    Planner(#[from] burst_planner::Error),
    /// No plan is within the memory limit, but there is one of a smaller batch.
    #[error("{unplanned}; the largest batch that fits is {largest}")]
    BatchTooLarge {
        /// The error of the planner for the whole batch.
        unplanned: burst_planner::Error,
        /// Number of samples of the largest batch for which data parallelism with recomputed
        /// activations and micro-batches is within the limit.
        largest: usize,
    },
    /// A multiplexer was used incorrectly.
    #[error(transparent)]
    Mux(#[from] gpu_mux::Error),
    /// A GPU or its driver failed.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Gpu(#[from] cuda::Error),
    /// A GPU has finished a tasklet that was not launched. It is a fault of this program.
    #[cfg(feature = "cuda")]
    #[error("tasklet {tasklet} has finished and was not in flight")]
    UnknownTasklet {
        /// The tasklet.
        tasklet: gpu_mux::TaskletId,
    },
    /// The GPU of a rank failed.
    #[cfg(feature = "cuda")]
    #[error("rank {rank}{}: {error}", gpu_failure_context(.in_flight.as_deref(), *.is_lost))]
    RankGpu {
        /// The rank of the GPU.
        rank: usize,
        /// Labels of the unfinished steps on the device, as text: each of them may be the cause.
        /// `None` if they are not known.
        in_flight: Option<String>,
        /// Whether CUDA refuses all further work in this process, as after a kernel that failed
        /// while it ran.
        is_lost: bool,
        /// The cause.
        error: Box<Error>,
    },
}

/// Describes the work of a GPU when it failed.
#[cfg(feature = "cuda")]
fn gpu_failure_context(in_flight: Option<&str>, is_lost: bool) -> String {
    let in_flight =
        in_flight.map_or_else(String::new, |steps| format!(", with {steps} under way on its GPU"));
    in_flight + if is_lost { ", on which nothing runs any more in this process" } else { "" }
}

#[cfg(feature = "cuda")]
impl From<gpu_mux::DriverError<cuda::Error>> for Error {
    fn from(error: gpu_mux::DriverError<cuda::Error>) -> Self {
        match error {
            gpu_mux::DriverError::Refused(error) => error.into(),
            gpu_mux::DriverError::Device(error) => error.into(),
        }
    }
}

impl Error {
    /// Converts an error of a GPU to [`Error::RankGpu`] of the given rank. `in_flight` describes
    /// the unfinished steps on the device. Other errors are unchanged.
    #[cfg(feature = "cuda")]
    pub(crate) fn on_gpu_of(self, rank: usize, in_flight: Option<String>) -> Self {
        match self {
            Self::Gpu(_) | Self::Engine(_) if !self.is_input() => Self::RankGpu {
                rank,
                in_flight,
                is_lost: self.cuda_error().is_some_and(cuda::Error::is_sticky),
                error: Box::new(self),
            },
            other => other,
        }
    }

    /// Returns the error of CUDA that caused this error; `None` if there is none.
    #[cfg(feature = "cuda")]
    pub(crate) fn cuda_error(&self) -> Option<&cuda::Error> {
        match self {
            Self::Gpu(error) | Self::Collectives(collectives::Error::Cuda { error, .. }) => Some(error),
            Self::Engine(EngineError::Cuda { source, .. }) => Some(source),
            _ => None,
        }
    }

    /// Returns whether this error may be the consequence of another rank's failure, whose own error
    /// has the reason: true for errors of collectives.
    #[must_use]
    pub fn is_consequence(&self) -> bool {
        matches!(self, Self::Collectives(_))
    }

    /// Returns whether a plan needs more memory than the limit.
    #[must_use]
    pub fn is_lack_of_memory(&self) -> bool {
        matches!(
            self,
            Self::BatchTooLarge { .. } | Self::Planner(burst_planner::Error::MemoryExceeded { .. })
        )
    }

    /// Returns whether the run was stopped on request.
    #[must_use]
    pub fn is_stop(&self) -> bool {
        matches!(self, Self::Stopped { .. })
    }

    /// Returns whether the cause is the input (a file, an option or a limit) rather than a failure
    /// of the work.
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
            | Self::BackgroundJob { .. }
            | Self::CheckpointNotWritten { .. }
            | Self::Stopped { .. } => false,
            #[cfg(feature = "cuda")]
            Self::Gpu(_) | Self::UnknownTasklet { .. } | Self::RankGpu { .. } => false,
            _ => true,
        }
    }
}

/// Returns whether the work failed, rather than its input being invalid. True if an error of this
/// project that is not about the input is among an error and its sources. Commands exit with 1 for
/// true and with 2 for false.
#[must_use]
pub fn is_failure(error: &(dyn std::error::Error + 'static)) -> bool {
    let is_input = |error: &(dyn std::error::Error + 'static)| {
        let of_crate = error.downcast_ref::<Error>().map(Error::is_input);
        let of_profile = || error.downcast_ref().map(layer_profile::ProfileError::is_input);
        of_crate.or_else(of_profile)
    };
    std::iter::successors(Some(error), |error| error.source()).any(|error| is_input(error) == Some(false))
}
