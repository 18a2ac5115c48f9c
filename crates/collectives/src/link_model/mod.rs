//! What communication costs, before it is measured.

mod algorithm;
mod built_in;
mod cluster;
mod collective;
mod fit;
#[cfg(feature = "json")]
mod json;
mod least_squares;
mod level;
mod traffic;

use std::time::Duration;

pub use algorithm::Algorithm;
pub use collective::CollectiveKind;
pub use fit::{Fit, Measurement};
pub use traffic::Traffic;

use crate::{Error, Result};
use algorithm::Steps;
use level::{Algorithms, Level};

/// An alpha-beta model of links: time = startup + steps * latency + bytes / bandwidth.
///
/// Steps and bytes are those of an algorithm. Bandwidth-bound operations go round a ring; a large group's all-reduce of
/// few bytes goes up and down two trees (see [`Algorithm`]). Among one rank everything is free. Bandwidth is that of one
/// rank in one direction; both directions are assumed to run at full speed at once, and ranks not to disturb each other.
///
/// With [`between_hosts`](LinkModel::between_hosts) there are several levels of links: within a host, and the network
/// between hosts. What an operation takes then depends on where its ranks are ([`cost_among`](LinkModel::cost_among)); functions
/// that take a number of ranks are for ranks 0, 1, ...
///
/// ```
/// use collectives::LinkModel;
///
/// let host = LinkModel::named("dgx-a100")?;
/// let time = host.all_reduce(8, 553_430_176); // the gradients of VGG-16 in f32
/// assert!((4.1..4.3).contains(&(time.as_secs_f64() * 1e3)), "{time:?}");
///
/// let hosts = host.between_hosts(8, LinkModel::ethernet_100g())?;
/// assert_eq!(hosts.all_reduce(8, 553_430_176), time);
/// assert!(hosts.all_reduce(16, 553_430_176) > 10 * time);
/// # Ok::<(), collectives::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct LinkModel {
    name: String,
    /// From the inside; at least one.
    levels: Vec<Level>,
    /// Whether the bytes of an operation are on several levels at the same time.
    pipelined: bool,
    /// By what part its times are known to be off at worst.
    error: Option<f64>,
}

impl LinkModel {
    /// A link from its figures: `startup` is paid once an operation, `latency` once a step of it.
    ///
    /// # Errors
    /// A bandwidth that is not positive and finite.
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

