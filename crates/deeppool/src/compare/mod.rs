//! Ways to share GPUs between one foreground job and background jobs, side by side.
//!
//! ```
//! use deeppool::compare::{Comparison, SharingMode};
//! use deeppool::{collectives::LinkModel, costs::{Costs, shard_sizes}, job::Job, plan::{Mode, PlanRequest}};
//! use deeppool::{program::LowerOptions, simulate::{BackgroundCosts, SimulateOptions}};
//!
//! let network = deeppool::layer_graph::zoo::model("digits-cnn")?;
//! let profile = deeppool::layer_profile::DeviceModel::named("a100")?.profile(&network, &shard_sizes(32, 4))?;
//! let link = LinkModel::dgx_a100();
//! let job = Job::new(Costs::new(&network, &profile, &link), 32, LowerOptions::default());
//! let background = BackgroundCosts::new(job.costs(), 8)?;
//! let request = PlanRequest::new(4, Mode::Burst { amplification: f64::INFINITY });
//! let compared = Comparison::new(&job, &request, &background, &SimulateOptions::default(), |_| {})?;
//! assert!(compared.points.iter().any(|point| point.mode == SharingMode::Partition));
//! println!("{}", compared.advice());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod advice;
mod comparison;
mod envelope;
mod point;
mod total;

pub use comparison::Comparison;
pub use envelope::Envelope;
pub use point::{Point, SharingMode};
pub use total::{TotalPlan, max_total_plan};
