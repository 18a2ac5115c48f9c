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
};

// Position of a term in a sequence of planes of `rows` x `columns` terms.
struct Cursor {
    u32 rows, columns, plane, row, column;

    __device__ __forceinline__ Cursor(u32 rows, u32 columns, u32 term) : rows(rows), columns(columns) {
        plane = term / (rows * columns);
        row = term / columns % rows;
        column = term % columns;
    }

    // Moves the cursor by the distance of `by` from the first term.
    __device__ __forceinline__ void advance(const Cursor& by) {
        plane += by.plane;
        row += by.row;
        column += by.column;
        if (column >= columns) column -= columns, row++;
        if (row >= rows) row -= rows, plane++;
    }

    __device__ __forceinline__ void advance() {
        column++;
        if (column == columns) column = 0, row++;
        if (row == rows) row = 0, plane++;
    }
};

// Loads four elements at successive positions of a cursor: `at(cursor)` for those before `end`, and
// zeros. Advances the cursor by a slab.
template <class At>
__device__ __forceinline__ float4 load_terms(Cursor& cursor, const Cursor& jump, u32 term, u32 end, At at) {
    float four[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        four[j] = term + j < end ? at(cursor) : 0;
        cursor.advance();
    }
    cursor.advance(jump);
    return make_float4(four[0], four[1], four[2], four[3]);
}

// Factor with a row for each window of each sample and a term for each weight of a filter: the
// elements of a group's channels that the windows read.
struct Windows {
    const Geometry& g;
    const float* image;
    // First row and first column of the window.
    u32 top, left;
    Cursor tap, jump;

    __device__ __forceinline__ Windows(const Geometry& g, const float* image, u32 first, u32 count, u32 from)
        : g(g), image(image), tap(g.kernel_height, g.kernel_width, from + LANE_TERMS),
          jump(g.kernel_height, g.kernel_width, TERMS - 4) {
        const u32 window = first + LANE_ROW, place = window % g.windows();
        this->image += window / g.windows() * g.groups * g.channels * g.image();
        // A window that does not exist has no rows.
        top = window < count ? place / g.out_width * g.stride_height - g.padding_height : g.height;
        left = place % g.out_width * g.stride_width - g.padding_width;
    }

    __device__ __forceinline__ float4 load(u32 start, u32 end) {
        return load_terms(tap, jump, start + LANE_TERMS, end, [&](const Cursor& at) {
            const u32 y = top + at.row, x = left + at.column;
            return y < g.height && x < g.width ? image[(at.plane * g.height + y) * g.width + x] : 0;
        });
    }

    __device__ __forceinline__ void put(Slab& slab, float4 four) const { put_lane_terms(slab, four); }
};

// The same with rows and terms exchanged: a row for each weight, a term for each window.
struct Taps {
    const Geometry& g;
    const float* image;
    // Position in the kernel.
    u32 down, right;
    Cursor window, jump;

    __device__ __forceinline__ Taps(const Geometry& g, const float* image, u32 first, u32 count, u32 from)
        : g(g), window(g.out_height, g.out_width, from + SLAB_TERMS),
          jump(g.out_height, g.out_width, TERMS - 4) {
        const u32 weight = first + SLAB_ROW;
        this->image = image + weight / g.taps() * g.image();
        // A weight that does not exist reads no row.
        down = weight < count ? weight % g.taps() / g.kernel_width - g.padding_height : 1u << 31;
        right = weight % g.kernel_width - g.padding_width;
    }

    __device__ __forceinline__ float4 load(u32 start, u32 end) {
        return load_terms(window, jump, start + SLAB_TERMS, end, [&](const Cursor& at) {
            const u32 y = at.row * g.stride_height + down, x = at.column * g.stride_width + right;
            const u32 sample = at.plane * g.groups * g.channels * g.image();
            return y < g.height && x < g.width ? image[sample + y * g.width + x] : 0;
        });
    }

    __device__ __forceinline__ void put(Slab& slab, float4 four) const { put_terms(slab, four); }
};

// Factor with a row for each filter and a term for each window of each sample: the output gradient.
struct Filters {
    const float* gradient;
    // Distance between samples.
    u32 sample;
    bool is_there, vectors;
    Cursor window, jump;

