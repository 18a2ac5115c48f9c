//! The error type of this crate.

use std::fmt;
use std::time::Duration;

use crate::{Call, ElementType};

/// Result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Cause of a failed operation, group, partition or link model. The world is the set of all ranks
/// of the program.
///
/// Ranks are numbered in the whole world unless a field's documentation says otherwise, so that a
/// failure in a subgroup names the same rank everywhere. Ranks inside a [`Call`] are numbered in
/// the group that was called.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two ranks made calls that do not match. Every rank of the operation gets this error.
    #[error(
        "rank {first} called {first_call} where rank {second} called {second_call}: \
         all ranks of a group have to make the same calls in the same order"
    )]
    Mismatch {
        /// Rank that made `first_call`.
        first: usize,
        /// One of the two calls.
        first_call: Box<Call>,
        /// Rank that made `second_call`.
        second: usize,
        /// Call that does not match `first_call`.
        second_call: Box<Call>,
    },

    /// A rank ended before it made the call that others wait for. Every waiting rank gets this
    /// error.
    #[error("rank {rank} {how} while other ranks waited in {call}")]
    RankFailed {
        /// Rank that ended.
        rank: usize,
        /// Way in which the rank ended.
        how: Departure,
        /// Operation that waited for the rank.
        call: Call,
    },

    /// Some ranks did not make the call within the world's time-out. Every rank of the operation
    /// gets this error, including the late ones.
    ///
    /// Exception: an MPI process that has received all its data at the moment another process gives
    /// up may complete the operation. It gets this error from the group's next operation.
    #[error("ranks {missing:?} did not join {call} within {waited:?}")]
    TimedOut {
        /// Ranks that did not make the call.
        missing: Vec<usize>,
        /// Operation that waited for the missing ranks.
        call: Call,
        /// Time from the start of the operation to this error, on the rank that found the time-out.
        waited: Duration,
    },

    /// The length of a rank's buffer or counts does not fit its call. Every rank of the operation
    /// gets this error.
    #[error("rank {rank} called {call}, which needs {expected} elements in its {buffer}, with {actual}")]
    WrongLength {
        /// Rank that made the call.
        rank: usize,
        /// Call with the wrong length.
        call: Call,
        /// Argument with the wrong length: `send buffer`, `receive buffer`, `send counts` or
        /// `receive counts`.
        buffer: &'static str,
        /// Required number of elements.
        expected: usize,
        /// Number of elements given.
        actual: usize,
    },

    /// The backend does not support this operation on these elements.
    #[error("{backend} cannot do {call}")]
    Unsupported {
        /// Name of the backend.
        backend: &'static str,
        /// Unsupported call.
        call: Call,
    },

    /// The buffers have more elements than the backend can count in one operation.
    #[error("{backend} cannot do {call}: the buffers of one operation hold at most {limit} elements")]
    TooLong {
        /// Name of the backend.
        backend: &'static str,
        /// Call with the long buffer.
        call: Call,
        /// Maximum number of elements in one operation.
        limit: usize,
    },

    /// A message has a tag that the backend does not support.
    #[error("there is no tag {tag} for messages: the largest is {limit}")]
    NoSuchTag {
        /// Tag given.
        tag: u32,
        /// Largest supported tag.
        limit: u32,
    },

    /// The library under a backend reported an error. The group cannot be used any more.
    #[error("{backend}: {message} (rank {rank}, in {call})")]
    Library {
        /// Name of the library.
        backend: &'static str,
        /// Rank that reported the error.
        rank: usize,
        /// Operation that failed.
        call: Call,
        /// Message of the library.
        message: String,
    },

    /// A backend cannot be started.
    #[error("{backend} cannot be used: {reason}")]
    Unavailable {
        /// Name of the backend.
        backend: &'static str,
        /// Missing item, the places that were searched, and the remedy.
        reason: String,
    },

    /// Not all ranks connected at the start. Rank 0, the ranks connected to it, and a rank that
    /// could not connect get this error.
    #[error(
        "ranks {missing:?} did not connect to {address} within {waited:?}{}{}",
        cause_suffix(cause.as_deref()),
        refused_suffix(refused)
    )]
    Rendezvous {
        /// Address at which rank 0 listens, as `host:port`.
        address: String,
        /// Ranks that did not connect. On a rank that never reached rank 0, only that rank.
        missing: Vec<usize>,
        /// Time for which this rank waited.
        waited: Duration,
        /// Processes that rank 0 refused, each as `address: reason`. Empty on other ranks.
        refused: Vec<String>,
        /// Cause of the last failed attempt to connect to rank 0. `None` except on a rank that
        /// never connected.
        cause: Option<String>,
    },

    /// Rank 0 refused a rank's connection.
    #[error("rank {rank} was refused at {address}: {reason}")]
    Refused {
        /// Rank that was refused.
        rank: usize,
        /// Address at which rank 0 listens, as `host:port`.
        address: String,
        /// Reason of the refusal.
        reason: String,
    },

    /// There is not enough host memory.
    #[error("cannot allocate {elements} {element} elements of host memory")]
    HostMemory {
        /// Number of elements.
        elements: usize,
        /// Type of the elements.
        element: ElementType,
    },

    /// A view does not fit into its arena.
    #[error("an arena of {arena_len} elements has no {len} elements from index {offset} on")]
    OutsideArena {
        /// Index of the first element.
        offset: usize,
        /// Number of elements of the view.
        len: usize,
        /// Number of elements of the arena.
        arena_len: usize,
    },

    /// CUDA failed outside of an operation of NCCL.
    #[cfg(feature = "nccl")]
    #[error("the device cannot {action}: {error}")]
    Cuda {
        /// Action that failed, such as `allocate memory`.
        action: &'static str,
        /// Error of CUDA.
        error: cuda::Error,
    },

    /// An argument names a rank outside the group.
    #[error("there is no rank {rank} in a group of {size}")]
    NoSuchRank {
        /// Rank given, numbered in the group.
        rank: usize,
        /// Number of ranks in the group.
        size: usize,
    },

    /// A list of ranks contains a rank twice.
    #[error("rank {rank} is listed twice")]
    DuplicateRank {
        /// Rank that is listed twice, as numbered in the list.
        rank: usize,
    },

    /// A rank asked for a group that does not contain it.
    #[error("rank {rank} is not in the group {ranks:?}: only members may create or look up a group")]
    NotAMember {
        /// Rank that asked, numbered in the communicator it asked.
        rank: usize,
        /// Members of that group, numbered in the same communicator.
        ranks: Vec<usize>,
    },

    /// A layout has no ranks.
    #[error("{samples} samples cannot be divided over no ranks")]
    NoRanks {
        /// Number of samples of the layout.
        samples: usize,
    },

    /// The ranks of a layout are no grid of its parts.
    #[error(
        "{ranks} ranks cannot hold an array of {extents:?} items in {parts:?} parts: the number of ranks has \
         to be a multiple of the number of parts, and each dimension needs its number of parts"
    )]
    WrongGrid {
        /// Length of the array along each dimension.
        extents: Vec<usize>,
        /// Number of parts along each dimension.
        parts: Vec<usize>,
        /// Number of ranks.
        ranks: usize,
    },

    /// The ranges of a layout along a dimension are too few, too many, or outside of the array.
    #[error("dimension {dimension} of the layout needs {parts} ranges of indices below {extent}")]
    WrongRanges {
        /// Index of the dimension.
        dimension: usize,
        /// Length of the array along the dimension.
        extent: usize,
        /// Number of ranges of the layout.
        parts: usize,
    },

    /// Two layouts of a redistribution are of different arrays.
    #[error("cannot redistribute an array of {from:?} items to a layout of {to:?}")]
    ExtentsDiffer {
        /// Length of the source along each dimension.
        from: Vec<usize>,
        /// Length of the target along each dimension.
        to: Vec<usize>,
    },

    /// A rank has no single source for its items.
    #[error(
        "cannot redistribute a layout whose ranges do not cover dimension {dimension} in ascending order, \
         each index once"
    )]
    Incomplete {
        /// Index of the dimension.
        dimension: usize,
    },

    /// A redistribution was started on a communicator whose ranks are not the redistribution's.
    #[error("a redistribution over the ranks {ranks:?} needs a group of exactly these, not one of {size}")]
    WrongGroup {
        /// Ranks of the redistribution, as numbered in its layouts.
        ranks: Vec<usize>,
        /// Number of ranks of the communicator.
        size: usize,
    },

    /// A buffer given to a redistribution does not have the length of what it holds.
    #[error("rank {rank} needs {expected} elements in the {buffer} of its redistribution, not {actual}")]
    WrongShard {
        /// Rank, as numbered in the layouts.
        rank: usize,
        /// The buffer: `input`, `output`, `packed input` or `packed output`.
        buffer: &'static str,
        /// Required number of elements.
        expected: usize,
        /// Number of elements of the buffer.
        actual: usize,
    },

    /// An array has more elements than memory can have.
    #[error("an array of {extents:?} items of {item_len} elements exceeds any memory")]
    ArrayTooLarge {
        /// Length of the array along each dimension.
        extents: Vec<usize>,
        /// Number of elements of an item.
        item_len: usize,
    },

    /// A link model has a bandwidth that is not positive and finite.
    #[error(
        "the link model {name:?} has a bandwidth of {bytes_per_s} bytes/s: it has to be positive and finite"
    )]
    BadBandwidth {
        /// Name of the link model.
        name: String,
        /// Bandwidth given, in bytes per second.
        bytes_per_s: f64,
    },

    /// There is no built-in link model of this name.
    #[error(
        "there is no link model {name:?}; there are: {}", known.join(", ")
    )]
    UnknownLink {
        /// Name given.
        name: String,
        /// Names of the built-in link models.
        known: Vec<String>,
    },

    /// A link model has hosts without ranks.
    #[error("the link model {name:?} needs at least one rank in each host")]
    NoRanksPerHost {
        /// Name of the link model.
        name: String,
    },

    /// A flow or a link has a number that is out of range.
    #[error("{reason}: numbers of bytes are finite, and links have a positive capacity")]
    BadFlow {
        /// The flow or the link.
        reason: String,
    },

    /// There are more ranks than the link model connects.
    #[error(
        "the link model {link:?} connects {max} ranks, not {asked}: use a link model of several hosts, \
         such as dgx-a100-pod or the file of a cluster"
    )]
    TooManyRanks {
        /// Name of the link model.
        link: String,
        /// Maximum number of ranks.
        max: usize,
        /// Number of ranks asked for.
        asked: usize,
    },

    /// A JSON document is not a valid link model.
    #[error("not a valid link model: {reason}")]
    BadLinkDocument {
        /// Problem and its place in the document.
        reason: String,
    },

    /// Startup time, latency and bandwidth cannot all be determined from the measurements.
    #[error("no link can be fitted to these measurements: {reason}")]
    UnfitMeasurements {
        /// Missing measurements, and what to measure.
        reason: String,
    },

    /// There is no collective of this name.
    #[error("there is no collective {name:?}; there are: {}", known.join(", "))]
    UnknownCollective {
        /// Name given.
        name: String,
        /// Names of the collectives.
        known: Vec<String>,
    },
}

