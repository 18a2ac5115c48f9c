//! The functions that the library exports, under their names in `cuda.h` and `nccl.h`.
//!
//! Handles are passed as integers of a pointer's size: nothing here ever looks behind one. What is a pointer to the
//! caller's memory is checked for null, and is otherwise the caller's promise, as with the real driver.

mod capture;
mod context;
mod control;
mod copies;
mod device;
mod errors;
mod events;
mod execs;
mod graphs;
mod green;
mod lacking;
mod launch;
mod memory;
mod modules;
mod nccl;
mod nodes;
mod places;
mod procedures;
mod streams;
