//! Links within hosts, and a network between them.

use std::time::Duration;

use super::{Algorithm, Collective, LinkModel, Steps};
use crate::{Error, Redistribution, Result};

/// What is beyond a host.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hosts {
    ranks_per_host: usize,
    /// Its ranks are hosts.
    network: LinkModel,
}

/// A group of ranks 0, 1, ... that fills several hosts, the last one perhaps in part.
pub(super) struct Split<'a> {
    inside: &'a LinkModel,
    ranks_per_host: usize,
    hosts: usize,
    network: &'a LinkModel,
}

impl LinkModel {
    /// These links within each host of `ranks_per_host` ranks, and `network` between the hosts.
    ///
    /// Ranks 0, 1, ... fill one host after another, and a group is taken to be ranks that follow each other from the
    /// first of a host on. Bandwidth, startup and latency of the network are a host's, which its ranks share. Operations go inside each host, then between hosts (each rank with its part of the
    /// bytes), then inside again; each of these is paid in full. An all-reduce is a reduce-scatter, an all-reduce of the
    /// parts, and an all-gather. Within one host, everything costs what it cost before.
    ///
    /// Called again, it adds a level on the outside, of so many hosts instead of ranks: a rack's.
    ///
    /// # Errors
    /// Hosts without ranks.
    pub fn between_hosts(mut self, ranks_per_host: usize, network: LinkModel) -> Result<Self> {
        let name = format!("{} between hosts of {ranks_per_host} ranks on {}", network.name, self.name);
        if ranks_per_host == 0 {
            return Err(Error::NoRanksPerHost { name });
        }
        self.hosts = Some(Box::new(match self.hosts.take() {
            None => Hosts { ranks_per_host, network },
            Some(hosts) => Hosts { network: hosts.network.between_hosts(ranks_per_host, network)?, ..*hosts },
        }));
        self.name = name;
        Ok(self)
    }

    /// The links between hosts, as operations over whole hosts see them; `None` without.
    #[must_use]
    pub fn network(&self) -> Option<&LinkModel> {
        self.hosts.as_ref().map(|hosts| &hosts.network)
    }

    /// `None` for a group within a host.
    pub(super) fn beyond_one_host(&self, ranks: usize) -> Option<Split<'_>> {
        let hosts = self.hosts.as_ref().filter(|hosts| ranks > hosts.ranks_per_host)?;
        Some(Split {
            inside: self,
            ranks_per_host: hosts.ranks_per_host,
            hosts: ranks.div_ceil(hosts.ranks_per_host),
            network: &hosts.network,
        })
    }

    /// A redistribution of samples of `sample_bytes`: one step that lasts as long as the busiest rank sends or receives,
    /// or the busiest host, if that takes longer; nothing when nothing moves.
    #[must_use]
    pub fn redistribution(&self, redistribution: &Redistribution, sample_bytes: u64) -> Duration {
        self.traffic_time(&self.traffic(redistribution), sample_bytes)
    }

    /// What a redistribution asks of the links, whatever the size of a sample: for many layers that are redistributed
    /// in the same way. O(moves).
    #[must_use]
    pub fn traffic(&self, redistribution: &Redistribution) -> Traffic {
        let moves = redistribution.moves().iter();
        let mut busiest = Vec::new();
        self.add_traffic(moves.map(|m| (m.from_rank, m.to_rank, m.samples.len())).collect(), &mut busiest);
        Traffic { busiest }
    }

    /// How long [`traffic`](Self::traffic) of samples of `sample_bytes` takes on these links.
    #[must_use]
    pub fn traffic_time(&self, traffic: &Traffic, sample_bytes: u64) -> Duration {
        let mut link = Some(self);
        let mut longest = Duration::ZERO;
        for &samples in &traffic.busiest {
            let Some(LinkModel { level, hosts, .. }) = link else { break };
            if samples > 0 {
                let bytes = (samples as u64).saturating_mul(sample_bytes);
                longest = longest.max(level.time(Steps { count: 1.0, bytes: bytes as f64 }));
            }
            link = hosts.as_ref().map(|hosts| &hosts.network);
        }
        longest
    }

    /// What it takes at least to send so many bytes, part of them perhaps within a host, and others to other hosts meanwhile.
    #[must_use]
    pub fn least_send(&self, bytes: u64) -> Duration {
        if self.hosts.is_none() {
            return self.level.time(Steps { count: 1.0, bytes: bytes as f64 });
        }
        let (mut startup, mut bytes_per_s) = (self.startup() + self.latency(), self.bandwidth_bytes_per_s());
        for link in std::iter::successors(self.network(), |link| link.network()) {
            startup = startup.min(link.startup() + link.latency());
            bytes_per_s += link.bandwidth_bytes_per_s();
        }
        startup + Duration::from_nanos((bytes as f64 / bytes_per_s * 1e9).floor() as u64)
    }

    /// Messages at the same time, each with its sender, receiver and samples.
    fn add_traffic(&self, moves: Vec<(usize, usize, usize)>, busiest: &mut Vec<usize>) {
        let Some(hosts) = &self.hosts else {
            busiest.push(busiest_end(&moves));
            return;
        };
        let host = |rank: usize| rank / hosts.ranks_per_host;
        let (inside, across): (Vec<_>, Vec<_>) =
            moves.into_iter().partition(|&(from, to, _)| host(from) == host(to));
        busiest.push(busiest_end(&inside));
        let across = across.into_iter().map(|(from, to, samples)| (host(from), host(to), samples));
        hosts.network.add_traffic(across.collect(), busiest);
    }
}

