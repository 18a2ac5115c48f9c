//! Everything that can go wrong.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::Call;

/// What this crate's fallible functions return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation, a group or a partition failed.
///
/// Unless a field's documentation says otherwise, ranks are numbered in the whole world, so that a failure deep in a subgroup
/// names the same rank everywhere. Ranks inside a [`Call`] are numbered in the group that was called.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two ranks made calls that do not match. Every rank of the operation gets this error.
    #[error(
        "rank {first} called {first_call} where rank {second} called {second_call}: \
         all ranks of a group have to make the same calls in the same order"
    )]
    Mismatch {
        /// A rank of the group.
        first: usize,
        /// What it called.
        first_call: Box<Call>,
        /// Another rank of the group.
        second: usize,
        /// What that one called.
        second_call: Box<Call>,
    },

    /// A rank ended before it took part. Every waiting rank gets this error.
    #[error("rank {rank} {how} while other ranks waited in {call}")]
    RankFailed {
        /// The rank that has ended.
        rank: usize,
        /// How it ended.
        how: Departure,
        /// What was waiting for it.
        call: Call,
    },

    /// Some ranks did not make the call within the world's time-out. Every rank of the operation gets this error, the late
    /// ones too. (A process of MPI that has all it needs in the moment in which another gives up may complete the operation;
    /// it gets this error from the group's next one.)
    #[error("ranks {missing:?} did not join {call} within {waited:?}")]
    TimedOut {
        /// The ranks that are missing.
        missing: Vec<usize>,
        /// The operation that waited for them.
        call: Call,
        /// How long it waited.
        waited: Duration,
    },

    /// A rank's own arguments do not fit together. Every rank of the operation gets this error.
    #[error("rank {rank} called {call}, which needs {expected} elements in its {buffer}, with {actual}")]
    WrongLength {
        /// The rank that made the call.
        rank: usize,
        /// The call.
        call: Call,
        /// Which argument: `send buffer`, `receive buffer`, `send counts` or `receive counts`.
        buffer: &'static str,
        /// Elements that it should have.
        expected: usize,
        /// Elements that it has.
        actual: usize,
    },

    /// A backend that has no such operation on such elements.
    #[error("{backend} cannot do {call}")]
    Unsupported {
        /// The backend's name.
        backend: &'static str,
        /// What was asked for.
        call: Call,
    },

    /// A backend that cannot count so many elements at once.
    #[error("{backend} cannot do {call}: the buffers of one operation hold at most {limit} elements")]
    TooLong {
        /// The backend's name.
        backend: &'static str,
        /// What was asked for.
        call: Call,
        /// Elements that it can count.
        limit: usize,
    },

    /// A message under a tag that the backend does not have.
    #[error("there is no tag {tag} for messages: the largest is {limit}")]
    NoSuchTag {
        /// The tag asked for.
        tag: u32,
        /// The largest tag.
        limit: u32,
    },

    /// The library under a backend reports an error. The group cannot be used any more.
    #[error("{backend}: {message} (rank {rank}, in {call})")]
    Library {
        /// The library's name.
        backend: &'static str,
        /// The rank that reports it.
        rank: usize,
        /// The operation.
        call: Call,
        /// The library's message.
        message: String,
    },

    /// A backend cannot be started.
    #[error("{backend} cannot be used: {reason}")]
    Unavailable {
        /// The backend's name.
        backend: &'static str,
        /// What was looked for, where, and what to do.
        reason: String,
    },

    /// Not all ranks connected at the start. Rank 0, the ranks connected to it, and a rank that gave up connecting get this
    /// error.
    #[error("ranks {missing:?} did not connect to {address} within {waited:?}{}{}", because(cause.as_deref()), listed(refused))]
    Rendezvous {
        /// Where rank 0 listens.
        address: String,
        /// The ranks that did not connect; on a rank that never reached rank 0, that rank alone.
        missing: Vec<usize>,
        /// How long this rank waited.
        waited: Duration,
        /// Processes that connected but were refused, and why: known on rank 0.
        refused: Vec<String>,
        /// Why the last attempt to connect to rank 0 failed: known on a rank that never connected.
        cause: Option<String>,
    },

    /// Rank 0 has refused a rank.
    #[error("rank {rank} was refused at {address}: {reason}")]
    Refused {
        /// The rank that was refused.
        rank: usize,
        /// Where rank 0 listens.
        address: String,
        /// What is wrong with it.
        reason: String,
    },

    /// Device memory cannot be allocated or copied.
    #[error("the device cannot {action}: {message}")]
    Device {
        /// What was asked for.
        action: String,
        /// The driver's message.
        message: String,
    },

    /// An argument names a rank that the group does not have.
    #[error("there is no rank {rank} in a group of {size}")]
    NoSuchRank {
        /// The rank asked for, counted in the group.
        rank: usize,
        /// Ranks in the group.
        size: usize,
    },

    /// A rank list names a rank twice.
    #[error("rank {rank} is listed twice")]
    DuplicateRank {
        /// The rank, as the list numbers it.
        rank: usize,
    },

    /// A rank asked for a group that it is not in.
    #[error("rank {rank} is not in the group {ranks:?} that it asked for: only members may ask for a group")]
    NotAMember {
        /// The rank that asked, numbered in the communicator that it asked.
        rank: usize,
        /// The ranks asked for, numbered in the same communicator.
        ranks: Vec<usize>,
    },

    /// A partition without ranks has nowhere to put its samples.
    #[error("{samples} samples cannot be divided over no ranks")]
    NoRanks {
        /// The samples that were to be divided.
        samples: usize,
    },

    /// A redistribution between partitions of different data.
    #[error("cannot redistribute {from} samples to a partition of {to}")]
    SampleCountsDiffer {
        /// Samples of the source partition.
        from: usize,
        /// Samples of the target partition.
        to: usize,
    },

    /// A redistribution was started on a communicator that is not the group of its ranks.
    #[error("a redistribution over the ranks {ranks:?} needs a group of exactly these, not one of {size}")]
    WrongGroup {
        /// The ranks of the redistribution.
        ranks: Vec<usize>,
        /// Ranks in the communicator.
        size: usize,
    },

    /// A rank's samples do not fill the buffer that it gave to a redistribution.
    #[error(
        "rank {rank} holds {samples} samples of {sample_len} elements, but its buffer has {actual} elements"
    )]
    WrongShard {
        /// The rank, as the partition counts it.
        rank: usize,
        /// Samples that the partition gives to it.
        samples: usize,
        /// Elements in a sample.
        sample_len: usize,
        /// Elements in the buffer.
        actual: usize,
    },

    /// A link model whose bandwidth is not positive and finite.
    #[error(
        "the link model {name:?} has a bandwidth of {bytes_per_s} bytes/s: it has to be positive and finite"
    )]
    BadBandwidth {
        /// The link's name.
        name: String,
        /// The bandwidth given.
        bytes_per_s: f64,
    },

    /// A link model that is not built in.
    #[error(
        "there is no link model {name:?}; there are: {}{}", known.join(", "),
        known_names::hint(name, known.iter().map(String::as_str))
    )]
    UnknownLink {
        /// The name asked for.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },

    /// A link model whose hosts have no ranks.
    #[error("the link model {name:?} needs at least one rank in each host")]
    NoRanksPerHost {
        /// The link's name.
        name: String,
    },

    /// More ranks than the link model has room for.
    #[error(
        "the link model {link:?} connects {most} ranks, not {asked}: take the links of several hosts, such as dgx-a100-pod or the file of a cluster"
    )]
    TooManyRanks {
        /// The link's name.
        link: String,
        /// Ranks that it connects.
        most: usize,
        /// Ranks asked for.
        asked: usize,
    },

    /// A file that is no link model.
    #[error("{}: {reason}", file.display())]
    BadLinkFile {
        /// The file.
        file: PathBuf,
        /// What is wrong with it, and where in it.
        reason: String,
    },

    /// Measurements from which startup, latency and bandwidth cannot all be determined.
    #[error("no link can be fitted to these measurements: {reason}")]
    UnfitMeasurements {
        /// What they lack, and what to measure.
        reason: String,
    },

    /// A collective that the cost model does not know.
    #[error("there is no collective {name:?}; there are: {}", known.join(", "))]
    UnknownCollective {
        /// The name asked for.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
}

impl Error {
    /// Whether the link model that was named or given is at fault (its name, file, bandwidth, or too many ranks for it), rather
    /// than an operation.
    #[must_use]
    pub fn is_input(&self) -> bool {
        matches!(
            self,
            Self::BadBandwidth { .. }
                | Self::UnknownLink { .. }
                | Self::NoRanksPerHost { .. }
                | Self::TooManyRanks { .. }
                | Self::BadLinkFile { .. }
        )
    }
}

/// The end of a line that may have a reason.
fn because(cause: Option<&str>) -> String {
    cause.map_or_else(String::new, |cause| format!(": {cause}"))
}

/// The end of a line that may list something.
fn listed(items: &[String]) -> String {
    if items.is_empty() { String::new() } else { format!("; refused: {}", items.join(", ")) }
}

/// How a rank ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// It unwound from a panic.
    Panicked,
    /// It dropped its last communicator.
    Left,
    /// The connection to it broke, usually because its process ended.
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
