// Elements of a chain of elementwise operations: a sum, then a rectifier, then copies. `At` is the
// place of a thread's elements: it loads and stores `WIDTH` elements of an operand.
#pragma once
#include "basics.cuh"

// Place of one element.
struct Element {
    static constexpr u32 WIDTH = 1;
    u32 index;

    __device__ __forceinline__ void load(const real* from, float (&to)[WIDTH]) const { to[0] = from[index]; }
    __device__ __forceinline__ void store(const float (&from)[WIDTH], real* to) const { to[index] = from[0]; }
};

// Replaces a negative value by 0. NaN stays NaN.
__device__ __forceinline__ float rectified(float value) { return value < 0 ? 0 : value; }

// Adds the elements of an operand unless it is null.
template <class At>
__device__ __forceinline__ void add(const At& at, const real* term, float (&sums)[At::WIDTH]) {
    if (!term) return;
    float values[At::WIDTH];
    at.load(term, values);
#pragma unroll
    for (int j = 0; j < At::WIDTH; j++) sums[j] += values[j];
}

// Adds up to four terms in order. With `gate`, the sum is 0 where it is not positive. Absent
// operands are null.
template <class At>
__device__ __forceinline__ void gated_sum(const At& at, const real* a, const real* b, const real* c,
                                          const real* d, const real* gate, float (&sums)[At::WIDTH]) {
    at.load(a, sums);
    add(at, b, sums);
    add(at, c, sums);
    add(at, d, sums);
    if (!gate) return;
    float gates[At::WIDTH];
    at.load(gate, gates);
#pragma unroll
    for (int j = 0; j < At::WIDTH; j++) sums[j] = gates[j] > 0 ? sums[j] : 0;
}

// Writes values to up to four operands. Absent operands are null.
template <class At>
__device__ __forceinline__ void put_copies(const At& at, const float (&values)[At::WIDTH], real* to,
                                           real* to_b, real* to_c, real* to_d) {
    if (to) at.store(values, to);
    if (to_b) at.store(values, to_b);
    if (to_c) at.store(values, to_c);
    if (to_d) at.store(values, to_d);
}
