//! Inner loops with vector instructions, written once and compiled for each instruction set.
//!
//! A product of matrices is computed in *tiles*: blocks of rows and columns of the result that fit
//! into registers. Its *terms* are the elements of the summed dimension. A *panel* is the part of
//! the right factor for the columns of a tile, packed with one row per term. A *vector* is the
//! content of a register; its elements are *lanes*.
//!
//! The order of the terms of a sum does not depend on the instruction set, on the division into
//! rows and columns, or on the number of threads. Instruction sets without fused multiply-add round
//! differently.
#![allow(clippy::inline_always, reason = "what is not inlined is compiled for another instruction set")]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(all(target_arch = "x86_64", avx512))]
mod avx512;
mod kernels;
mod pack;
mod portable;
mod shared;
mod tile;
mod vector;

pub(super) use kernels::{Destination, Kernels, LeftFactor, RightFactor};
pub(super) use pack::Segment;
pub(super) use shared::Shared;
pub(super) use tile::{InitialSums, TermLayout};

/// The tables of an instruction set for both scalars.
type Tables = (&'static Kernels<f32>, &'static Kernels<f64>);

/// Returns the tables of all instruction sets that the processor and the compiler support, the
/// fastest first. The last one needs no vector instructions and always exists.
#[allow(clippy::vec_init_then_push, reason = "which are pushed depends on the target")]
pub(super) fn tables() -> Vec<Tables> {
    let mut tables: Vec<Tables> = Vec::new();
    #[cfg(all(target_arch = "x86_64", avx512))]
    if std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512dq") {
        tables.push((&avx512::SINGLE, &avx512::DOUBLE));
    }
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        tables.push((&avx2::SINGLE, &avx2::DOUBLE));
    }
    tables.push((&portable::SINGLE, &portable::DOUBLE));
    tables
}
