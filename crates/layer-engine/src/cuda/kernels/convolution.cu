// Convolutions as matrix products. The terms of a product are divided into slices of `slice` terms,
// whose sums are written one after another. `blockIdx.y` is slice * groups + group.
#include "channels.cuh"
#include "convolution.cuh"

// Writes a tile whose rows are channels, with a distance of `stride` elements. `at` has the offsets
// of the thread's columns in a channel, of which `there` exist.
template <u32 SIDE, class T>
__device__ __forceinline__ void store_image(const Sums<SIDE>& sums, T* to, u32 row0, u32 rows,
                                            const u32 (&at)[4], int there, u32 stride, bool vectors) {
#pragma unroll
    for (int i = 0; i < STORED_ROWS<SIDE>; i++) {
        const u32 row = row0 + stored_row<SIDE>() + i;
        if (row < rows) {
            if (vectors && there > 0) {
                const float(&four)[4] = sums.at[i];
                store_vector(to + row * stride + at[0], make_float4(four[0], four[1], four[2], four[3]));
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (j < there) to[row * stride + at[j]] = sums.at[i][j];
            }
        }
    }
}

// The same from element `offset` of images on. Whole products are operands; slices of products are
// in single precision. Columns are `contiguous` if four of them are neighbors.
template <u32 SIDE>
__device__ __forceinline__ void store_images(const Sums<SIDE>& sums, void* to, bool is_whole, u64 offset,
                                             u32 row0, u32 rows, const u32 (&at)[4], int there, u32 stride,
                                             bool contiguous) {
    const bool vectors = contiguous & (stride % 4 == 0);
    if (sizeof(real) == sizeof(float) || !is_whole) {
        float* slice = (float*)to + offset;
        store_image(sums, slice, row0, rows, at, there, stride, vectors & is_aligned(slice));
    } else {
        real* image = (real*)to + offset;
        store_image(sums, image, row0, rows, at, there, stride, vectors & is_aligned(image));
    }
}

// A block computes a tile of (filters of a group) x (windows of all samples). `bias` is null if
// there are no biases or several slices.
template <u32 SIDE>
__device__ __forceinline__ void forward(u32 samples, const Geometry& g, u32 slice, const real* x,
                                        const real* weight, const real* bias, void* y) {
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
            const float term = filter < g.filters ? (float)bias[group * g.filters + filter] : 0;
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
    const u64 offset = ((u64)part * samples * g.groups + group) * g.filters * g.windows();
    const int there = (int)columns - (int)(column + tile_column<SIDE>());
    store_images(sums, y, gridDim.y == g.groups, offset, row, g.filters, at, there, g.windows(), true);
}

// A block computes a tile of (channels of a group) x (pixels of a phase of all samples). The terms
// of each phase are divided into `slices` slices. `blockIdx.y` is (slice * phases + phase) * groups
// + group.
template <u32 SIDE>
__device__ __forceinline__ void input_gradient(u32 samples, const Geometry& g, u32 slices, const real* dy,
                                               const real* weight, void* dx) {
    __shared__ Slabs<SIDE> slabs;
    u32 index = blockIdx.y;
    const u32 group = index % g.groups;
    index /= g.groups;
    const Residue columns(index % g.stride_width, g.kernel_width, g.stride_width, g.padding_width,
                          g.dilation_width, g.width);
    index /= g.stride_width;
    const Residue rows(index % g.stride_height, g.kernel_height, g.stride_height, g.padding_height,
                       g.dilation_height, g.height);
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
    const bool contiguous = g.stride_height * g.stride_width == 1;
    const u64 offset = ((u64)part * samples * g.groups + group) * g.channels * g.image();
    const int there = (int)count - (int)(column + tile_column<SIDE>());
    store_images(sums, dx, slices == 1, offset, row, g.channels, at, there, g.image(), contiguous);
}

// A block computes a tile of (filters of a group) x (weights of a filter).
template <u32 SIDE>
__device__ __forceinline__ void weight_gradient(u32 samples, const Geometry& g, u32 slice, const real* x,
                                                const real* dy, float* dw) {
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

KERNEL convolution_forward(u32 samples, const Geometry g, u32 slice, const real* __restrict__ x,
                           const real* __restrict__ weight, const real* __restrict__ bias,
                           void* __restrict__ y) {
    forward<64>(samples, g, slice, x, weight, bias, y);
}

KERNEL convolution_input_gradient(u32 samples, const Geometry g, u32 slices,
                                  const real* __restrict__ dy, const real* __restrict__ weight,
                                  void* __restrict__ dx) {
    input_gradient<64>(samples, g, slices, dy, weight, dx);
}

KERNEL convolution_weight_gradient(u32 samples, const Geometry g, u32 slice,
                                   const real* __restrict__ x, const real* __restrict__ dy,
                                   float* __restrict__ dw) {
    weight_gradient<64>(samples, g, slice, x, dy, dw);
}

KERNEL convolution_forward_small(u32 samples, const Geometry g, u32 slice, const real* __restrict__ x,
                                 const real* __restrict__ weight, const real* __restrict__ bias,
                                 void* __restrict__ y) {
    forward<32>(samples, g, slice, x, weight, bias, y);
}

KERNEL convolution_input_gradient_small(u32 samples, const Geometry g, u32 slices,
                                        const real* __restrict__ dy, const real* __restrict__ weight,
                                        void* __restrict__ dx) {
    input_gradient<32>(samples, g, slices, dy, weight, dx);
}

KERNEL convolution_weight_gradient_small(u32 samples, const Geometry g, u32 slice,
                                         const real* __restrict__ x, const real* __restrict__ dy,
                                         float* __restrict__ dw) {
    weight_gradient<32>(samples, g, slice, x, dy, dw);
}

// Sum of each channel over all samples and positions. There is a block for each `Walk::CHANNELS`
// channels and each slice of `slice` terms.
template <class Walk>
__device__ __forceinline__ void bias_gradient(u32 samples, u32 channels, u32 positions, u32 slice,
                                              const real* __restrict__ dy, double* parts, u32* counters,
                                              float* __restrict__ db) {
    const u32 from = blockIdx.y * slice, to = min(from + slice, samples * positions);
    Walk at(channels, positions, from);
    double values[1][Walk::WIDTH] = {}, sum[1];
    ROLLED for (u32 i = from + Walk::pixel(); i < to; i += Walk::STEP, at.advance()) {
        float loaded[Walk::WIDTH];
        at.load(dy, loaded);
#pragma unroll
        for (int j = 0; j < Walk::WIDTH; j++) values[0][j] += loaded[j];
    }
    Walk::sum_pixels(values, sum);
    if (sum_slices<Walk>(channels, sum, parts, counters) && has_own_channel<Walk>(channels))
        db[own_channel<Walk>()] = (float)sum[0];
}

KERNEL convolution_bias_gradient(u32 samples, u32 channels, u32 positions, u32 slice,
                                 const real* __restrict__ dy, double* parts, u32* counters,
                                 float* __restrict__ db) {
    bias_gradient<ChannelsFirst>(samples, channels, positions, slice, dy, parts, counters, db);
}

KERNEL convolution_bias_gradient_last(u32 samples, u32 channels, u32 positions, u32 slice,
                                      const real* __restrict__ dy, double* parts, u32* counters,
                                      float* __restrict__ db) {
    bias_gradient<ChannelsLast>(samples, channels, positions, slice, dy, parts, counters, db);
}
