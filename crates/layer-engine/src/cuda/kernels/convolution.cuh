// Operands of convolutions as factors of matrix products (implicit GEMM): elements are read where
// they are, without a materialised im2col matrix.
#pragma once
#include "tile.cuh"

struct Geometry {
    u32 groups;
    // Number of input and output channels of a group.
    u32 channels, filters;
    u32 height, width, out_height, out_width;
    u32 kernel_height, kernel_width, stride_height, stride_width, padding_height, padding_width;
    u32 dilation_height, dilation_width;

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
template <u32 SIDE> struct Windows : RowPerLane<SIDE> {
    const Geometry& g;
    const real* image;
    // First row and first column of the window.
    u32 top, left;
    Cursor tap, jump;

    __device__ __forceinline__ Windows(const Geometry& g, const real* image, u32 first, u32 count, u32 from)
        : g(g), image(image), tap(g.kernel_height, g.kernel_width, from + this->term()),
          jump(g.kernel_height, g.kernel_width, TERMS<SIDE> - 4) {
        const u32 window = first + this->row(), place = window % g.windows();
        this->image += window / g.windows() * g.groups * g.channels * g.image();
        // A window that does not exist has no rows.
        top = window < count ? place / g.out_width * g.stride_height - g.padding_height : g.height;
        left = place % g.out_width * g.stride_width - g.padding_width;
    }

    __device__ __forceinline__ float4 load(u32 start, u32 end) {
        return load_terms(tap, jump, start + this->term(), end, [&](const Cursor& at) {
            const u32 y = top + at.row * g.dilation_height, x = left + at.column * g.dilation_width;
            return y < g.height && x < g.width ? (float)image[(at.plane * g.height + y) * g.width + x] : 0;
        });
    }
};

// The same with rows and terms exchanged: a row for each weight, a term for each window.
template <u32 SIDE> struct Taps : FourTerms<SIDE> {
    const Geometry& g;
    const real* image;
    // Position in the kernel.
    u32 down, right;
    Cursor window, jump;

    __device__ __forceinline__ Taps(const Geometry& g, const real* image, u32 first, u32 count, u32 from)
        : g(g), window(g.out_height, g.out_width, from + this->term()),
          jump(g.out_height, g.out_width, TERMS<SIDE> - 4) {
        const u32 weight = first + this->row();
        this->image = image + weight / g.taps() * g.image();
        // A weight that does not exist reads no row.
        const u32 row = weight % g.taps() / g.kernel_width * g.dilation_height;
        down = weight < count ? row - g.padding_height : 1u << 31;
        right = weight % g.kernel_width * g.dilation_width - g.padding_width;
    }

    __device__ __forceinline__ float4 load(u32 start, u32 end) {
        return load_terms(window, jump, start + this->term(), end, [&](const Cursor& at) {
            const u32 y = at.row * g.stride_height + down, x = at.column * g.stride_width + right;
            const u32 sample = at.plane * g.groups * g.channels * g.image();
            return y < g.height && x < g.width ? (float)image[sample + y * g.width + x] : 0;
        });
    }
};

// Factor with a row for each filter and a term for each window of each sample: the output gradient.
template <u32 SIDE> struct Filters : FourTerms<SIDE> {
    const real* gradient;
    // Distance between samples.
    u32 sample;
    bool is_there, vectors;
    Cursor window, jump;

    __device__ __forceinline__ Filters(const Geometry& g, const real* gradient, u32 first, u32 from)
        : gradient(gradient + (first + this->row()) * g.windows()),
          sample(g.groups * g.filters * g.windows()),
          is_there(first + this->row() < g.filters), vectors(g.windows() % 4 == 0 && is_aligned(gradient)),
          window(1, g.windows(), from + this->term()),
          jump(1, g.windows(), TERMS<SIDE> - (vectors ? 0 : 4)) {}

    __device__ __forceinline__ float4 load(u32 start, u32 end) {
        const u32 term = start + this->term();
        if (!vectors)
            return load_terms(window, jump, term, end, [&](const Cursor& at) {
                return is_there ? (float)gradient[at.plane * sample + at.column] : 0;
            });
        // Slices begin and end at multiples of four windows.
        const real* from = gradient + window.plane * sample + window.column;
        window.advance(jump);
        return load_four(from, is_there && term < end ? 4 : 0, true);
    }
};

// The rows, or the columns, of an image whose positions have the same remainder by the stride,
// padding included: only every `step`-th tap reads them. A pair of such sets of rows and columns
// is a *phase* of a convolution. The input gradient of a phase is a convolution with stride 1.
struct Residue {
    u32 tap, taps, step;  // first tap, number of taps, distance between them
    u32 first, count;     // first position, number of positions
    u32 window, distance; // window whose tap `tap` is the first position, and the distance by which
                          // the next tap's window precedes it, in wrapping arithmetic