    __device__ __forceinline__ Filters(const Geometry& g, const float* gradient, u32 first, u32 from)
        : gradient(gradient + (first + SLAB_ROW) * g.windows()), sample(g.groups * g.filters * g.windows()),
          is_there(first + SLAB_ROW < g.filters), vectors(g.windows() % 4 == 0 && is_aligned(gradient)),
          window(1, g.windows(), from + SLAB_TERMS), jump(1, g.windows(), vectors ? TERMS : TERMS - 4) {}

    __device__ __forceinline__ float4 load(u32 start, u32 end) {
        const u32 term = start + SLAB_TERMS;
        if (!vectors)
            return load_terms(window, jump, term, end, [&](const Cursor& at) {
                return is_there ? gradient[at.plane * sample + at.column] : 0;
            });
        // Slices begin and end at multiples of four windows.
        const float* from = gradient + window.plane * sample + window.column;
        window.advance(jump);
        return load_four(from, is_there && term < end ? 4 : 0, true);
    }

    __device__ __forceinline__ void put(Slab& slab, float4 four) const { put_terms(slab, four); }
};

// The rows, or the columns, of an image whose positions have the same remainder by the stride,
// padding included: only every `stride`-th tap reads them. A pair of such sets of rows and columns
// is a *phase* of a convolution. The input gradient of a phase is a convolution with stride 1.
struct Residue {
    u32 tap, taps;      // first tap, number of taps
    u32 first, count;   // first position, number of positions
    u32 window;         // window whose tap `tap` is the first position

    __device__ __forceinline__ Residue(u32 remainder, u32 kernel, u32 stride, u32 padding, u32 size)
        : tap(remainder), taps(remainder < kernel ? (kernel - remainder + stride - 1) / stride : 0),
          first((remainder + stride - padding % stride) % stride),
          count(first < size ? (size - first + stride - 1) / stride : 0),
          window((first + padding) / stride) {}
};

// Factor with a row for each pixel of a phase of each sample and a term for each tap of each
// filter: the output gradient of the window whose tap reads the pixel.
struct Pixels {
    const Geometry& g;
    const float* gradient;
    // Window whose first tap reads the pixel.
    u32 bottom, right;
    Cursor tap, jump;

    __device__ __forceinline__ Pixels(const Geometry& g, const float* gradient, const Residue& rows,
                                      const Residue& columns, u32 first, u32 count, u32 from)
        : g(g), gradient(gradient), tap(rows.taps, columns.taps, from + LANE_TERMS),
          jump(rows.taps, columns.taps, TERMS - 4) {
        const u32 pixel = first + LANE_ROW, pixels = rows.count * columns.count, place = pixel % pixels;
        this->gradient += pixel / pixels * g.groups * g.filters * g.windows();
        // A pixel that does not exist is before all windows.
        bottom = pixel < count ? rows.window + place / columns.count : 1u << 31;
        right = columns.window + place % columns.count;
    }

    __device__ __forceinline__ float4 load(u32 start, u32 end) {
        return load_terms(tap, jump, start + LANE_TERMS, end, [&](const Cursor& at) {
            const u32 y = bottom - at.row, x = right - at.column;
            const bool there = y < g.out_height && x < g.out_width;
            return there ? gradient[(at.plane * g.out_height + y) * g.out_width + x] : 0;
        });
    }

    __device__ __forceinline__ void put(Slab& slab, float4 four) const { put_lane_terms(slab, four); }
};

// Factor with a row for each channel and a term for each tap of a phase of each filter: the
// weights.
struct Channels {
    const Geometry& g;
    const float* weight;
    bool is_there;
    Cursor tap, jump;

    __device__ __forceinline__ Channels(const Geometry& g, const float* weight, const Residue& rows,
                                        const Residue& columns, u32 first, u32 from)
        : g(g), is_there(first + SLAB_ROW < g.channels), tap(rows.taps, columns.taps, from + SLAB_TERMS),
          jump(rows.taps, columns.taps, TERMS - 4) {
        this->weight = weight + (first + SLAB_ROW) * g.taps() + rows.tap * g.kernel_width + columns.tap;
    }

    __device__ __forceinline__ float4 load(u32 start, u32 end) {
        return load_terms(tap, jump, start + SLAB_TERMS, end, [&](const Cursor& at) {
            const u32 place = at.row * g.stride_height * g.kernel_width + at.column * g.stride_width;
            return is_there ? weight[at.plane * g.channels * g.taps() + place] : 0;
        });
    }

