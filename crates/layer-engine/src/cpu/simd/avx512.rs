//! AVX-512: 32 registers of 64 bytes.
#![allow(unsafe_code)]
#![allow(clippy::incompatible_msrv, reason = "compiled only by a Rust that has these instructions")]

use std::arch::x86_64::{
    __m512, __m512d, _mm_loadu_pd, _mm_loadu_ps, _mm512_add_pd, _mm512_add_ps, _mm512_castpd_ps,
    _mm512_castpd128_pd512, _mm512_castps_pd, _mm512_castps128_ps512, _mm512_fmadd_pd, _mm512_fmadd_ps,
    _mm512_insertf32x4, _mm512_insertf64x2, _mm512_loadu_pd, _mm512_loadu_ps, _mm512_mask_storeu_pd,
    _mm512_mask_storeu_ps, _mm512_maskz_loadu_pd, _mm512_maskz_loadu_ps, _mm512_set1_pd, _mm512_set1_ps,
    _mm512_storeu_pd, _mm512_storeu_ps, _mm512_unpackhi_pd, _mm512_unpackhi_ps, _mm512_unpacklo_pd,
    _mm512_unpacklo_ps,
};

use super::kernels::kernels;
use super::vector::Vector;

kernels!(SINGLE, f32, __m512, "AVX-512", 8, "avx512f,avx512dq");
kernels!(DOUBLE, f64, __m512d, "AVX-512", 8, "avx512f,avx512dq");

impl Vector for __m512 {
    type Scalar = f32;
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: by the contract of the trait the processor supports the instruction set, as in
        // all methods below.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller guarantees 16 elements.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_part(from: *const f32, count: usize) -> Self {
        // SAFETY: the caller guarantees `count` elements; masked lanes are not read.
        unsafe { _mm512_maskz_loadu_ps((1 << count) - 1, from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller guarantees 16 elements.
        unsafe { _mm512_storeu_ps(to, self) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, count: usize) {
        // SAFETY: the caller guarantees `count` elements; masked lanes are not written.
        unsafe { _mm512_mask_storeu_ps(to, (1 << count) - 1, self) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: contract of the trait.
        unsafe { _mm512_add_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: contract of the trait.
        unsafe { _mm512_fmadd_ps(self, factor, addend) }
    }

    #[inline(always)]
    unsafe fn transpose(from: *const f32, stride: usize, to: *mut f32, to_stride: usize) {
        // SAFETY: the caller guarantees both blocks of 16 x 16 elements.
        unsafe {
            for column in (0..16).step_by(4) {
                // Each quarter of a register holds four columns of a different row. Four registers
                // hold four columns of all rows, and only elements within quarters move.
                let four_columns = |row: usize| {
                    let quarter = |row: usize| _mm_loadu_ps(from.add(row * stride + column));
                    let rows = _mm512_castps128_ps512(quarter(row));
                    let rows = _mm512_insertf32x4::<1>(rows, quarter(row + 4));
                    let rows = _mm512_insertf32x4::<2>(rows, quarter(row + 8));
                    _mm512_insertf32x4::<3>(rows, quarter(row + 12))
                };
                let [a, b, c, d] = [four_columns(0), four_columns(1), four_columns(2), four_columns(3)];
                let low = [_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d)].map(|x| _mm512_castps_pd(x));
                let high = [_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d)].map(|x| _mm512_castps_pd(x));
                let columns = [
                    _mm512_unpacklo_pd(low[0], low[1]),
                    _mm512_unpackhi_pd(low[0], low[1]),
                    _mm512_unpacklo_pd(high[0], high[1]),
                    _mm512_unpackhi_pd(high[0], high[1]),
                ];
                for (index, values) in columns.into_iter().enumerate() {
                    _mm512_storeu_ps(to.add((column + index) * to_stride), _mm512_castpd_ps(values));
                }
            }
        }
    }
}

impl Vector for __m512d {
    type Scalar = f64;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(value: f64) -> Self {
        // SAFETY: contract of the trait.
        unsafe { _mm512_set1_pd(value) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f64) -> Self {
        // SAFETY: the caller guarantees 8 elements.
        unsafe { _mm512_loadu_pd(from) }
    }

    #[inline(always)]
    unsafe fn load_part(from: *const f64, count: usize) -> Self {
        // SAFETY: the caller guarantees `count` elements; masked lanes are not read.
        unsafe { _mm512_maskz_loadu_pd((1 << count) - 1, from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f64) {
        // SAFETY: the caller guarantees 8 elements.
        unsafe { _mm512_storeu_pd(to, self) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut f64, count: usize) {
        // SAFETY: the caller guarantees `count` elements; masked lanes are not written.
        unsafe { _mm512_mask_storeu_pd(to, (1 << count) - 1, self) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: contract of the trait.
        unsafe { _mm512_add_pd(self, other) }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: contract of the trait.
        unsafe { _mm512_fmadd_pd(self, factor, addend) }
    }

    #[inline(always)]
    unsafe fn transpose(from: *const f64, stride: usize, to: *mut f64, to_stride: usize) {
        // SAFETY: the caller guarantees both blocks of 8 x 8 elements.
        unsafe {
            for column in (0..8).step_by(2) {
                let two_columns = |row: usize| {
                    let quarter = |row: usize| _mm_loadu_pd(from.add(row * stride + column));
                    let rows = _mm512_castpd128_pd512(quarter(row));
                    let rows = _mm512_insertf64x2::<1>(rows, quarter(row + 2));
                    let rows = _mm512_insertf64x2::<2>(rows, quarter(row + 4));
                    _mm512_insertf64x2::<3>(rows, quarter(row + 6))
                };
                let (a, b) = (two_columns(0), two_columns(1));
                _mm512_storeu_pd(to.add(column * to_stride), _mm512_unpacklo_pd(a, b));
                _mm512_storeu_pd(to.add((column + 1) * to_stride), _mm512_unpackhi_pd(a, b));
            }
        }
    }
}
