//! Cost model of communication.
//!
//! Links form *levels*: the first connects the ranks of a host, the second the hosts of a cluster
//! or rack, and so on. The *members* of a level are what it connects: ranks on the first level,
//! hosts on the second, racks on the third. A *unit* of a level is one group of members that it
//! connects: one host on the first level, one rack on the second. A *step* is one of the
//! consecutive rounds of messages of a collective's algorithm.

mod algorithm;
mod built_in;
mod cluster;
mod collective;
mod fit;
mod groups;
#[cfg(feature = "json")]
mod json;
mod least_squares;
mod level;
mod level_links;
mod protocol;
mod traffic;

use std::time::Duration;

pub use algorithm::Algorithm;
pub use collective::CollectiveKind;
pub use fit::{Fit, Measurement};
pub(crate) use level_links::LevelLinks;
pub use traffic::Traffic;

use crate::{Error, Result};
use algorithm::Steps;
use level::{Algorithms, Level};

/// An alpha-beta model of links: time = startup + steps * latency + bytes / bandwidth.
///
/// Steps and bytes are those of an algorithm. Bandwidth-bound operations use a ring. An all-reduce
/// of few bytes in a large group uses two trees (see [`Algorithm`]). Operations of a single rank
/// cost nothing. The bandwidth is that of one rank in one direction. Both directions are assumed to
/// reach full speed at once, and ranks are assumed not to disturb each other.
///
/// The built-in models of GPUs are those of NCCL. They have a startup time, a latency and a
/// fraction of the bandwidth for each algorithm and protocol (LL, LL128, Simple), fitted to
/// published tables of nccl-tests; an operation uses the fastest of them. The bandwidth may depend
/// on the number of members. The example `fit_links` repeats the fits.
///
/// With [`between_hosts`](LinkModel::between_hosts) there are several levels of links: inside a
/// host, and the network between hosts. The cost of an operation then depends on the placement of
/// its ranks ([`cost_among`](LinkModel::cost_among)), and on other groups that operate at the same
/// time ([`cost_in_groups`](LinkModel::cost_in_groups)). Functions that take a number of ranks are
/// for ranks 0, 1, ...
///
/// ```
/// use collectives::LinkModel;
///
/// let host = LinkModel::named("dgx-a100")?;
/// let time = host.all_reduce(8, 553_430_176); // the gradients of VGG-16 in f32
/// assert!((4.3..4.4).contains(&(time.as_secs_f64() * 1e3)), "{time:?}");
///
/// let hosts = host.between_hosts(8, LinkModel::ethernet_100g())?;
/// assert_eq!(hosts.all_reduce(8, 553_430_176), time);
/// assert!(hosts.all_reduce(16, 553_430_176) > 10 * time);
/// # Ok::<(), collectives::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct LinkModel {
    name: String,
    /// Levels from the innermost one. At least one.
    levels: Vec<Level>,
    /// Whether an operation transfers on several levels at the same time.
    pipelined: bool,
    /// Relative error of the modelled times, if known.
    error: Option<f64>,
}

impl LinkModel {
    /// Creates a model of one level. `startup` is the time paid once an operation, `latency` the
    /// time paid once a step.
    ///
    /// # Errors
    /// [`Error::BadBandwidth`] if the bandwidth is not positive and finite.
    pub fn new(name: &str, startup: Duration, latency: Duration, bandwidth_bytes_per_s: f64) -> Result<Self> {
        if bandwidth_bytes_per_s.is_finite() && bandwidth_bytes_per_s > 0.0 {
            Ok(Self::of(name, Level::new(startup, latency, bandwidth_bytes_per_s)))
        } else {
            Err(Error::BadBandwidth { name: name.to_owned(), bytes_per_s: bandwidth_bytes_per_s })
        }
    }

    fn of(name: &str, level: Level) -> Self {
        Self { name: name.to_owned(), levels: vec![level], pipelined: false, error: None }
    }

