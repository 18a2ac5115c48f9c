// Convolutions as matrix products without a materialised im2col matrix (implicit GEMM). The terms
// of a product are divided into slices of `slice` terms, whose sums are written one after another.
// `blockIdx.y` is slice * groups + group.
#include "tile.cuh"

struct Geometry {
    u32 groups;
    // Number of input and output channels of a group.
    u32 channels, filters;
    u32 height, width, out_height, out_width;
    u32 kernel_height, kernel_width, stride_height, stride_width, padding_height, padding_width;

    __device__ __forceinline__ u32 taps() const { return kernel_height * kernel_width; }
    __device__ __forceinline__ u32 image() const { return height * width; }
    __device__ __forceinline__ u32 windows() const { return out_height * out_width; }
    // Whether each window is one pixel and windows have the layout of pixels.
    __device__ __forceinline__ bool is_pointwise() const {
        return taps() == 1 && stride_height == 1 && stride_width == 1 && padding_height == 0 &&
               padding_width == 0;
    }
};

// Factor with a row for each window of each sample and a term for each weight of a filter: the
// elements of a group's channels that the windows read.
struct Windows {
    const Geometry& g;
    const float* image;
    u32 first, count;
    bool vectors;
    // For each of the thread's four windows: offset of its sample, first row and first column.
    u32 sample[4];
    int top[4], left[4];

    __device__ __forceinline__ Windows(const Geometry& g, const float* image, u32 first, u32 count)
        : g(g), image(image), first(first), count(count),
          vectors(g.is_pointwise() && g.windows() % 4 == 0 && is_aligned(image)) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const u32 window = first + SLAB_ROWS + j, place = window % g.windows();
            sample[j] = window / g.windows() * g.groups * g.channels * g.image();
            top[j] = (int)(place / g.out_width * g.stride_height) - (int)g.padding_height;
            left[j] = (int)(place % g.out_width * g.stride_width) - (int)g.padding_width;
        }
    }

    __device__ __forceinline__ void fill(Slab& slab, u32 start, u32 end) const {
        const u32 term = start + SLAB_TERM, window = first + SLAB_ROWS;
        float four[4] = {};
        if (term < end && window < count) {
            if (vectors) {
                const float4 pixels =
                    *(const float4*)(image + sample[0] + term * g.image() + top[0] * g.width + left[0]);
                four[0] = pixels.x, four[1] = pixels.y, four[2] = pixels.z, four[3] = pixels.w;
            } else {
                const u32 channel = term / g.taps(), tap = term % g.taps();
                const int down = tap / g.kernel_width, right = tap % g.kernel_width;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const u32 y = top[j] + down, x = left[j] + right;
                    if (window + j < count && y < g.height && x < g.width)
                        four[j] = image[sample[j] + (channel * g.height + y) * g.width + x];
                }
            }
        }
        put_rows(slab, make_float4(four[0], four[1], four[2], four[3]));
    }
};

// The same with rows and terms exchanged: a row for each weight, a term for each window.
struct Taps {
    const Geometry& g;
    const float* image;
    bool is_there;
    // Offset of the row's channel in the image, and position in the kernel.
    u32 channel;
    int down, right;

    __device__ __forceinline__ Taps(const Geometry& g, const float* image, u32 first, u32 count)
        : g(g), image(image) {
        const u32 weight = first + SLAB_ROW;
        is_there = weight < count;
        channel = weight / g.taps() * g.image();
        down = (int)(weight % g.taps() / g.kernel_width) - (int)g.padding_height;
        right = (int)(weight % g.kernel_width) - (int)g.padding_width;
    }

    __device__ __forceinline__ void fill(Slab& slab, u32 start, u32 end) const {
        float four[4] = {};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const u32 window = start + SLAB_TERMS + j;
            if (is_there && window < end) {
                const u32 place = window % g.windows();
                const u32 y = (int)(place / g.out_width * g.stride_height) + down;
                const u32 x = (int)(place % g.out_width * g.stride_width) + right;
                const u32 sample = window / g.windows() * g.groups * g.channels * g.image();
                if (y < g.height && x < g.width) four[j] = image[sample + channel + y * g.width + x];
            }
        }
        put_terms(slab, make_float4(four[0], four[1], four[2], four[3]));
    }
};

