//! The exported functions, under their names in `cuda.h`, `nccl.h` and the headers of libraries.
//!
//! A function has the parameters and effects of the function of the same name, and returns the code
//! of its library, such as a `CUresult`. Results are written to pointer arguments. The
//! documentation of the [`Driver`](crate::state) method that it calls states how they differ.
//!
//! Handles are pointer-sized integers that are never dereferenced. Pointers to the caller's memory
//! are checked for null; beyond that their validity is the caller's promise, as with the real
//! driver.

mod capture;
mod context;
mod control;
mod copies;
mod cublaslt;
mod cudnn;
mod device;
mod errors;
mod events;
mod execs;
mod graphs;
mod green;
mod launch;
mod libraries;
mod memory;
mod modules;
mod nccl;
mod nodes;
mod pointers;
mod procedures;
mod streams;
mod unsupported;
