//! Kernels for AVX-512: eight rows by three vectors fill 24 of its 32 registers.
#![allow(clippy::incompatible_msrv, reason = "compiled only by a Rust that has these instructions")]

use std::arch::x86_64::{
    _mm512_fmadd_pd, _mm512_fmadd_ps, _mm512_loadu_pd, _mm512_loadu_ps, _mm512_set1_pd, _mm512_set1_ps,
    _mm512_setzero_pd, _mm512_setzero_ps, _mm512_storeu_pd, _mm512_storeu_ps,
};

use super::{Kernel, Panels};

pub(super) const ROWS: usize = 8;

panel_kernels!(
    SINGLE,
    single,
    "avx512f",
    f32,
    ROWS,
    16,
    _mm512_setzero_ps,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_set1_ps,
    _mm512_fmadd_ps
);
panel_kernels!(
    DOUBLE,
    double,
    "avx512f",
    f64,
    ROWS,
    8,
    _mm512_setzero_pd,
    _mm512_loadu_pd,
    _mm512_storeu_pd,
    _mm512_set1_pd,
    _mm512_fmadd_pd
);