// Factor with a row for each pixel of each sample and a term for each tap of each filter: the
// output gradient of the window whose tap reads the pixel.
struct Pixels {
    const Geometry& g;
    const float* gradient;
    u32 first, count;
    u32 sample[4];
    int bottom[4], right[4];

    __device__ __forceinline__ Pixels(const Geometry& g, const float* gradient, u32 first, u32 count)
        : g(g), gradient(gradient), first(first), count(count) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const u32 pixel = first + SLAB_ROWS + j, place = pixel % g.image();
            sample[j] = pixel / g.image() * g.groups * g.filters * g.windows();
            bottom[j] = place / g.width + g.padding_height;
            right[j] = place % g.width + g.padding_width;
        }
    }

    __device__ __forceinline__ void fill(Slab& slab, u32 start, u32 end) const {
        const u32 term = start + SLAB_TERM;
        float four[4] = {};
        if (term < end) {
            const u32 filter = term / g.taps(), tap = term % g.taps();
            const int down = tap / g.kernel_width, across = tap % g.kernel_width;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int y = bottom[j] - down, x = right[j] - across;
                if (first + SLAB_ROWS + j < count && y >= 0 && x >= 0 && y % g.stride_height == 0 &&
                    x % g.stride_width == 0) {
                    const u32 row = y / g.stride_height, column = x / g.stride_width;
                    if (row < g.out_height && column < g.out_width)
                        four[j] = gradient[sample[j] + (filter * g.out_height + row) * g.out_width + column];
                }
            }
        }
        put_rows(slab, make_float4(four[0], four[1], four[2], four[3]));
    }
};

// Factor with a row for each channel and a term for each tap of each filter: the weights.
struct Channels {
    const Geometry& g;
    const float* weight;
    u32 channel;

    __device__ __forceinline__ Channels(const Geometry& g, const float* weight, u32 first)
        : g(g), weight(weight), channel(first + SLAB_ROW) {}

    __device__ __forceinline__ void fill(Slab& slab, u32 start, u32 end) const {
        float four[4] = {};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const u32 term = start + SLAB_TERMS + j;
            if (channel < g.channels && term < end)
                four[j] = weight[(term / g.taps() * g.channels + channel) * g.taps() + term % g.taps()];
        }
        put_terms(slab, make_float4(four[0], four[1], four[2], four[3]));
    }
};

// Factor with a row for each filter and a term for each window of each sample: the output gradient.
struct Filters {
    const Geometry& g;
    const float* gradient;
    u32 filter;
    bool vectors;

    __device__ __forceinline__ Filters(const Geometry& g, const float* gradient, u32 first)
        : g(g), gradient(gradient), filter(first + SLAB_ROW),
          vectors(g.windows() % 4 == 0 && is_aligned(gradient)) {}

    __device__ __forceinline__ float at(u32 window) const {
        const u32 sample = window / g.windows() * g.groups * g.filters;
        return gradient[(sample + filter) * g.windows() + window % g.windows()];
    }

    __device__ __forceinline__ void fill(Slab& slab, u32 start, u32 end) const {
        const u32 window = start + SLAB_TERMS;
        float4 four = make_float4(0, 0, 0, 0);
        if (filter < g.filters && window < end) {
            if (vectors) {
                const u32 sample = window / g.windows() * g.groups * g.filters;
                four = *(const float4*)(gradient + (sample + filter) * g.windows() + window % g.windows());
            } else {
                four.x = at(window);
                if (window + 1 < end) four.y = at(window + 1);
                if (window + 2 < end) four.z = at(window + 2);
                if (window + 3 < end) four.w = at(window + 3);
            }
        }
        put_terms(slab, four);
    }
};

// Writes a tile whose columns are positions of samples and whose rows are channels of a group.
// `channels` is the number of channels of all groups.
__device__ __forceinline__ void store_image(const float (&sums)[4][4], float* to, u32 row0, u32 rows,
                                            u32 column0, u32 columns, u32 positions, u32 channels) {
    const bool vectors = positions % 4 == 0 && is_aligned(to);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 row = row0 + TILE_ROW + i, column = column0 + TILE_COLUMN;
        if (row < rows && column < columns) {
            if (vectors) {
                float* at = to + (column / positions * channels + row) * positions + column % positions;
                *(float4*)at = make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (column + j < columns)
                        to[((column + j) / positions * channels + row) * positions +
                           (column + j) % positions] = sums[i][j];
            }
        }
    }
}