    __device__ __forceinline__ Residue(u32 remainder, u32 kernel, u32 stride, u32 padding, u32 dilation,
                                       u32 size)
        : first((remainder + stride - padding % stride) % stride),
          count(first < size ? (size - first + stride - 1) / stride : 0) {
        u32 divisor = dilation, rest = stride;
        ROLLED while (rest) {
            const u32 next = divisor % rest;
            divisor = rest;
            rest = next;
        }
        step = stride / divisor;
        distance = dilation / divisor;
        // With a common divisor of stride and dilation, no tap may read the positions.
        tap = step;
        ROLLED for (u32 t = 0; t < step; t++)
            if (t * dilation % stride == remainder) tap = t;
        taps = tap < min(step, kernel) ? (kernel - tap + step - 1) / step : 0;
        // A tap before `step` is less than `distance` windows away from the first one.
        window = (first + padding + distance * stride - tap * dilation) / stride - distance;
    }
};

// Factor with a row for each pixel of a phase of each sample and a term for each tap of each
// filter: the output gradient of the window whose tap reads the pixel.
template <u32 SIDE> struct Pixels : RowPerLane<SIDE> {
    const Geometry& g;
    const real* gradient;
    // Window whose first tap reads the pixel, and the distances between the windows of its taps.
    u32 bottom, right, down, across;
    Cursor tap, jump;

    __device__ __forceinline__ Pixels(const Geometry& g, const real* gradient, const Residue& rows,
                                      const Residue& columns, u32 first, u32 count, u32 from)
        : g(g), gradient(gradient), down(rows.distance), across(columns.distance),
          tap(rows.taps, columns.taps, from + this->term()),
          jump(rows.taps, columns.taps, TERMS<SIDE> - 4) {
        const u32 pixel = first + this->row(), pixels = rows.count * columns.count, place = pixel % pixels;
        this->gradient += pixel / pixels * g.groups * g.filters * g.windows();
        // A pixel that does not exist is before all windows.
        bottom = pixel < count ? rows.window + place / columns.count : 1u << 31;
        right = columns.window + place % columns.count;
    }

    __device__ __forceinline__ float4 load(u32 start, u32 end) {
        return load_terms(tap, jump, start + this->term(), end, [&](const Cursor& at) {
            const u32 y = bottom - at.row * down, x = right - at.column * across;
            const bool there = y < g.out_height && x < g.out_width;
            return there ? (float)gradient[(at.plane * g.out_height + y) * g.out_width + x] : 0;
        });
    }
};

// Factor with a row for each channel and a term for each tap of a phase of each filter: the
// weights.
template <u32 SIDE> struct Channels : FourTerms<SIDE> {
    const Geometry& g;
    const real* weight;
    bool is_there;
    // Distances between the taps of the phase in the weights.
    u32 down, across;
    Cursor tap, jump;

    __device__ __forceinline__ Channels(const Geometry& g, const real* weight, const Residue& rows,
                                        const Residue& columns, u32 first, u32 from)
        : g(g), is_there(first + this->row() < g.channels), down(rows.step * g.kernel_width),
          across(columns.step), tap(rows.taps, columns.taps, from + this->term()),
          jump(rows.taps, columns.taps, TERMS<SIDE> - 4) {
        this->weight = weight + (first + this->row()) * g.taps() + rows.tap * g.kernel_width + columns.tap;
    }

    __device__ __forceinline__ float4 load(u32 start, u32 end) {
        return load_terms(tap, jump, start + this->term(), end, [&](const Cursor& at) {
            const u32 place = at.row * down + at.column * across;
            return is_there ? (float)weight[at.plane * g.channels * g.taps() + place] : 0;
        });
    }
};
