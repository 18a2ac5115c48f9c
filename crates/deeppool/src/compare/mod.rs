//! Ways to share GPUs between one foreground job and background jobs, side by side.
//!
//! The total throughput is the sum of foreground and background samples per second. The speed of a
//! foreground is its samples per second. Two ways alternate if the GPUs are used in one way for a
//! part of the time and in the other way for the rest.
//!
//! ```
//! use deeppool::compare::{Comparison, SharingMode};
//! use deeppool::collectives::LinkModel;
//! use deeppool::costs::{Costs, shard_sizes};
//! use deeppool::job::Job;
//! use deeppool::plan::{Mode, PlanRequest};
//! use deeppool::program::LowerOptions;
//! use deeppool::simulate::{BackgroundCosts, SimulateOptions};
//!
//! let network = deeppool::layer_graph::zoo::model("digits-cnn")?;
//! let device = deeppool::layer_profile::DeviceModel::named("a100")?;
//! let profile = device.profile(&network, &shard_sizes(32, 4))?;
//! let link = LinkModel::dgx_a100();
//! let job = Job::new(Costs::new(&network, &profile, &link), 32, LowerOptions::default());
//! let background = BackgroundCosts::new(job.costs(), 8)?;
//! let request = PlanRequest::new(4, Mode::Burst { amplification: f64::INFINITY });
//! let options = SimulateOptions::default();
//! let compared = Comparison::new(&job, &request, &background, &options, |_| {})?;
//! assert!(compared.points.iter().any(|point| point.mode == SharingMode::Partition));
//! println!("{}", compared.advice());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod advice;
mod beside;
mod comparison;
mod distributed;
mod envelope;
mod point;
mod total;

pub use comparison::Comparison;
pub use distributed::DistributedGain;
pub use envelope::Envelope;
pub use point::{Point, SharingMode};
pub use total::{TotalPlan, max_total_plan};