// A block computes a tile of (filters of a group) x (windows of all samples). `bias` is null if
// there are no biases or several slices.
KERNEL convolution_forward(u32 samples, const Geometry g, u32 slice, const float* __restrict__ x,
                           const float* __restrict__ weight, const float* __restrict__ bias,
                           float* __restrict__ y) {
    __shared__ Slabs slabs;
    const u32 columns = samples * g.windows(), terms = g.channels * g.taps();
    const u32 group = blockIdx.y % g.groups, part = blockIdx.y / g.groups;
    const u32 row = blockIdx.x / tiles(columns) * TILE, column = blockIdx.x % tiles(columns) * TILE;
    const u32 from = part * slice, to = min(from + slice, terms);
    float sums[4][4] = {};
    multiply(slabs, from, to, Rows(weight + group * g.filters * terms, row, g.filters, terms),
             Windows(g, x + group * g.channels * g.image(), column, columns), sums);
    if (bias) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u32 filter = row + TILE_ROW + i;
            const float term = filter < g.filters ? bias[group * g.filters + filter] : 0;
#pragma unroll
            for (int j = 0; j < 4; j++) sums[i][j] += term;
        }
    }
    y += (u64)part * samples * g.groups * g.filters * g.windows() + group * g.filters * g.windows();
    store_image(sums, y, row, g.filters, column, columns, g.windows(), g.groups * g.filters);
}

// A block computes a tile of (channels of a group) x (pixels of all samples).
KERNEL convolution_input_gradient(u32 samples, const Geometry g, u32 slice, const float* __restrict__ dy,
                                  const float* __restrict__ weight, float* __restrict__ dx) {
    __shared__ Slabs slabs;
    const u32 columns = samples * g.image(), terms = g.filters * g.taps();
    const u32 group = blockIdx.y % g.groups, part = blockIdx.y / g.groups;
    const u32 row = blockIdx.x / tiles(columns) * TILE, column = blockIdx.x % tiles(columns) * TILE;
    const u32 from = part * slice, to = min(from + slice, terms);
    float sums[4][4] = {};
    multiply(slabs, from, to, Channels(g, weight + group * terms * g.channels, row),
             Pixels(g, dy + group * g.filters * g.windows(), column, columns), sums);
    dx += (u64)part * samples * g.groups * g.channels * g.image() + group * g.channels * g.image();
    store_image(sums, dx, row, g.channels, column, columns, g.image(), g.groups * g.channels);
}

// A block computes a tile of (filters of a group) x (weights of a filter).
KERNEL convolution_weight_gradient(u32 samples, const Geometry g, u32 slice, const float* __restrict__ x,
                                   const float* __restrict__ dy, float* __restrict__ dw) {
    __shared__ Slabs slabs;
    const u32 weights = g.channels * g.taps(), group = blockIdx.y % g.groups;
    const u32 row = blockIdx.x / tiles(weights) * TILE, column = blockIdx.x % tiles(weights) * TILE;
    const u32 from = blockIdx.y / g.groups * slice, to = min(from + slice, samples * g.windows());
    float sums[4][4] = {};
    multiply(slabs, from, to, Filters(g, dy + group * g.filters * g.windows(), row),
             Taps(g, x + group * g.channels * g.image(), column, weights), sums);
    store_tile(sums, dw + (u64)blockIdx.y * g.filters * weights, row, g.filters, column, weights, weights);
}

// Sum of each channel over all samples and positions. One block per channel.
KERNEL convolution_bias_gradient(u32 samples, u32 channels, u32 positions, const float* __restrict__ dy,
                                 float* __restrict__ db) {
    __shared__ double scratch[WARPS];
    const u32 channel = blockIdx.x;
    double sum = 0;
    ROLLED for (u32 i = threadIdx.x; i < samples * positions; i += THREADS)
        sum += dy[(i / positions * channels + channel) * positions + i % positions];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) db[channel] = (float)sum;
}
