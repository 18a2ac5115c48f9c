// Elements of a chain of elementwise operations: a sum, then a rectifier, then copies.
#pragma once
#include "basics.cuh"

// Replaces a negative value by 0. NaN stays NaN.
__device__ __forceinline__ float rectified(float value) { return value < 0 ? 0 : value; }

// Adds up to four terms in order. With `gate`, returns 0 where it is not positive. Absent operands
// are null.
__device__ __forceinline__ float gated_sum(u32 i, const real* a, const real* b, const real* c, const real* d,
                                           const real* gate) {
    float value = a[i];
    if (b) value += b[i];
    if (c) value += c[i];
    if (d) value += d[i];
    return !gate || gate[i] > 0 ? value : 0;
}

// Writes a value to up to four operands. Absent operands are null.
__device__ __forceinline__ void put_copies(u32 i, real value, real* to, real* to_b, real* to_c, real* to_d) {
    if (to) to[i] = value;
    if (to_b) to_b[i] = value;
    if (to_c) to_c[i] = value;
    if (to_d) to_d[i] = value;
}
