//! Execution of decoded kernels, one warp at a time.
//!
//! A *lane* is one of the 32 threads of a warp. In a mask of lanes, bit *l* stands for lane *l*.
//! Threads of a block are numbered with x fastest; warp *w* has the threads from 32 *w* on. The
//! *position* of a lane is the index of its next instruction in the kernel. Lanes of a warp at the
//! same position form a *group* and execute together.

mod access;
mod atomic;
mod barrier;
mod block;
mod context;
mod convert;
mod environment;
mod exchange;
mod fast;
mod interpreter;
mod launch;
mod local;
mod order;
mod race;
mod shared;
mod warp;

pub(crate) use launch::{LaunchRequest, check, launch};
