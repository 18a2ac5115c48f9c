// Matrix products in tiles of 64 x 64, or of 32 x 32 for products with few tiles, by blocks of 256
// threads that hold 4 x 4 sums each. Both factors are copied to shared memory in *slabs* of 1024
// elements: the methods `load` of their types load four elements per thread into registers, and the
// methods `put` store them in a slab. The elements of the next slab are loaded before the products
// of the current one are computed.
//
// A small tile has four groups of 64 threads. Each of them sums a quarter of the terms of a slab.
#pragma once
#include "vectors.cuh"

// Side of a tile, unless it is a template parameter.
#define TILE 64
#define PITCH (TILE + 4)

// Terms of a slab.
template <u32 SIDE> constexpr u32 TERMS = 1024 / SIDE;
// Threads that hold the sums of a tile.
template <u32 SIDE> constexpr u32 GROUP = SIDE * SIDE / 16;
// Rows of a tile that a thread stores.
template <u32 SIDE> constexpr u32 STORED_ROWS = 4 * GROUP<SIDE> / THREADS;

// Groups of four rows are aligned to 16 bytes and begin in different banks.
template <u32 SIDE> using Slab = float[TERMS<SIDE>][SIDE + 4];

// The current and the next slabs.
template <u32 SIDE = TILE> struct __align__(16) Slabs {
    Slab<SIDE> left[2], right[2];
};

// First row and first column of the thread within a tile.
template <u32 SIDE> __device__ __forceinline__ u32 tile_row() {
    return threadIdx.x % GROUP<SIDE> / (SIDE / 4) * 4;
}
template <u32 SIDE> __device__ __forceinline__ u32 tile_column() { return threadIdx.x % (SIDE / 4) * 4; }
#define TILE_ROW (tile_row<TILE>())
#define TILE_COLUMN (tile_column<TILE>())
// First row that the thread stores.
template <u32 SIDE> __device__ __forceinline__ u32 stored_row() {
    return tile_row<SIDE>() + threadIdx.x / GROUP<SIDE>;
}

template <u32 SIDE = TILE> __device__ __forceinline__ u32 tiles(u32 count) {
    return (count + SIDE - 1) / SIDE;
}

// Assignments of a slab's elements to threads. A thread has four terms of a row, or four rows of a
// term.
template <u32 SIDE> struct FourTerms {
    static __device__ __forceinline__ u32 row() { return threadIdx.x / (TERMS<SIDE> / 4); }
    static __device__ __forceinline__ u32 term() { return threadIdx.x % (TERMS<SIDE> / 4) * 4; }
    static __device__ __forceinline__ void put(Slab<SIDE>& slab, float4 four) {
        slab[term()][row()] = four.x;
        slab[term() + 1][row()] = four.y;
        slab[term() + 2][row()] = four.z;
        slab[term() + 3][row()] = four.w;
    }
};

template <u32 SIDE> struct FourRows {
    static __device__ __forceinline__ u32 row() { return threadIdx.x % (SIDE / 4) * 4; }
    static __device__ __forceinline__ u32 term() { return threadIdx.x / (SIDE / 4); }
    static __device__ __forceinline__ void put(Slab<SIDE>& slab, float4 four) {
        *(float4*)&slab[term()][row()] = four;
    }
};

// Four terms of a row. The lanes of a warp have different rows and the same terms.
template <u32 SIDE> struct RowPerLane {
    static __device__ __forceinline__ u32 row() { return threadIdx.x % SIDE; }
    static __device__ __forceinline__ u32 term() { return threadIdx.x / SIDE * 4; }
    static __device__ __forceinline__ void put(Slab<SIDE>& slab, float4 four) {
        slab[term()][row()] = four.x;
        slab[term() + 1][row()] = four.y;
        slab[term() + 2][row()] = four.z;
        slab[term() + 3][row()] = four.w;
    }
};

// A factor whose terms are contiguous: term `t` of row `r` is `data[r * stride + t]`.
template <u32 SIDE = TILE> struct Rows : FourTerms<SIDE> {
    const real* data;
    u32 first, count, stride;
    bool vectors;

    __device__ __forceinline__ Rows(const real* data, u32 first, u32 count, u32 stride)
        : data(data), first(first), count(count), stride(stride),
          vectors(stride % 4 == 0 && is_aligned(data)) {}

    __device__ __forceinline__ float4 load(u32 start, u32 end) const {
        const u32 row = first + this->row(), term = start + this->term();
        const int there = row < count ? (int)end - (int)term : 0;
        return load_four(data + row * stride + term, there, vectors);
    }
};

// A factor whose rows are contiguous: term `t` of row `r` is `data[t * stride + r]`.
template <u32 SIDE = TILE> struct Columns : FourRows<SIDE> {
    const real* data;
    u32 first, count, stride;
    bool vectors;

    __device__ __forceinline__ Columns(const real* data, u32 first, u32 count, u32 stride)
        : data(data), first(first), count(count), stride(stride),
          vectors(stride % 4 == 0 && is_aligned(data)) {}

    __device__ __forceinline__ float4 load(u32 start, u32 end) const {
        const u32 row = first + this->row(), term = start + this->term();
        const int there = term < end ? (int)count - (int)row : 0;
        return load_four(data + term * stride + row, there, vectors);
    }
};