/// What a redistribution asks of links: see [`LinkModel::traffic`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    /// By level of links, from the inside: samples that the busiest rank (or host) sends or receives; 0 where nothing moves.
    busiest: Vec<usize>,
}

/// The most that any sender sends or any receiver receives.
fn busiest_end(moves: &[(usize, usize, usize)]) -> usize {
    let most = |mut ends: Vec<(usize, usize)>| {
        ends.sort_unstable_by_key(|&(rank, _)| rank);
        let of_rank =
            ends.chunk_by(|a, b| a.0 == b.0).map(|ends| ends.iter().map(|&(_, samples)| samples).sum());
        of_rank.max().unwrap_or(0)
    };
    let sent = most(moves.iter().map(|&(from, _, samples)| (from, samples)).collect());
    sent.max(most(moves.iter().map(|&(_, to, samples)| (to, samples)).collect()))
}

impl Split<'_> {
    pub(super) fn cost(&self, collective: Collective, bytes: u64) -> Duration {
        let inside = |collective| self.inside.cost(collective, self.ranks_per_host, bytes);
        let between = |bytes| self.network.cost(collective, self.hosts, bytes);
        match collective {
            Collective::AllReduce => {
                sum([inside(Collective::AllReduce), self.second_startup(), between(bytes)])
            }
            // Each rank regroups all of its bytes by host, and then a host's ranks send all of theirs.
            Collective::AllToAll => {
                let of_host = bytes.saturating_mul(self.ranks_per_host as u64);
                sum([inside(collective), between(of_host)])
            }
            Collective::Barrier => sum([inside(collective), between(0), inside(collective)]),
            _ => sum([inside(collective), between(bytes)]),
        }
    }

    pub(super) fn all_reduce_by(&self, algorithm: Algorithm, bytes: u64) -> Duration {
        sum([
            self.inside.all_reduce_by(algorithm, self.ranks_per_host, bytes),
            self.second_startup(),
            self.network.all_reduce_by(algorithm, self.hosts, bytes),
        ])
    }

    /// The two halves of an all-reduce inside a host are an operation each, before and after the one between hosts.
    fn second_startup(&self) -> Duration {
        if self.ranks_per_host > 1 { self.inside.startup() } else { Duration::ZERO }
    }
}

fn sum<const N: usize>(times: [Duration; N]) -> Duration {
    times.into_iter().fold(Duration::ZERO, Duration::saturating_add)
}
