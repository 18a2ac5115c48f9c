#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! - **Work**: [`Tasklet`]s of a foreground and any number of background jobs, each with a
//!   [`JobId`] and a [`Lane`]; [`pieces()`] cuts a tasklet that is too long.
//! - **Policy**: the [`Multiplexer`] follows the rules of a [`Policy`]; it takes [`MuxEvent`]s and
//!   returns [`MuxCommand`]s.
//! - **Drivers**: [`CpuDriver`] on a thread, for [`PolledJob`]s; [`Driver`] on an asynchronous
//!   [`Device`], such as a [`VirtualDevice`], which runs a [`Workload`] in virtual time.
//! - **Several devices**: [`Gangs`] launches the collectives of distributed background jobs.
//! - **NVIDIA GPUs** (feature `cuda`): `cuda::CudaDevice` is a [`Device`].
//! - **Results**: [`Usage`].

mod background;
mod background_decision;
mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod device;
mod driver;
mod error;
mod feedback;
mod gang;
mod gang_id;
mod host;
mod idle;
mod idle_periods;
mod job;
#[cfg(feature = "json")]
mod json;
mod launch_order;
mod multiplexer;
mod mux_event;
mod pieces;
mod policy;
mod presets;
mod queue;
mod seconds;
mod site_averages;
mod tasklet;
mod tasklet_feedback;
mod usage;
mod virtual_device;
mod workload;

pub use cpu::{BackgroundJob, Control, CpuDriver, JobOutcome, share};
pub use device::{Device, Finished};
pub use driver::{Driver, DriverError};
pub use error::Error;
pub use gang::{GangEvent, GangOutcome, Gangs};
pub use gang_id::GangId;
pub use host::{Host, RunOutcome};
pub use idle::Idle;
pub use job::{JobFn, JobState, PolledJob, Upcoming, job_fn};
pub use multiplexer::Multiplexer;
pub use mux_event::{Grant, MuxCommand, MuxEvent};
pub use pieces::{Piece, pieces};
pub use policy::{Ahead, BesideCommunication, Feedback, IdlePeriodFitting, Merging, Policy, TaskletFeedback};
pub use tasklet::{Communication, JobId, Lane, Tasklet, TaskletId};
pub use usage::Usage;
#[cfg(feature = "json")]
pub use virtual_device::ParametersFile;
pub use virtual_device::{
    Awaits, DeviceParameter, DeviceParameters, Exchange, ForegroundState, Kernel, Occupancy, Partners,
    VirtualDevice, VirtualWork,
};
pub use workload::{
    BackgroundHost, ForegroundHost, Iteration, Jobs, SimulationOptions, SimulationReport, StepWork, Workload,
    WorkloadStep, check_virtual_time,
};