// Adds the products of the terms `from` to `to`, exclusive: of all of them in a large tile, of the
// group's terms in a small one. All threads of the block must call it. Afterwards the slabs and the
// memory that the factors read can be reused. `load` is called once for every slab in order, and a
// last time past the end, where it returns zeros.
template <u32 SIDE = TILE, class Left, class Right>
__device__ __forceinline__ void multiply(Slabs<SIDE>& slabs, u32 from, u32 to, Left left, Right right,
                                         float (&sums)[4][4]) {
    constexpr u32 GROUP_TERMS = TERMS<SIDE> * GROUP<SIDE> / THREADS;
    const u32 first = threadIdx.x / GROUP<SIDE> * GROUP_TERMS;
    float4 next_left = left.load(from, to), next_right = right.load(from, to);
    u32 now = 0;
    left.put(slabs.left[now], next_left);
    right.put(slabs.right[now], next_right);
    __syncthreads();
    ROLLED for (u32 start = from; start < to; start += TERMS<SIDE>) {
        next_left = left.load(start + TERMS<SIDE>, to);
        next_right = right.load(start + TERMS<SIDE>, to);
#pragma unroll
        for (int term = 0; term < GROUP_TERMS; term++) {
            const float4 x = *(const float4*)&slabs.left[now][first + term][tile_row<SIDE>()];
            const float4 y = *(const float4*)&slabs.right[now][first + term][tile_column<SIDE>()];
            const float rows[4] = {x.x, x.y, x.z, x.w}, columns[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sums[i][j] = fmaf(rows[i], columns[j], sums[i][j]);
        }
        // The other slabs were read before the last barrier.
        now ^= 1;
        left.put(slabs.left[now], next_left);
        right.put(slabs.right[now], next_right);
        __syncthreads();
    }
}

// Sums of the rows of a tile that a thread stores.
template <u32 SIDE> struct Sums {
    float at[STORED_ROWS<SIDE>][4];
};

// Returns the products' sums over the terms `from` to `to`, exclusive. The groups of a small tile
// are added in order. The block must not use the slabs afterwards.
template <u32 SIDE, class Left, class Right>
__device__ __forceinline__ Sums<SIDE> product(Slabs<SIDE>& slabs, u32 from, u32 to, Left left, Right right) {
    float sums[4][4] = {};
    multiply<SIDE>(slabs, from, to, left, right, sums);
    Sums<SIDE> result = {};
    if (SIDE == TILE) {
#pragma unroll
        for (int i = 0; i < STORED_ROWS<SIDE>; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) result.at[i][j] = sums[i][j];
    } else {
        // By group, row and thread of the group.
        float4(*parts)[4][GROUP<SIDE>] = (float4(*)[4][GROUP<SIDE>])&slabs;
        const u32 group = threadIdx.x / GROUP<SIDE>, thread = threadIdx.x % GROUP<SIDE>;
#pragma unroll
        for (int i = 0; i < 4; i++)
            parts[group][i][thread] = make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
        __syncthreads();
#pragma unroll
        for (int other = 0; other < THREADS / GROUP<SIDE>; other++) {
            const float4 part = parts[other][group][thread];
            result.at[0][0] += part.x, result.at[0][1] += part.y;
            result.at[0][2] += part.z, result.at[0][3] += part.w;
        }
    }
    return result;
}

// Writes a thread's sums to rows of `to`, whose elements are contiguous.
template <u32 SIDE = TILE, u32 ROWS, class T>
__device__ __forceinline__ void store_tile(const float (&sums)[ROWS][4], T* to, u32 row0, u32 rows,
                                           u32 column0, u32 columns, u32 stride) {
    const bool vectors = stride % 4 == 0 && is_aligned(to);
    const u32 column = column0 + tile_column<SIDE>();
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const u32 row = row0 + stored_row<SIDE>() + i;
        if (row < rows) {
            const float4 four = make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
            store(to + row * stride + column, four, (int)columns - (int)column, vectors);
        }
    }
}

// The same from element `offset` of products on. Whole products are operands; slices of products
// are in single precision.
template <u32 SIDE, u32 ROWS>
__device__ __forceinline__ void store_product(const float (&sums)[ROWS][4], void* to, bool is_whole,
                                              u64 offset, u32 row0, u32 rows, u32 column0, u32 columns) {
    if (sizeof(real) == sizeof(float) || !is_whole)
        store_tile<SIDE>(sums, (float*)to + offset, row0, rows, column0, columns, columns);
    else
        store_tile<SIDE>(sums, (real*)to + offset, row0, rows, column0, columns, columns);
}
