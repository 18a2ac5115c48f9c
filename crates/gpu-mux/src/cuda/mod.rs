//! Work on an NVIDIA GPU, by CUDA's driver (feature `cuda`).
//!
//! A [`CudaDevice`] is what a [`Driver`](crate::Driver) drives. Its work is captured from streams, [cut](CapturedGraph::cut) or
//! [merged](Merged), or enqueued kernel by kernel. What driver and device can do is found out by asking
//! ([`Context::capabilities`]); a technique that they do not have is an error that names it, never left out in silence.
//!
//! Three layers. `sys` has the driver's functions, opened at run time; `result` turns what they return into errors that name
//! the call; `safe` owns streams, events, graphs, modules and memory.

mod cut;
mod device;
mod error;
mod intervals;
mod library;
mod merge;
mod result;
mod safe;
mod stopwatch;
mod sys;

pub use cut::{Cut, GraphPiece, OverLong};
pub use device::{CudaDevice, DeviceOptions, EnqueueFn, Prepared, PreparedBackground, Work};
pub use error::{Error, Result};
pub use library::CudaLibrary;
pub use merge::{MergeLimits, Merged};
pub use safe::buffer::DeviceBuffer;
pub use safe::capabilities::Capabilities;
pub use safe::context::Context;
pub use safe::event::Event;
pub use safe::gate::Gate;
pub use safe::graph::{CapturedGraph, Executable};
pub use safe::green::GreenContext;
pub use safe::module::{Argument, Function, LaunchShape, Module};
pub use safe::stream::{Priority, Stream};
pub use stopwatch::Stopwatch;
