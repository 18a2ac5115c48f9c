//! What communication costs, before it is measured.

mod collective;

use std::time::Duration;

pub use collective::Collective;

use crate::{Error, Redistribution, Result};

/// An alpha-beta model of one level of links: time = startup + steps * latency + bytes / bandwidth.
///
/// Collectives are costed as rings, which are bandwidth-optimal: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of
/// Collective Communication Operations in MPICH", 2005; P. Patarasuk, X. Yuan, "Bandwidth Optimal All-reduce
/// Algorithms for Clusters of Workstations", 2009. Among one rank everything is free. Bandwidth is that of one rank in
/// one direction; both directions are assumed to run at full speed at once, and ranks not to disturb each other.
///
/// ```
/// use collectives::LinkModel;
///
/// let link = LinkModel::named("dgx-a100")?;
/// let time = link.all_reduce(8, 553_430_176); // the gradients of VGG-16 in f32
/// assert!((3.2..3.4).contains(&(time.as_secs_f64() * 1e3)), "{time:?}");
/// # Ok::<(), collectives::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct LinkModel {
    name: String,
    startup: Duration,
    latency: Duration,
    bandwidth_bytes_per_s: f64,
}

const BUILT_IN: [fn() -> LinkModel; 2] = [LinkModel::dgx_a100, LinkModel::shared_memory];

impl LinkModel {
    /// A link from its figures: `startup` is paid once an operation, `latency` once a step of it.
    ///
    /// # Errors
    /// A bandwidth that is not positive and finite.
    pub fn new(name: &str, startup: Duration, latency: Duration, bandwidth_bytes_per_s: f64) -> Result<Self> {
        if bandwidth_bytes_per_s.is_finite() && bandwidth_bytes_per_s > 0.0 {
            Ok(Self { name: name.to_owned(), startup, latency, bandwidth_bytes_per_s })
        } else {
            Err(Error::BadBandwidth { name: name.to_owned(), bytes_per_s: bandwidth_bytes_per_s })
        }
    }

    /// Eight A100 GPUs on NVSwitch in one DGX A100.
    ///
    /// The bandwidth is the data sheet's: 600 GB/s a GPU in both directions, so 300 GB/s in one. Startup (10 us) and
    /// latency (1.5 us) are assumptions: together they give 31 us for a small all-reduce on 8 GPUs, in the range of
    /// 20 to 40 us usual for NCCL. (The cost model of the DeepPool artifact charges 40 us for any transfer.)
    #[must_use]
    pub fn dgx_a100() -> Self {
        Self {
            name: "dgx-a100".to_owned(),
            startup: Duration::from_micros(10),
            latency: Duration::from_nanos(1_500),
            bandwidth_bytes_per_s: 300e9,
        }
    }

    /// Ranks that are threads of one process.
    ///
    /// Round figures (2 us startup, 1.5 us latency, 3 GB/s) that reproduce one measurement of this crate's all-reduce:
    /// four ranks on two cores of a busy Intel Xeon took 12 us for 4 KiB and 2.2 ms for 4 MiB. On another machine, or with
    /// a core for each rank, they are assumptions.
    #[must_use]
    pub fn shared_memory() -> Self {
        Self {
            name: "shared-memory".to_owned(),
            startup: Duration::from_micros(2),
            latency: Duration::from_nanos(1_500),
            bandwidth_bytes_per_s: 3e9,
        }
    }

    /// A built-in link by its name: one of [`LinkModel::names`].
    ///
    /// # Errors
    /// A name that is not known; the error lists those that are.
    pub fn named(name: &str) -> Result<Self> {
        BUILT_IN
            .iter()
            .map(|build| build())
            .find(|link| link.name == name)
            .ok_or_else(|| Error::UnknownLink { name: name.to_owned(), known: Self::names() })
    }

    /// The names of the built-in links.
    #[must_use]
    pub fn names() -> Vec<String> {
        BUILT_IN.iter().map(|build| build().name).collect()
    }

    /// The link's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What every operation pays once.
    #[must_use]
    pub fn startup(&self) -> Duration {
        self.startup
    }

    /// What every step of an operation pays.
    #[must_use]
    pub fn latency(&self) -> Duration {
        self.latency
    }

    /// Bytes per second of one rank in one direction.
    #[must_use]
    pub fn bandwidth_bytes_per_s(&self) -> f64 {
        self.bandwidth_bytes_per_s
    }

    /// A message of `bytes`.
    #[must_use]
    pub fn send(&self, bytes: u64) -> Duration {
        self.time(1.0, bytes as f64)
    }

    /// An all-reduce of `bytes` on each rank: a ring of `2 (k - 1)` steps that moves `2 (k - 1) / k` of the bytes.
    #[must_use]
    pub fn all_reduce(&self, ranks: usize, bytes: u64) -> Duration {
        self.ring(ranks, 2.0, bytes)
    }

    /// A reduce-scatter of `bytes` on each rank (the whole send buffer): `k - 1` steps that move `(k - 1) / k` of them.
    #[must_use]
    pub fn reduce_scatter(&self, ranks: usize, bytes: u64) -> Duration {
        self.ring(ranks, 1.0, bytes)
    }

    /// An all-gather that leaves `bytes` on each rank (the whole receive buffer): `k - 1` steps that move
    /// `(k - 1) / k` of them.
    #[must_use]
    pub fn all_gather(&self, ranks: usize, bytes: u64) -> Duration {
        self.ring(ranks, 1.0, bytes)
    }

    /// A broadcast of `bytes`: the faster of a binomial tree (`ceil(log2 k)` steps with all bytes) and a scatter with an
    /// all-gather after it (`ceil(log2 k) + k - 1` steps that move `2 (k - 1) / k` of the bytes), as in Thakur et al.
    #[must_use]
    pub fn broadcast(&self, ranks: usize, bytes: u64) -> Duration {
        if ranks <= 1 {
            return Duration::ZERO;
        }
        let (k, depth) = (ranks as f64, f64::from(usize::BITS - (ranks - 1).leading_zeros()));
        let tree = self.time(depth, depth * bytes as f64);
        let scatter_and_gather = self.time(depth + k - 1.0, 2.0 * (k - 1.0) / k * bytes as f64);
        tree.min(scatter_and_gather)
    }

    /// A redistribution of samples of `sample_bytes`: one step that lasts as long as the busiest rank sends or receives;
    /// nothing when nothing moves.
    #[must_use]
    pub fn redistribution(&self, redistribution: &Redistribution, sample_bytes: u64) -> Duration {
        if redistribution.is_identity() {
            return Duration::ZERO;
        }
        self.time(1.0, redistribution.busiest_rank_bytes(sample_bytes) as f64)
    }

    fn ring(&self, ranks: usize, rounds: f64, bytes: u64) -> Duration {
        if ranks <= 1 {
            return Duration::ZERO;
        }
        let k = ranks as f64;
        self.time(rounds * (k - 1.0), rounds * (k - 1.0) / k * bytes as f64)
    }

    fn time(&self, steps: f64, bytes: f64) -> Duration {
        let seconds = self.startup.as_secs_f64()
            + steps * self.latency.as_secs_f64()
            + bytes / self.bandwidth_bytes_per_s;
        // Longer than a Duration can say only for absurd inputs, for which "for ever" is the answer.
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}
