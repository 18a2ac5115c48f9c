#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! - **What there is**: a [`Cluster`] of GPUs in hosts; a [`Table`] of how each kind of job is executed, an [`Execution`] for each
//!   [`Allocation`] and [`Mode`]; [`Job`]s, with an [`Arrival`] each in traces.
//! - **Who decides**: a [`Scheduler`], by a [`Policy`]; it takes an [`Event`] and gives a [`Command`].
//! - **Who drives it**: [`simulate`] in virtual time, or a program that runs jobs. [`rounds`] is the simulator of Gavel's rounds.
//! - **What came of it**: a [`Report`].
//! - **Parts that are useful alone**: fair shares by a solver ([`fair`]), what SPB leaves to do ([`spb`]), traces ([`trace`]).

mod cluster;
mod driver;
mod error;
mod event;
mod execution;
pub mod fair;
mod job;
mod nanos;
mod policy;
mod report;
pub mod rounds;
mod scheduler;
mod sharing;
pub mod spb;
mod table;
pub mod trace;

pub use cluster::{Cluster, GpuId, GpuType};
pub use driver::{Disturbance, SimulationOptions, Step, simulate};
pub use error::Error;
pub use event::{Command, Event, Placement};
pub use execution::Execution;
pub use job::{Arrival, Job, JobId};
pub use policy::{Elastic, Fair, Objective, Order, Policy, Sharing};
pub use report::{End, JobRecord, Report, Segment};
pub use scheduler::Scheduler;
pub use table::{Allocation, KindId, Mode, Table};
