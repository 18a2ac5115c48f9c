use layer_engine::EngineError;

/// What can go wrong between a network and its results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A placement does not fit the network.
    #[error("the placement does not fit: {0}")]
    Placement(String),
    /// A plan does not fit the network or the job that it is used for.
    #[error("the plan does not fit: {0}")]
    Plan(String),
    /// A rank was given something else to train than others.
    #[error("ranks {rank} and {other} do not agree on the {what}: give all ranks the same")]
    RankDiffers {
        /// The rank that differs from most.
        rank: usize,
        /// One of the others.
        other: usize,
        /// What differs.
        what: &'static str,
    },
    /// A placement is for another number of ranks than there are.
    #[error("the plan is for {planned} ranks, and there are {ranks}: plan for {ranks}, or start {planned}")]
    OtherWorld {
        /// Ranks of the placement.
        planned: usize,
        /// Ranks that were started.
        ranks: usize,
    },
    /// A batch of no samples.
    #[error("the batch is empty: it needs at least one sample")]
    EmptyBatch,
    /// Training needs one loss, and nothing beside it.
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
        /// How many there are.
        ranks: usize,
    },
    /// A program that would never end.
    #[error("the program cannot be run: {0}")]
    Program(String),
    /// A program with collectives needs a communicator.
    #[error("`{collective}` needs a communicator between the ranks")]
    NoCommunicator {
        /// The collective.
        collective: String,
    },
    /// Every rank needs a sample to work on.
    #[error(
        "{ranks} ranks are more than the {batch} samples of a batch: give at most as many ranks as samples"
    )]
    MoreRanksThanSamples {
        /// The ranks.
        ranks: usize,
        /// The global batch.
        batch: usize,
    },
    /// It is not known how devices of this name are linked.
    #[error(
        "it is not known how devices such as `{device}` are linked: name a link model, one of {}, or give the file of one",
        collectives::LinkModel::names().join(", ")
    )]
    UnknownLinks {
        /// The device.
        device: String,
    },
    /// No policy of sharing has this name.
    #[error(
        "there is no policy `{name}`; there are: {}", known.join(", ")
    )]
    UnknownPolicy {
        /// The name that was asked for.
        name: String,
        /// All names that exist.
        known: Vec<&'static str>,
    },
    /// A setting is out of its range.
    #[error("{setting} must be {expected}, got {got}")]
    Setting {
        /// Which setting.
        setting: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What it was.
        got: String,
    },
    /// Training data are wrong.
    #[error(transparent)]
    Data(#[from] crate::data::DataError),
    /// The loss is NaN or infinite.
    #[error(
        "iteration {iteration}: the loss is {loss} on rank {rank}{}: try a smaller learning rate, or clip gradients",
        layer.as_ref().map(|layer| format!(", and the output of layer `{layer}` is the first that is not finite")).unwrap_or_default()
    )]
    NotFinite {
        /// The iteration, from 1.
        iteration: u64,
        /// Its loss.
        loss: f64,
        /// The rank that found it.
        rank: usize,
        /// The first layer on that rank whose output is not finite, where that can be told.
        layer: Option<String>,
    },
    /// A parameter or velocity is NaN or infinite: no checkpoint of it is written.
    #[error(
        "after iteration {iteration}: `{tensor}` on rank {rank} is not finite: try a smaller learning rate, or clip gradients"
    )]
    StateNotFinite {
        /// The iteration, from 1.
        iteration: u64,
        /// The rank.
        rank: usize,
        /// The tensor.
        tensor: String,
    },
    /// No run with some batch reached the target accuracy, so that the batch has no point in an epoch curve.
    #[error(
        "none of {runs} runs with batch {batch} reaches accuracy {target}: the best one has {best:.4}{}; allow more epochs, try another \
         learning rate, or leave the batch out",
        if *diverged > 0 { format!(", and in {diverged} the loss was not finite") } else { String::new() }
    )]
    TargetMissed {
        /// The global batch.
        batch: usize,
        /// The accuracy that was to be reached.
        target: f64,
        /// How many runs there were.
        runs: usize,
        /// The highest accuracy of any.
        best: f64,
        /// In how many the loss became infinite, or not a number.
        diverged: usize,
    },
    /// An epoch curve, or a question about time to accuracy, is wrong.
    #[error(transparent)]
    Accuracy(#[from] time_to_accuracy::AccuracyError),
    /// A run was told to stop before its end.
    #[error("stopped after iteration {done} of {all}; {next}")]
    Stopped {
        /// Iterations that are done.
        done: u64,
        /// Iterations of the whole run.
        all: u64,
        /// How to go on.
        next: String,
    },
    /// A checkpoint cannot be written or used.
    #[error("checkpoint {}: {problem}", path.display())]
    Checkpoint {
        /// The file or folder.
        path: std::path::PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A checkpoint cannot be written, though its folder can be made.
    #[error("checkpoint {}: {problem}", path.display())]
    CheckpointNotWritten {
        /// The file or folder.
        path: std::path::PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Weights are not a valid safetensors file, or those of another network.
    #[error("{source_name}: {problem}")]
    Weights {
        /// Name of the file, folder or network that the weights come from.
        source_name: String,
        /// Reason.
        problem: String,
    },
    /// A JSON document is not what it should be.
    #[error("at `{path}`: {problem}")]
    Document {
        /// Where in the document.
        path: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// A network is wrong.
    #[error(transparent)]
    Graph(#[from] layer_graph::GraphError),
    /// An engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A collective failed, or a partition is wrong.
    #[error(transparent)]
    Collectives(#[from] collectives::Error),
    /// A profile does not have what is needed.
    #[error(transparent)]
    Profile(#[from] layer_profile::ProfileError),
    /// A planning problem has no answer.
    #[error(transparent)]
    Planner(#[from] burst_planner::Error),
    /// A multiplexer was used wrongly.
    #[error(transparent)]
    Mux(#[from] gpu_mux::Error),
    /// A GPU, or its driver, failed.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Gpu(#[from] gpu_mux::cuda::Error),
    /// A rank's GPU, or what drives it, has failed.
    #[cfg(feature = "cuda")]
    #[error("rank {rank}{}: {error}", while_on_gpu(.under_way.as_deref(), *.is_lost))]
    RankGpu {
        /// The rank.
        rank: usize,
        /// The steps that the device had, in training: any of them may be at fault.
        under_way: Option<String>,
        /// Whether a kernel has failed while it ran, after which CUDA refuses all further work.
        is_lost: bool,
        /// What went wrong.
        error: Box<Error>,
    },
}

/// What a GPU had to do when it failed.
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
    /// With the rank whose GPU it is about, and what that had to do, unless it is about something else.
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

    /// Whether it only says that another rank failed, whose own error says why.
    #[must_use]
    pub fn is_consequence(&self) -> bool {
        matches!(self, Self::Collectives(_))
    }

    /// Whether the run was told to stop.
    #[must_use]
    pub fn is_stop(&self) -> bool {
        matches!(self, Self::Stopped { .. })
    }

    /// Whether the input is at fault (a file, an option), rather than the work itself.
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

/// Whether the work itself failed, rather than its input being wrong: by whichever error of this project is among an error and
/// its sources. Commands exit with 1 then, and with 2 otherwise.
#[must_use]
pub fn is_failure(error: &(dyn std::error::Error + 'static)) -> bool {
    let is_input = |error: &(dyn std::error::Error + 'static)| {
        let of_ours = error.downcast_ref::<Error>().map(Error::is_input);
        let of_profile = || error.downcast_ref().map(layer_profile::ProfileError::is_input);
        of_ours.or_else(of_profile)
    };
    std::iter::successors(Some(error), |error| error.source()).any(|error| is_input(error) == Some(false))
}
