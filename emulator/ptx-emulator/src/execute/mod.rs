//! Execution of decoded kernels, one warp at a time.

mod access;
mod atomic;
mod barrier;
mod block;
mod convert;
mod exchange;
mod fast;
mod float;
mod forms;
mod integer;
mod interpreter;
mod lanes;
mod launch;
mod local;
mod order;
mod race;
mod registers;
mod shared;
mod vectors;
mod warp;

pub(crate) use float::Rounding;
pub(crate) use forms::{Kind, Op, Shape, find, names};
pub(crate) use launch::{Launching, check, launch};
pub(crate) use registers::{Combine, Comparison, Registers};
