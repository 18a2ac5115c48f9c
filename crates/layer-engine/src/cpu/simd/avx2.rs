//! AVX2 with fused multiply-add: 16 registers of 32 bytes.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m256, __m256d, __m256i, _mm_loadu_ps, _mm256_add_pd, _mm256_add_ps, _mm256_castpd_ps, _mm256_castps_pd,
    _mm256_castps128_ps256, _mm256_cmpgt_epi32, _mm256_cmpgt_epi64, _mm256_fmadd_pd, _mm256_fmadd_ps,
    _mm256_insertf128_ps, _mm256_loadu_pd, _mm256_loadu_ps, _mm256_maskload_pd, _mm256_maskload_ps,
    _mm256_maskstore_pd, _mm256_maskstore_ps, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_set1_pd,
    _mm256_set1_ps, _mm256_setr_epi32, _mm256_setr_epi64x, _mm256_storeu_pd, _mm256_storeu_ps,
    _mm256_unpackhi_pd, _mm256_unpackhi_ps, _mm256_unpacklo_pd, _mm256_unpacklo_ps,
};

use super::kernels::kernels;
use super::vector::Vector;

kernels!(SINGLE, f32, __m256, "AVX2", 4, "avx2,fma");
kernels!(DOUBLE, f64, __m256d, "AVX2", 4, "avx2,fma");

/// Returns a mask with all bits of the first `count` 4-byte lanes set.
#[inline(always)]
#[allow(clippy::cast_possible_wrap, reason = "a lane's number")]
unsafe fn mask_of_4_bytes(count: usize) -> __m256i {
    // SAFETY: the caller guarantees that the processor supports the instruction set.
    unsafe { _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
}

/// Returns a mask with all bits of the first `count` 8-byte lanes set.
#[inline(always)]
#[allow(clippy::cast_possible_wrap, reason = "a lane's number")]
unsafe fn mask_of_8_bytes(count: usize) -> __m256i {
    // SAFETY: the caller guarantees that the processor supports the instruction set.
    unsafe { _mm256_cmpgt_epi64(_mm256_set1_epi64x(count as i64), _mm256_setr_epi64x(0, 1, 2, 3)) }
}

impl Vector for __m256 {
    type Scalar = f32;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: by the contract of the trait the processor supports the instruction set, as in
        // all methods below.
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller guarantees 8 elements.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_part(from: *const f32, count: usize) -> Self {
        // SAFETY: the caller guarantees `count` elements; masked lanes are not read.
        unsafe { _mm256_maskload_ps(from, mask_of_4_bytes(count)) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller guarantees 8 elements.
        unsafe { _mm256_storeu_ps(to, self) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, count: usize) {
        // SAFETY: the caller guarantees `count` elements; masked lanes are not written.
        unsafe { _mm256_maskstore_ps(to, mask_of_4_bytes(count), self) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: contract of the trait.
        unsafe { _mm256_add_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: contract of the trait.
        unsafe { _mm256_fmadd_ps(self, factor, addend) }
    }

    #[inline(always)]
    unsafe fn transpose(from: *const f32, stride: usize, to: *mut f32, to_stride: usize) {
        // SAFETY: the caller guarantees both blocks of 8 x 8 elements.
        unsafe {
            for column in (0..8).step_by(4) {
                // Each half of a register holds four columns of a different row, so that only
                // elements within halves move.
                let four_columns = |row: usize| {
                    let half = |row: usize| _mm_loadu_ps(from.add(row * stride + column));
                    _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(half(row)), half(row + 4))
                };
                let [a, b, c, d] = [four_columns(0), four_columns(1), four_columns(2), four_columns(3)];
                let low = [_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d)].map(|x| _mm256_castps_pd(x));
                let high = [_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d)].map(|x| _mm256_castps_pd(x));
                let columns = [
                    _mm256_unpacklo_pd(low[0], low[1]),
                    _mm256_unpackhi_pd(low[0], low[1]),
                    _mm256_unpacklo_pd(high[0], high[1]),
                    _mm256_unpackhi_pd(high[0], high[1]),
                ];
                for (index, values) in columns.into_iter().enumerate() {
                    _mm256_storeu_ps(to.add((column + index) * to_stride), _mm256_castpd_ps(values));
                }
            }
        }
    }
}

impl Vector for __m256d {
    type Scalar = f64;
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn splat(value: f64) -> Self {
        // SAFETY: contract of the trait.
        unsafe { _mm256_set1_pd(value) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f64) -> Self {
        // SAFETY: the caller guarantees 4 elements.
        unsafe { _mm256_loadu_pd(from) }
    }

    #[inline(always)]
    unsafe fn load_part(from: *const f64, count: usize) -> Self {
        // SAFETY: the caller guarantees `count` elements; masked lanes are not read.
        unsafe { _mm256_maskload_pd(from, mask_of_8_bytes(count)) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f64) {
        // SAFETY: the caller guarantees 4 elements.
        unsafe { _mm256_storeu_pd(to, self) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut f64, count: usize) {
        // SAFETY: the caller guarantees `count` elements; masked lanes are not written.
        unsafe { _mm256_maskstore_pd(to, mask_of_8_bytes(count), self) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: contract of the trait.
        unsafe { _mm256_add_pd(self, other) }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: contract of the trait.
        unsafe { _mm256_fmadd_pd(self, factor, addend) }
    }
}