    /// The same links under another name.
    #[must_use]
    pub fn named_as(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// So many adapters of the outermost level's bandwidth for each of its members (a host, where this is a network between hosts): a
    /// rank uses one of them at a time, the ranks of a host use all together. 0 is taken as 1.
    #[must_use]
    pub fn with_adapters(mut self, adapters: usize) -> Self {
        if let Some(level) = self.levels.last_mut() {
            level.adapters = adapters.max(1);
        }
        self
    }

    /// The outermost level connects at most so many members: ranks, or hosts where this is to be a network between hosts; `None` is
    /// any number, as if a larger switch could be had.
    #[must_use]
    pub fn with_most(mut self, members: Option<usize>) -> Self {
        let inside = self.ranks_inside();
        if let Some(level) = self.levels.last_mut() {
            level.ranks = members.map(|members| members.max(1).saturating_mul(inside));
        }
        self
    }

    /// All-reduces on the outermost level go by this algorithm alone, not by the faster one.
    #[must_use]
    pub fn with_algorithm(mut self, algorithm: Algorithm) -> Self {
        if let Some(level) = self.levels.last_mut() {
            level.algorithms = Algorithms::Only(algorithm);
        }
        self
    }

    /// The same links with so many times the bandwidth, on all levels.
    ///
    /// # Errors
    /// A bandwidth that is not positive and finite then.
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

    /// By what part its times are known to be off from measured ones at worst, 0.1 for 10%.
    #[must_use]
    pub fn with_relative_error(self, error: f64) -> Self {
        Self { error: Some(error.abs()), ..self }
    }

    /// By what part its times are known to be off from measured ones at worst, where that is known of all its levels.
    #[must_use]
    pub fn relative_error(&self) -> Option<f64> {
        self.error
    }

    /// The link's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What every operation pays once (within a host, where there are several).
    #[must_use]
    pub fn startup(&self) -> Duration {
        self.levels[0].startup
    }

    /// What every step of an operation pays (within a host).
    #[must_use]
    pub fn latency(&self) -> Duration {
        self.levels[0].latency
    }

    /// Bytes per second of one rank in one direction (within a host).
    #[must_use]
    pub fn bandwidth_bytes_per_s(&self) -> f64 {
        self.levels[0].bandwidth_bytes_per_s
    }

    /// Any operation among ranks `0..ranks`; see the functions of the same names.
    #[must_use]
    pub fn cost(&self, collective: CollectiveKind, ranks: usize, bytes: u64) -> Duration {
        match collective {
            CollectiveKind::Send => self.levels[0].cost(collective, self.levels[0].among(2), bytes),
            _ => self.cost_of(collective, &self.spread_of_first(ranks), bytes),
        }
    }

    /// A message of `bytes` within a host.
    #[must_use]
    pub fn send(&self, bytes: u64) -> Duration {
        self.cost(CollectiveKind::Send, 2, bytes)
    }

    /// An all-reduce of `bytes` on each rank, by the faster algorithm on each level of links.
    #[must_use]
    pub fn all_reduce(&self, ranks: usize, bytes: u64) -> Duration {
        self.cost(CollectiveKind::AllReduce, ranks, bytes)
    }

    /// An all-reduce of `bytes` on each rank by this algorithm, on all levels of links.
    #[must_use]
    pub fn all_reduce_by(&self, algorithm: Algorithm, ranks: usize, bytes: u64) -> Duration {
        self.all_reduce_of(algorithm, &self.spread_of_first(ranks), bytes)
    }

    /// A reduce-scatter of `bytes` on each rank (the whole send buffer): a ring of `k - 1` steps that moves
    /// `(k - 1) / k` of them.
    #[must_use]
    pub fn reduce_scatter(&self, ranks: usize, bytes: u64) -> Duration {
        self.cost(CollectiveKind::ReduceScatter, ranks, bytes)
    }

    /// An all-gather that leaves `bytes` on each rank (the whole receive buffer): a ring of `k - 1` steps that moves
    /// `(k - 1) / k` of them.
    #[must_use]
    pub fn all_gather(&self, ranks: usize, bytes: u64) -> Duration {
        self.cost(CollectiveKind::AllGather, ranks, bytes)
    }

    /// A broadcast of `bytes`: the faster of a binomial tree (`ceil(log2 k)` steps with all bytes) and a scatter with an
    /// all-gather after it (`ceil(log2 k) + k - 1` steps that move `2 (k - 1) / k` of the bytes): R. Thakur,
    /// R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.
    #[must_use]
    pub fn broadcast(&self, ranks: usize, bytes: u64) -> Duration {
        self.cost(CollectiveKind::Broadcast, ranks, bytes)
    }

    /// An all-to-all of `bytes` on each rank (the whole send buffer, of which each rank gets an equal part): a pairwise
    /// exchange of `k - 1` steps that moves `(k - 1) / k` of them (Thakur et al., as above).
    #[must_use]
    pub fn all_to_all(&self, ranks: usize, bytes: u64) -> Duration {
        self.cost(CollectiveKind::AllToAll, ranks, bytes)
    }

    /// A barrier: `ceil(log2 k)` steps without bytes (D. Hensgen, R. Finkel, U. Manber, "Two Algorithms for Barrier
    /// Synchronization", 1988).
    #[must_use]
    pub fn barrier(&self, ranks: usize) -> Duration {
        self.cost(CollectiveKind::Barrier, ranks, 0)
    }
}
