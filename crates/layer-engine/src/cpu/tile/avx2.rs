//! Kernels for AVX2 with fused multiply-add: four rows by three vectors fill 12 of its 16 registers.

use std::arch::x86_64::{
    _mm256_fmadd_pd, _mm256_fmadd_ps, _mm256_loadu_pd, _mm256_loadu_ps, _mm256_set1_pd, _mm256_set1_ps,
    _mm256_setzero_pd, _mm256_setzero_ps, _mm256_storeu_pd, _mm256_storeu_ps,
};

use super::{Kernel, Panels};

pub(super) const ROWS: usize = 4;

panel_kernels!(
    SINGLE,
    single,
    "avx2,fma",
    f32,
    ROWS,
    8,
    _mm256_setzero_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_set1_ps,
    _mm256_fmadd_ps
);
panel_kernels!(
    DOUBLE,
    double,
    "avx2,fma",
    f64,
    ROWS,
    4,
    _mm256_setzero_pd,
    _mm256_loadu_pd,
    _mm256_storeu_pd,
    _mm256_set1_pd,
    _mm256_fmadd_pd
);
