//! Protocols with which a communication library sends the chunks of an operation.

use super::algorithm::depth;
use super::{Algorithm, CollectiveKind, Steps};

/// Protocol of NCCL. An operation uses the same one on all levels of links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// LL: words of 4 bytes of payload and 4 bytes of flag. Low latency, at most half of the
    /// bandwidth.
    LowLatency,
    /// LL128: lines of 120 bytes of payload and 8 bytes of flag.
    LowLatency128,
    /// Chunks of hundreds of kilobytes, synchronized by memory fences.
    Simple,
}

impl Protocol {
    pub(super) const ALL: [Self; 3] = [Self::LowLatency, Self::LowLatency128, Self::Simple];
}

/// Parameters of an algorithm with a protocol on one level of links. A protocol may have several
/// variants: the library uses more channels and larger chunks for more bytes.
///
/// The operation is pipelined: time = startup + hops * latency + bytes / (achieved * bandwidth).
/// *Hops* are the messages that the first chunk waits for. A chunk of a ring passes the other
/// members once (`members - 1` hops) before chunks arrive continuously. A chunk of a tree passes it
/// up and down (`2 ceil(log2 members)` hops).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Variant {
    pub(super) protocol: Protocol,
    /// Algorithm of an all-reduce. Other collectives use the variants of the ring and of the tree
    /// for rings, and not those of the switch.
    pub(super) algorithm: Algorithm,
    /// Time paid once an operation, in seconds.
    pub(super) startup_s: f64,
    /// Time paid once a hop, in seconds.
    pub(super) latency_s: f64,
    /// Fraction of the level's bandwidth: above 0, at most 1.
    pub(super) achieved: f64,
}

impl Variant {
    /// Returns the hops and bytes of an operation among at least two members. `None` if it does not
    /// use this variant.
    pub(super) fn steps(&self, collective: CollectiveKind, members: usize, bytes: f64) -> Option<Steps> {
        let hops = members as f64 - 1.0;
        Some(match (collective, self.algorithm) {
            (CollectiveKind::AllReduce, Algorithm::Switch) => Steps { count: 1.0, bytes },
            (_, Algorithm::Switch) | (CollectiveKind::Barrier, _) => return None,
            // Each of two members is the root of one tree and a leaf of the other one: it sends
            // half of the bytes in each. An inner node receives the bytes of two children.
            (CollectiveKind::AllReduce, Algorithm::Tree) => {
                Steps { count: 2.0 * depth(members), bytes: if members == 2 { bytes } else { 2.0 * bytes } }
            }
            (CollectiveKind::Send, _) => Steps { count: 1.0, bytes },
            // Messages between all pairs at the same time.
            (CollectiveKind::AllToAll, _) => Steps { count: 1.0, bytes: hops / members as f64 * bytes },
            (_, Algorithm::Ring | Algorithm::Tree) => {
                Steps { count: hops, bytes: collective.bus_factor(members)? * bytes }
            }
        })
    }

    /// Returns whether this variant is used for messages between two members.
    pub(super) fn sends_messages(&self) -> bool {
        self.algorithm != Algorithm::Switch
    }
}