    __device__ __forceinline__ void put(Slab& slab, float4 four) const { put_terms(slab, four); }
};

// Writes a tile whose rows are channels, with a distance of `stride` elements. `at` has the offsets
// of the thread's columns in a channel, of which `there` exist.
__device__ __forceinline__ void store_image(const float (&sums)[4][4], float* to, u32 row0, u32 rows,
                                            const u32 (&at)[4], int there, u32 stride, bool vectors) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 row = row0 + TILE_ROW + i;
        if (row < rows) {
            if (vectors && there > 0) {
                *(float4*)(to + row * stride + at[0]) =
                    make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (j < there) to[row * stride + at[j]] = sums[i][j];
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
             Windows(g, x + group * g.channels * g.image(), column, columns, from), sums);
    if (bias) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u32 filter = row + TILE_ROW + i;
            const float term = filter < g.filters ? bias[group * g.filters + filter] : 0;
#pragma unroll
            for (int j = 0; j < 4; j++) sums[i][j] += term;
        }
    }
    u32 at[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const u32 window = column + TILE_COLUMN + j;
        at[j] = window / g.windows() * g.groups * g.filters * g.windows() + window % g.windows();
    }
    y += ((u64)part * samples * g.groups + group) * g.filters * g.windows();
    store_image(sums, y, row, g.filters, at, (int)columns - (int)(column + TILE_COLUMN), g.windows(),
                g.windows() % 4 == 0 && is_aligned(y));
}

// A block computes a tile of (channels of a group) x (pixels of a phase of all samples). The terms
// of each phase are divided into `slices` slices. `blockIdx.y` is (slice * phases + phase) * groups
// + group.
KERNEL convolution_input_gradient(u32 samples, const Geometry g, u32 slices, const float* __restrict__ dy,
                                  const float* __restrict__ weight, float* __restrict__ dx) {
    __shared__ Slabs slabs;
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
    const u32 row = blockIdx.x / tiles(most) * TILE, column = blockIdx.x % tiles(most) * TILE;
    if (column >= count) return;
    const u32 taps = rows.taps * columns.taps, terms = g.filters * taps;
    const u32 slice = ((terms + slices - 1) / slices + TERMS - 1) / TERMS * TERMS;
    const u32 from = part * slice, to = min(from + slice, terms);
    float sums[4][4] = {};
    // The gradient of pixels that no tap reads is zero.
    if (from < to)
        multiply(slabs, from, to,
                 Channels(g, weight + group * g.filters * g.channels * g.taps(), rows, columns, row, from),
                 Pixels(g, dy + group * g.filters * g.windows(), rows, columns, column, count, from), sums);
    u32 at[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const u32 pixel = column + TILE_COLUMN + j, place = pixel % pixels;
        const u32 y = rows.first + place / columns.count * g.stride_height;
        const u32 x = columns.first + place % columns.count * g.stride_width;
        at[j] = pixel / pixels * g.groups * g.channels * g.image() + y * g.width + x;
    }
    dx += ((u64)part * samples * g.groups + group) * g.channels * g.image();
    const bool contiguous = g.stride_height * g.stride_width == 1;
    store_image(sums, dx, row, g.channels, at, (int)count - (int)(column + TILE_COLUMN), g.image(),
                contiguous & (g.image() % 4 == 0) & is_aligned(dx));
}

// A block computes a tile of (filters of a group) x (weights of a filter).
KERNEL convolution_weight_gradient(u32 samples, const Geometry g, u32 slice, const float* __restrict__ x,
                                   const float* __restrict__ dy, float* __restrict__ dw) {
    __shared__ Slabs slabs;
    const u32 weights = g.channels * g.taps(), group = blockIdx.y % g.groups;
    const u32 row = blockIdx.x / tiles(weights) * TILE, column = blockIdx.x % tiles(weights) * TILE;
    const u32 from = blockIdx.y / g.groups * slice, to = min(from + slice, samples * g.windows());
    float sums[4][4] = {};
    multiply(slabs, from, to, Filters(g, dy + group * g.filters * g.windows(), row, from),
             Taps(g, x + group * g.channels * g.image(), column, weights, from), sums);
    store_tile(sums, dw + (u64)blockIdx.y * g.filters * weights, row, g.filters, column, weights, weights);
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
