// Sums, copies and permutations of elements.
#include "chain.cuh"

KERNEL fill_zeros(u32 elements, real* to) {
    const u32 i = ELEMENT;
    if (i < elements) to[i] = 0;
}

// Adds up to four terms in order. Then, with `rectifies`, replaces negative values by 0; with
// `gate`, values by 0 where it is not positive. Writes the result to up to four operands. Absent
// operands are null. An operand that is written may be one that is read.
KERNEL sum_terms(u32 elements, u32 rectifies, const real* a, const real* b, const real* c, const real* d,
                 const real* gate, real* to, real* to_b, real* to_c, real* to_d) {
    const u32 i = ELEMENT;
    if (i >= elements) return;
    float sum[1];
    gated_sum(Element{i}, a, b, c, d, gate, sum);
    if (rectifies) sum[0] = rectified(sum[0]);
    put_copies(Element{i}, sum, to, to_b, to_c, to_d);
}

// Adds up to four terms in order to the sums `before`, unless they are null. Writes the sums to
// `to`, or to `after` if `to` is null. Absent terms are null. The operands that are written may be
// ones that are read.
KERNEL add_terms(u32 elements, const float* before, const real* a, const real* b, const real* c,
                 const real* d, float* after, real* to) {
    const u32 i = ELEMENT;
    if (i >= elements) return;
    float sum = a[i];
    if (before) sum = before[i] + sum;
    if (b) sum += b[i];
    if (c) sum += c[i];
    if (d) sum += d[i];
    if (to) to[i] = sum;
    else after[i] = sum;
}

// Multiplies in place.
KERNEL scale(u32 elements, float factor, real* at) {
    const u32 i = ELEMENT;
    if (i < elements) at[i] = at[i] * factor;
}

// Adds the bias of each channel, of which each has `positions` contiguous elements.
KERNEL add_bias(u32 elements, u32 positions, u32 channels, const real* __restrict__ bias,
                real* __restrict__ at) {
    const u32 i = ELEMENT;
    if (i < elements) at[i] = at[i] + bias[i / positions % channels];
}

#ifdef BF16
// Converts to single precision.
KERNEL widen(u32 elements, const real* __restrict__ from, float* __restrict__ to) {
    const u32 i = ELEMENT;
    if (i < elements) to[i] = from[i];
}
#endif

// Copies rows of `elements` elements, which are `from_stride` and `to_stride` apart.
KERNEL copy_rows(u32 rows, u32 elements, u32 from_stride, u32 to_stride, const real* __restrict__ from,
                 real* __restrict__ to) {
    const u32 i = ELEMENT;
    if (i < rows * elements)
        to[i / elements * to_stride + i % elements] = from[i / elements * from_stride + i % elements];
}

// Permutes the elements of each row: element `i` is element `sources[i]` of the input.
KERNEL reorder_rows(u32 rows, u32 elements, const u32* __restrict__ sources, const real* __restrict__ from,
                    real* __restrict__ to) {
    const u32 i = ELEMENT;
    if (i < rows * elements) to[i] = from[i / elements * elements + sources[i % elements]];
}

// Places images in others: pixel (0, 0) of the source is pixel (`top`, `left`) of the result, which
// is zero where the source has no pixel. Places are in wrapping arithmetic. The `channels` channels
// of an image are adjacent at each pixel.
KERNEL place_images(u32 elements, u32 channels, u32 from_height, u32 from_width, u32 to_height,
                    u32 to_width, u32 top, u32 left, const real* __restrict__ from,
                    real* __restrict__ to) {
    const u32 i = ELEMENT;
    if (i >= elements) return;
    const u32 pixel = i / channels, row = pixel / to_width;
    const u32 h = row % to_height - top, w = pixel % to_width - left;
    const u32 source = (row / to_height * from_height + h) * from_width + w;
    to[i] = h < from_height && w < from_width ? (float)from[source * channels + i % channels] : 0;
}
