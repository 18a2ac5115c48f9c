//! Transfers that share links, in virtual time.
//!
//! A *flow* is one transfer over one or more links. Its *owner* is the job that it belongs to. A
//! link is *contended* if its flows would exceed its capacity at their maximum rates.

mod cluster_links;
mod flow;
mod max_min;
mod network;

pub use cluster_links::{ClusterLink, ClusterLinks, Direction};
pub use flow::{Flow, FlowId};
pub use network::FlowNetwork;
