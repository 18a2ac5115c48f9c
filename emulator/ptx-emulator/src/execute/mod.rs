//! Execution of decoded kernels, one warp at a time.

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
