//! Vector instructions: the inner loops, written once and compiled for each instruction set.
//!
//! Every element of a product is summed in the same order whatever the instruction set, the cut of rows and columns, and
//! the number of threads; sets without fused multiply-add round it differently.
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

pub(super) use kernels::{Kernels, Left, Place, Right};
pub(super) use pack::Segment;
pub(super) use shared::Shared;
pub(super) use tile::{Start, Terms};

/// The tables of an instruction set for both scalars.
type Tables = (&'static Kernels<f32>, &'static Kernels<f64>);

/// The tables of all instruction sets that this processor has and the compiler knew, the best first.
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
