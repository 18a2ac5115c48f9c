// Convolutions as matrix products. The terms of a product are divided into slices of `slice` terms,
// whose sums are written one after another. `blockIdx.y` is slice * groups + group.
#include "convolution.cuh"

// Writes a tile whose rows are channels, with a distance of `stride` elements. `at` has the offsets
// of the thread's columns in a channel, of which `there` exist.
template <u32 SIDE>
__device__ __forceinline__ void store_image(const Sums<SIDE>& sums, float* to, u32 row0, u32 rows,
                                            const u32 (&at)[4], int there, u32 stride, bool vectors) {
#pragma unroll
    for (int i = 0; i < STORED_ROWS<SIDE>; i++) {
        const u32 row = row0 + stored_row<SIDE>() + i;
        if (row < rows) {
            if (vectors && there > 0) {
                const float(&four)[4] = sums.at[i];
                *(float4*)(to + row * stride + at[0]) = make_float4(four[0], four[1], four[2], four[3]);
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (j < there) to[row * stride + at[j]] = sums.at[i][j];
            }
        }
    }
}

// A block computes a tile of (filters of a group) x (windows of all samples). `bias` is null if
// there are no biases or several slices.
template <u32 SIDE>
__device__ __forceinline__ void forward(u32 samples, const Geometry& g, u32 slice, const float* x,
                                        const float* weight, const float* bias, float* y) {
    __shared__ Slabs<SIDE> slabs;
    const u32 columns = samples * g.windows(), terms = g.channels * g.taps();
    const u32 group = blockIdx.y % g.groups, part = blockIdx.y / g.groups;
    const u32 row = blockIdx.x / tiles<SIDE>(columns) * SIDE;
    const u32 column = blockIdx.x % tiles<SIDE>(columns) * SIDE;
    const u32 from = part * slice, to = min(from + slice, terms);
    Sums<SIDE> sums =
        product(slabs, from, to, Rows<SIDE>(weight + group * g.filters * terms, row, g.filters, terms),
                Windows<SIDE>(g, x + group * g.channels * g.image(), column, columns, from));
    if (bias) {
#pragma unroll
        for (int i = 0; i < STORED_ROWS<SIDE>; i++) {
            const u32 filter = row + stored_row<SIDE>() + i;
            const float term = filter < g.filters ? bias[group * g.filters + filter] : 0;
#pragma unroll
            for (int j = 0; j < 4; j++) sums.at[i][j] += term;
        }
    }
    u32 at[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const u32 window = column + tile_column<SIDE>() + j;
        at[j] = window / g.windows() * g.groups * g.filters * g.windows() + window % g.windows();
    }
    y += ((u64)part * samples * g.groups + group) * g.filters * g.windows();
    store_image(sums, y, row, g.filters, at, (int)columns - (int)(column + tile_column<SIDE>()), g.windows(),
                g.windows() % 4 == 0 && is_aligned(y));
}

// A block computes a tile of (channels of a group) x (pixels of a phase of all samples). The terms
// of each phase are divided into `slices` slices. `blockIdx.y` is (slice * phases + phase) * groups
// + group.
template <u32 SIDE>
__device__ __forceinline__ void input_gradient(u32 samples, const Geometry& g, u32 slices, const float* dy,
                                               const float* weight, float* dx) {
    __shared__ Slabs<SIDE> slabs;
    u32 index = blockIdx.y;
    const u32 group = index % g.groups;
    index /= g.groups;
    const Residue columns(index % g.stride_width, g.kernel_width, g.stride_width, g.padding_width, g.width);
    index /= g.stride_width;
    const Residue rows(index % g.stride_height, g.kernel_height, g.stride_height, g.padding_height, g.height);
    const u32 part = index / g.stride_height;
    // Phases that have fewer pixels than others do not need all blocks.
    const u32 most = samples * ((g.height + g.stride_height - 1) / g.stride_height) *
                     ((g.width + g.stride_width - 1) / g.stride_width);
    const u32 pixels = rows.count * columns.count, count = samples * pixels;
    const u32 row = blockIdx.x / tiles<SIDE>(most) * SIDE;
    const u32 column = blockIdx.x % tiles<SIDE>(most) * SIDE;
    if (column >= count) return;
    const u32 taps = rows.taps * columns.taps, terms = g.filters * taps;
    const u32 slice = ((terms + slices - 1) / slices + TERMS<SIDE> - 1) / TERMS<SIDE> * TERMS<SIDE>;
    const u32 from = part * slice, to = min(from + slice, terms);
    Sums<SIDE> sums = {};
    weight += group * g.filters * g.channels * g.taps();
    dy += group * g.filters * g.windows();
    // The gradient of pixels that no tap reads is zero.
    if (from < to)
        sums = product(slabs, from, to, Channels<SIDE>(g, weight, rows, columns, row, from),
                       Pixels<SIDE>(g, dy, rows, columns, column, count, from));
    u32 at[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const u32 pixel = column + tile_column<SIDE>() + j, place = pixel % pixels;
        const u32 y = rows.first + place / columns.count * g.stride_height;
        const u32 x = columns.first + place % columns.count * g.stride_width;
        at[j] = pixel / pixels * g.groups * g.channels * g.image() + y * g.width + x;
    }
    dx += ((u64)part * samples * g.groups + group) * g.channels * g.image();
    const bool contiguous = g.stride_height * g.stride_width == 1;
    store_image(sums, dx, row, g.channels, at, (int)count - (int)(column + tile_column<SIDE>()), g.image(),
                contiguous & (g.image() % 4 == 0) & is_aligned(dx));
}

