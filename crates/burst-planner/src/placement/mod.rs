//! Placement of operations on a few devices, one device each, with the shortest iteration of a
//! worker.
//!
//! A worker of several GPUs whose network has branches divides the operations of an iteration among
//! its devices; each operation runs as a whole on one of them (model parallelism; `DLPlacer` in S.
//! Pal et al., ["Optimizing Multi-GPU Parallelization Strategies for Deep Learning
//! Training"](https://arxiv.org/abs/1907.13257), IEEE Micro 39(5), 2019, of which only the abstract
//! was available).
//!
//! # The model
//!
//! A device runs one operation at a time. An operation starts when its device is free and its
//! inputs are available. An input from another device is available once it has been moved, which
//! does not occupy the devices. After the forward pass, the backward pass runs the operations of
//! each device in reverse order, and gradients move in the opposite direction. So the duration of
//! both passes, [`PlacementProblem::makespan_us`], is the sum of two longest paths.
//!
//! Devices are alike, and so are the links between any two. An output is moved once to each device,
//! and transfers do not wait for each other. In the [program of a plan](crate#the-time-of-a-plan)
//! they do, so its time is at least the makespan. The planner's search uses placements as initial
//! arrangements.
//!
//! # Method
//!
//! 1. The problem is divided at operations that all others precede or follow, if no edge leads past
//!    them ([`cuts`]). The makespan is the sum of those of the segments.
//! 2. Operations that run one after another can be [joined](PlacementProblem::joined) beforehand.
//! 3. Each segment is placed by list scheduling, then by branch and bound: operations are placed in
//!    the order in which they start, on one of the devices in use or the next one. A branch is
//!    pruned if the critical path or the remaining work exceeds the best makespan. Forward and
//!    backward pass are bounded separately.
//! 4. With a memory limit, the devices of segments are matched to balance memory. If that is not
//!    enough, the problem is searched as a whole, starting from a repaired placement.
//! 5. The search goes from one device to all: more devices are never slower.
//!
//! ```
//! use burst_planner::placement::{Operation, PlacementProblem, PlacementSearch};
//! use burst_planner::placement::{list_schedule, place};
//!
//! // A fork, two branches of 30 us and 20 us, and a join; moving anything takes 2 us.
//! let mut problem = PlacementProblem::new(2);
//! let times = [("fork", 1.0), ("long", 10.0), ("short", 7.0), ("join", 1.0)];
//! let [fork, long, short, join] =
//!     times.map(|(name, us)| problem.add(Operation::new(name, us, 2.0 * us)));
//! for (from, to) in [(fork, long), (fork, short), (long, join), (short, join)] {
//!     problem.connect(from, to, 2.0, 2.0);
//! }
//! let found = place(&problem, &PlacementSearch::default())?;
//! assert_eq!(found.makespan_us, 13.0 + 24.0);
//! assert_eq!(found.makespan_us, found.lower_bound_us);
//! assert!(list_schedule(&problem)?.makespan_us >= found.makespan_us);
//! # Ok::<(), burst_planner::Error>(())
//! ```

mod branch;
mod device_search;
mod from_problem;
mod joined;
mod list;
mod paths;
mod problem;
mod repair;
mod segment;

pub(crate) use device_search::place_on_each;
pub use device_search::{PlacementSearch, place};
pub use joined::Joined;
pub use list::list_schedule;
pub use problem::{Operation, PlacementEdge, PlacementProblem};
pub use segment::cuts;

/// A device for each operation of a [`PlacementProblem`], and an order of the operations.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DevicePlacement {
    /// By operation: the index of its device.
    pub devices: Vec<usize>,
    /// Indices of all operations, producers first. Each device runs its operations in this order,
    /// and in reverse in the backward pass.
    pub order: Vec<usize>,
    /// Duration of both passes, microseconds: see [`PlacementProblem::makespan_us`].
    pub makespan_us: f64,
    /// Lower bound of the makespan of any placement of the problem, microseconds.
    pub lower_bound_us: f64,
}

impl DevicePlacement {
    /// Returns the makespan divided by its lower bound, minus one; 0 if the lower bound is 0.
    #[must_use]
    pub fn gap(&self) -> f64 {
        if self.lower_bound_us > 0.0 { (self.makespan_us / self.lower_bound_us - 1.0).max(0.0) } else { 0.0 }
    }
}