    /// Sets the name of the model.
    #[must_use]
    pub fn with_name(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// Sets the number of adapters of each member of the outermost level (a host, if this is a
    /// network between hosts). Each adapter has the level's bandwidth. A rank uses one of them at a
    /// time, the ranks of a host use all. 0 counts as 1.
    #[must_use]
    pub fn with_adapters(mut self, adapters: usize) -> Self {
        if let Some(level) = self.levels.last_mut() {
            level.adapters = adapters.max(1);
        }
        self
    }

    /// Sets the maximum number of members of the outermost level: ranks, or hosts if this is a
    /// network between hosts. `None` means any number.
    #[must_use]
    pub fn with_max_members(mut self, members: Option<usize>) -> Self {
        let inside = self.ranks_per_outer_member();
        if let Some(level) = self.levels.last_mut() {
            level.ranks = members.map(|members| members.max(1).saturating_mul(inside));
        }
        self
    }

    /// Sets the algorithm of all-reduces on the outermost level. By default the faster one is used.
    /// A built-in model of GPUs without this algorithm does not change.
    #[must_use]
    pub fn with_algorithm(mut self, algorithm: Algorithm) -> Self {
        if let Some(level) = self.levels.last_mut() {
            level.algorithms = Algorithms::Only(algorithm);
        }
        self
    }

    /// Multiplies the bandwidth of all levels by `factor`.
    ///
    /// # Errors
    /// [`Error::BadBandwidth`] if the product is not positive and finite.
    pub fn with_bandwidth_scaled(mut self, factor: f64) -> Result<Self> {
        for level in &mut self.levels {
            level.bandwidth_bytes_per_s *= factor;
            let bytes_per_s = level.bandwidth_bytes_per_s;
            if !(bytes_per_s.is_finite() && bytes_per_s > 0.0) {
                return Err(Error::BadBandwidth { name: self.name, bytes_per_s });
            }
        }
        Ok(self)
    }

    /// Sets the relative error of the modelled times, known from measurements: 0.1 is 10%. That of
    /// a [fit](Self::fit) is the maximum. That of a built-in model of GPUs covers nine tenths of
    /// the measurements to which it was not fitted. The sign of `error` is ignored.
    #[must_use]
    pub fn with_relative_error(self, error: f64) -> Self {
        Self { error: Some(error.abs()), ..self }
    }

    /// [Relative error](Self::with_relative_error) of the modelled times. `None` if it is unknown
    /// for any level.
    #[must_use]
    pub fn relative_error(&self) -> Option<f64> {
        self.error
    }

    /// Name of the model.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Startup time of the innermost level, paid once an operation.
    #[must_use]
    pub fn startup(&self) -> Duration {
        self.levels[0].startup
    }

    /// Latency of the innermost level, paid once a step.
    #[must_use]
    pub fn latency(&self) -> Duration {
        self.levels[0].latency
    }

    /// Bandwidth of the innermost level: that of one rank in one direction, in bytes per second.
    #[must_use]
    pub fn bandwidth_bytes_per_s(&self) -> f64 {
        self.levels[0].bandwidth_bytes_per_s
    }

    /// Returns the time of an operation among ranks `0..ranks`. `bytes` are counted as documented
    /// for the [`CollectiveKind`].
    #[must_use]
    pub fn cost(&self, collective: CollectiveKind, ranks: usize, bytes: u64) -> Duration {
        match collective {
            CollectiveKind::Send => self.levels[0].cost(collective, self.levels[0].members(2), bytes),
            _ => self.cost_of(collective, &self.placement_of_first(ranks), bytes),
        }
    }

    /// Returns the time of a message of `bytes` between two ranks of one host.
    #[must_use]
    pub fn send(&self, bytes: u64) -> Duration {
        self.cost(CollectiveKind::Send, 2, bytes)
    }

    /// Returns the time of an all-reduce of `bytes` on each rank, by the faster algorithm on each
    /// level of links.
    #[must_use]
    pub fn all_reduce(&self, ranks: usize, bytes: u64) -> Duration {
        self.cost(CollectiveKind::AllReduce, ranks, bytes)
    }

    /// Returns the time of an all-reduce of `bytes` on each rank, by the given algorithm on all
    /// levels of links. Levels of NCCL without this algorithm use their fastest one.
    #[must_use]
    pub fn all_reduce_by(&self, algorithm: Algorithm, ranks: usize, bytes: u64) -> Duration {
        self.all_reduce_of(algorithm, &self.placement_of_first(ranks), bytes)
    }

    /// Returns the time of a reduce-scatter whose send buffers have `bytes` bytes each: a ring of
    /// `k - 1` steps among `k` ranks that moves `(k - 1) / k` of them.
    #[must_use]
    pub fn reduce_scatter(&self, ranks: usize, bytes: u64) -> Duration {
        self.cost(CollectiveKind::ReduceScatter, ranks, bytes)
    }

    /// Returns the time of an all-gather whose receive buffers have `bytes` bytes each: a ring of
    /// `k - 1` steps among `k` ranks that moves `(k - 1) / k` of them.
    #[must_use]
    pub fn all_gather(&self, ranks: usize, bytes: u64) -> Duration {
        self.cost(CollectiveKind::AllGather, ranks, bytes)
    }

    /// Returns the time of a broadcast of `bytes` to `k` ranks. It is the faster of a binomial tree
    /// (`ceil(log2 k)` steps with all bytes) and a scatter followed by an all-gather
    /// (`ceil(log2 k) + k - 1` steps that move `2 (k - 1) / k` of the bytes). R. Thakur, R.
    /// Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
    /// 2005.
    #[must_use]
    pub fn broadcast(&self, ranks: usize, bytes: u64) -> Duration {
        self.cost(CollectiveKind::Broadcast, ranks, bytes)
    }

    /// Returns the time of an all-to-all whose send buffers have `bytes` bytes each, of which each
    /// rank gets an equal part: a pairwise exchange of `k - 1` steps among `k` ranks that moves
    /// `(k - 1) / k` of them (Thakur et al., see [`broadcast`](Self::broadcast)).
    #[must_use]
    pub fn all_to_all(&self, ranks: usize, bytes: u64) -> Duration {
        self.cost(CollectiveKind::AllToAll, ranks, bytes)
    }

    /// Returns the time of a barrier of `k` ranks: `ceil(log2 k)` steps without bytes (D. Hensgen,
    /// R. Finkel, U. Manber, "Two Algorithms for Barrier Synchronization", 1988).
    #[must_use]
    pub fn barrier(&self, ranks: usize) -> Duration {
        self.cost(CollectiveKind::Barrier, ranks, 0)
    }
}
