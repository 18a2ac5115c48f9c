// Sums, copies and permutations of elements.
#include "basics.cuh"

KERNEL fill_zeros(u32 elements, float* to) {
    const u32 i = ELEMENT;
    if (i < elements) to[i] = 0;
}

// Adds up to four terms in order. Absent terms are null. `to` may be one of the terms.
KERNEL sum_terms(u32 elements, const float* a, const float* b, const float* c, const float* d, float* to) {
    const u32 i = ELEMENT;
    if (i >= elements) return;
    float sum = a[i];
    if (b) sum += b[i];
    if (c) sum += c[i];
    if (d) sum += d[i];
    to[i] = sum;
}

// Multiplies in place.
KERNEL scale(u32 elements, float factor, float* at) {
    const u32 i = ELEMENT;
    if (i < elements) at[i] *= factor;
}

// Copies rows of `elements` elements, which are `from_stride` and `to_stride` apart.
KERNEL copy_rows(u32 rows, u32 elements, u32 from_stride, u32 to_stride, const float* __restrict__ from,
                 float* __restrict__ to) {
    const u32 i = ELEMENT;
    if (i < rows * elements)
        to[i / elements * to_stride + i % elements] = from[i / elements * from_stride + i % elements];
}

// Permutes the elements of each row: element `i` is element `sources[i]` of the input.
KERNEL reorder_rows(u32 rows, u32 elements, const u32* __restrict__ sources, const float* __restrict__ from,
                    float* __restrict__ to) {
    const u32 i = ELEMENT;
    if (i < rows * elements) to[i] = from[i / elements * elements + sources[i % elements]];
}