impl Error {
    /// Whether the cause is the given link model (its name, file or bandwidth, or too many ranks
    /// for it) rather than an operation.
    #[must_use]
    pub fn is_input(&self) -> bool {
        matches!(
            self,
            Self::BadBandwidth { .. }
                | Self::UnknownLink { .. }
                | Self::NoRanksPerHost { .. }
                | Self::TooManyRanks { .. }
                | Self::BadFlow { .. }
                | Self::BadLinkDocument { .. }
        )
    }
}

#[cfg(feature = "nccl")]
impl Error {
    /// Returns the conversion of errors of CUDA in `action`: [`Error::Unavailable`] for a missing
    /// library or device, otherwise [`Error::Cuda`].
    pub(crate) fn in_cuda(action: &'static str) -> impl FnOnce(cuda::Error) -> Self {
        move |error| match error {
            cuda::Error::Unavailable { library, reason } => Self::Unavailable { backend: library, reason },
            cuda::Error::NoDevice { ordinal, devices } => Self::Unavailable {
                backend: "CUDA",
                reason: format!(
                    "device {ordinal} was requested (LOCAL_RANK) and there are {devices} devices: start at \
                     most {devices} ranks on this host"
                ),
            },
            error => Self::Cuda { action, error },
        }
    }
}

/// End of a message about a failed connection: its cause, if known.
fn cause_suffix(cause: Option<&str>) -> String {
    cause.map_or_else(String::new, |cause| format!(": {cause}"))
}

/// End of a message about a failed connection: the refused processes, if any.
fn refused_suffix(items: &[String]) -> String {
    if items.is_empty() { String::new() } else { format!("; refused: {}", items.join(", ")) }
}

/// Way in which a rank ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// The rank panicked.
    Panicked,
    /// The rank dropped its last communicator.
    Left,
    /// The connection to the rank broke, usually because its process ended.
    Lost,
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Panicked => "panicked",
            Self::Left => "dropped its communicators",
            Self::Lost => "lost its connection",
        })
    }
}
