#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! - **Input**: a [`Cluster`] of GPUs in hosts; a [`Table`] with an [`Execution`] for each kind of
//!   job, [`Allocation`] and [`Mode`]; [`Job`]s, each with an [`Arrival`] in traces.
//! - **Decisions**: a [`Scheduler`] follows a [`Policy`]; it takes [`Event`]s and returns
//!   [`Command`]s.
//! - **Drivers**: [`simulate`] in virtual time, or a program that runs jobs. [`rounds`] simulates
//!   Gavel's scheduling rounds.
//! - **Results**: a [`Report`].
//! - **Independent parts**: fair shares by a solver ([`fair`]), structured partial backpropagation
//!   ([`spb`]), traces ([`trace`]).

mod cluster;
mod driver;
mod error;
mod event;
mod execution;
pub mod fair;
mod ids;
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

pub use cluster::Cluster;
pub use driver::{Disturbance, Granularity, SimulationOptions, simulate};
pub use error::Error;
pub use event::{Command, Event, Placement};
pub use execution::Execution;
pub use ids::{GpuId, GpuType, JobId, KindId};
pub use job::{Arrival, Job};
pub use policy::{Elastic, Fair, Objective, Order, Policy, Sharing};
pub use report::{Departure, JobRecord, Report, Segment};
pub use scheduler::Scheduler;
pub use table::{Allocation, Mode, Table};