// A block computes a tile of (filters of a group) x (weights of a filter).
template <u32 SIDE>
__device__ __forceinline__ void weight_gradient(u32 samples, const Geometry& g, u32 slice, const float* x,
                                                const float* dy, float* dw) {
    __shared__ Slabs<SIDE> slabs;
    const u32 weights = g.channels * g.taps(), group = blockIdx.y % g.groups;
    const u32 row = blockIdx.x / tiles<SIDE>(weights) * SIDE;
    const u32 column = blockIdx.x % tiles<SIDE>(weights) * SIDE;
    const u32 from = blockIdx.y / g.groups * slice, to = min(from + slice, samples * g.windows());
    const Sums<SIDE> sums =
        product(slabs, from, to, Filters<SIDE>(g, dy + group * g.filters * g.windows(), row, from),
                Taps<SIDE>(g, x + group * g.channels * g.image(), column, weights, from));
    dw += (u64)blockIdx.y * g.filters * weights;
    store_tile<SIDE>(sums.at, dw, row, g.filters, column, weights, weights);
}

KERNEL convolution_forward(u32 samples, const Geometry g, u32 slice, const float* __restrict__ x,
                           const float* __restrict__ weight, const float* __restrict__ bias,
                           float* __restrict__ y) {
    forward<64>(samples, g, slice, x, weight, bias, y);
}

KERNEL convolution_input_gradient(u32 samples, const Geometry g, u32 slices,
                                  const float* __restrict__ dy, const float* __restrict__ weight,
                                  float* __restrict__ dx) {
    input_gradient<64>(samples, g, slices, dy, weight, dx);
}

KERNEL convolution_weight_gradient(u32 samples, const Geometry g, u32 slice,
                                   const float* __restrict__ x, const float* __restrict__ dy,
                                   float* __restrict__ dw) {
    weight_gradient<64>(samples, g, slice, x, dy, dw);
}

KERNEL convolution_forward_small(u32 samples, const Geometry g, u32 slice, const float* __restrict__ x,
                                 const float* __restrict__ weight, const float* __restrict__ bias,
                                 float* __restrict__ y) {
    forward<32>(samples, g, slice, x, weight, bias, y);
}

KERNEL convolution_input_gradient_small(u32 samples, const Geometry g, u32 slices,
                                        const float* __restrict__ dy, const float* __restrict__ weight,
                                        float* __restrict__ dx) {
    input_gradient<32>(samples, g, slices, dy, weight, dx);
}

KERNEL convolution_weight_gradient_small(u32 samples, const Geometry g, u32 slice,
                                         const float* __restrict__ x, const float* __restrict__ dy,
                                         float* __restrict__ dw) {
    weight_gradient<32>(samples, g, slice, x, dy, dw);
}

// Sum of each channel over all samples and positions. One block per channel and slice of `slice`
// terms.
KERNEL convolution_bias_gradient(u32 samples, u32 channels, u32 positions, u32 slice,
                                 const float* __restrict__ dy, float* __restrict__ db) {
    __shared__ double scratch[WARPS];
    const u32 channel = blockIdx.x, from = blockIdx.y * slice;
    const u32 to = min(from + slice, samples * positions);
    double sum = 0;
    ROLLED for (u32 i = from + threadIdx.x; i < to; i += THREADS)
        sum += dy[(i / positions * channels + channel) * positions + i % positions];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) db[blockIdx.y * channels + channel] = (float)sum;
}
