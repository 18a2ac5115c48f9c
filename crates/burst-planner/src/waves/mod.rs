//! Branches at the same time: regions of the graph whose branches run in waves.
//!
//! # Regions
//! The graph is reduced as far as it goes, over and over: a node with one producer and one consumer is contracted
//! (*series*), and links with the same two ends are merged (*parallel*; J. Valdes, R. Tarjan and E. Lawler, SIAM J.
//! Computing 11, 1982). The order does not matter. Each merged link is a [`Region`]: a fork, a join, and two or more
//! branches between them. A [`Branch`] is a series `link node link ... node link`, where a link is an edge or a nested
//! region; a branch without nodes is a skip connection. The fork and the join identify a region. The graph need not be
//! series-parallel: what does not reduce has no regions and runs one after another.
//!
//! # Schedules
//! A [`Schedule`] says for each region which branches run at once. It splits the branches into *waves*. The waves follow
//! one another, and a wave takes as long as its slowest branch:
//!
//! ```text
//! time of a branch = sum of (time + all-reduce) of its layers + sum of the times of its links, entry and exit included
//! time of a region = sum over its waves of the slowest branch of the wave
//! width of a branch = largest GPU count in it, nested regions included; 0 without layers
//! ```
//!
//! Branches in one wave run on disjoint ranks. Their widths add up to at most the width of the region: all GPUs of the
//! problem, or, for a nested region, the width of the branch that it is nested in. A branch alone in its wave always
//! fits. The first branch of a wave sits on the first ranks of the region, the others on the next ranks in the order
//! listed. The first rank of an outermost region is 0, that of a nested one is the first of its branch. A node on `k` GPUs
//! takes the first `k` ranks of the innermost branch that it belongs to.
//!
//! Edges from the fork and to the join of the first branch of a wave cost `transfer_us`, charged to GPU time at the larger
//! GPU count of both ends, as all edges inside of branches do. For the other branches of the wave they cost
//! `transfer_disjoint_us`, charged at the sum of both ends' GPU counts; a branch with such an edge that lacks the matrix
//! cannot be placed so. Where regions with a common fork or join are nested, an edge belongs to several branches: it is
//! disjoint as soon as one of them is not the first of its wave.
//!
//! GPU time is the sum over all layers and edges, whatever runs at once. A rank holds the sum over the layers placed on
//! it. With one branch in each wave all this is the additive model.

mod evaluate;
mod gain;
mod layout;
mod reduce;
mod region;
mod schedule;
mod table;

pub use evaluate::evaluate_schedule;
pub use layout::{Layout, layout};
pub(crate) use reduce::reduce;
pub use reduce::regions;
pub use region::{Branch, Link, Region};
pub use schedule::{RegionSchedule, Schedule};
pub(crate) use table::{RegionTable, RegionTables, TableOptions};
