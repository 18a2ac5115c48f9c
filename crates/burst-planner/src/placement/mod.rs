//! Placing the operations of a network on a few devices, one device each, so that an iteration of one worker is shortest.
//!
//! This is what a worker of several GPUs does where its network has branches: the operations of an iteration are divided among the
//! devices, and each runs as a whole on one of them (model parallelism; `DLPlacer` in S. Pal et al., ["Optimizing Multi-GPU
//! Parallelization Strategies for Deep Learning Training"](https://arxiv.org/abs/1907.13257), IEEE Micro 39(5), 2019, of which only the
//! abstract was at hand).
//!
//! # The model
//!
//! A device runs one operation at a time, in an order of its own. An operation begins when its device is free and its inputs are there:
//! one from another device once it has been moved, beside what devices compute. When the forward pass has ended, the
//! backward pass runs the operations of each device in reverse order, gradients moving the other way. So the time of both passes,
//! [`PlacementProblem::makespan_us`], is the sum of two longest paths.
//!
//! Devices are alike, and so are the links between any two. Nothing is moved twice to the same device, nothing waits for a link: the
//! time of a program ([`crate::program`]), in which transfers to and from a rank wait for each other, is at least this one. Searches by
//! that time take placements as proposals.
//!
//! # How it is searched
//!
//! 1. An operation that all others come before or after cuts the problem, where no edge leads past it: makespans of the
//!    segments add up ([`cuts`]).
//! 2. Operations that run one after another anyway can be [joined](PlacementProblem::joined) before.
//! 3. Each segment is placed by list scheduling, then exactly by branch and bound: operations are placed in the order in which they begin,
//!    on one of the devices in use or the next one. A branch is left when what is placed, the longest way on from there,
//!    or the work that is left say that it cannot be shorter. Forward and backward pass are bounded apart.
//! 4. Where memory is limited, segments take the names of devices that leave most room. If that is not enough, the problem is searched as a
//!    whole, from what a repair of that answer comes to.
//! 5. The search climbs from one device to all: more are never slower.
//!
//! ```
//! use burst_planner::placement::{Operation, PlacementProblem, PlacementSearch, list_schedule, place};
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
mod climb;
mod from_problem;
mod joined;
mod list;
mod paths;
mod problem;
mod repair;
mod segment;

pub(crate) use climb::place_on_each;
pub use climb::{PlacementSearch, place};
pub use joined::Joined;
pub use list::list_schedule;
pub use problem::{Operation, PlacementEdge, PlacementProblem};
pub use segment::cuts;

/// Which device each operation runs on, and when.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DevicePlacement {
    /// By operation: its device.
    pub devices: Vec<usize>,
    /// All operations, producers first. Each device runs its own in this order, and in reverse in the backward pass.
    pub order: Vec<usize>,
    /// Both passes, microseconds: see [`PlacementProblem::makespan_us`].
    pub makespan_us: f64,
    /// No placement takes less, microseconds.
    pub lower_bound_us: f64,
}

impl DevicePlacement {
    /// By how much, relatively, the makespan is above the lower bound.
    #[must_use]
    pub fn gap(&self) -> f64 {
        if self.lower_bound_us > 0.0 { (self.makespan_us / self.lower_bound_us - 1.0).max(0.0) } else { 0.0 }
    }
}
