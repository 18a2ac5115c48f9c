// Matrix products in tiles of 64 x 64, by blocks of 256 threads that hold 4 x 4 sums each. Both
// factors are copied to shared memory, 16 terms at a time: the methods `load` of their types load
// four elements per thread into registers, and the methods `put` store them in a slab. The elements
// of the next 16 terms are loaded before the products of the current ones are computed.
//
// A block calls `load` once for every 16 terms in order, and a last time past the end, where it
// returns zeros.
#pragma once
#include "basics.cuh"

#define TILE 64
#define TERMS 16
// Groups of four rows are aligned to 16 bytes and begin in different banks.
#define PITCH (TILE + 4)

typedef float Slab[TERMS][PITCH];

// Slabs of the current and of the next terms.
struct __align__(16) Slabs {
    Slab left[2], right[2];
};

// First row and first column of the thread within a tile.
#define TILE_ROW (threadIdx.x / 16 * 4)
#define TILE_COLUMN (threadIdx.x % 16 * 4)

__device__ __forceinline__ u32 tiles(u32 count) { return (count + TILE - 1) / TILE; }

__device__ __forceinline__ bool is_aligned(const float* address) { return ((u64)address & 15) == 0; }

// Loads four elements, of which `count` are valid; the others are zero.
__device__ __forceinline__ float4 load_four(const float* from, int count, bool vectors) {
    float4 four = make_float4(0, 0, 0, 0);
    if (vectors && count >= 4) {
        four = *(const float4*)from;
    } else {
        if (count > 0) four.x = from[0];
        if (count > 1) four.y = from[1];
        if (count > 2) four.z = from[2];
        if (count > 3) four.w = from[3];
    }
    return four;
}

__device__ __forceinline__ void store(float* to, float4 four, int count, bool vectors) {
    if (vectors && count >= 4) {
        *(float4*)to = four;
    } else {
        if (count > 0) to[0] = four.x;
        if (count > 1) to[1] = four.y;
        if (count > 2) to[2] = four.z;
        if (count > 3) to[3] = four.w;
    }
}

// Position at which a thread stores four terms of one row, and four rows of one term.
#define SLAB_ROW (threadIdx.x / 4)
#define SLAB_TERMS (threadIdx.x % 4 * 4)
#define SLAB_TERM (threadIdx.x / 16)
#define SLAB_ROWS (threadIdx.x % 16 * 4)
// The same for four terms of one row, if the lanes of a warp have different rows.
#define LANE_ROW (threadIdx.x % TILE)
#define LANE_TERMS (threadIdx.x / TILE * 4)

__device__ __forceinline__ void put_terms(Slab& slab, float4 four) {
    slab[SLAB_TERMS][SLAB_ROW] = four.x;
    slab[SLAB_TERMS + 1][SLAB_ROW] = four.y;
    slab[SLAB_TERMS + 2][SLAB_ROW] = four.z;
    slab[SLAB_TERMS + 3][SLAB_ROW] = four.w;
}

__device__ __forceinline__ void put_rows(Slab& slab, float4 four) {
    *(float4*)&slab[SLAB_TERM][SLAB_ROWS] = four;
}

__device__ __forceinline__ void put_lane_terms(Slab& slab, float4 four) {
    slab[LANE_TERMS][LANE_ROW] = four.x;
    slab[LANE_TERMS + 1][LANE_ROW] = four.y;
    slab[LANE_TERMS + 2][LANE_ROW] = four.z;
    slab[LANE_TERMS + 3][LANE_ROW] = four.w;
}

// A factor whose terms are contiguous: term `t` of row `r` is `data[r * stride + t]`.
struct Rows {
    const float* data;
    u32 first, count, stride;
    bool vectors;

    __device__ __forceinline__ Rows(const float* data, u32 first, u32 count, u32 stride)
        : data(data), first(first), count(count), stride(stride),
          vectors(stride % 4 == 0 && is_aligned(data)) {}

    __device__ __forceinline__ float4 load(u32 start, u32 end) const {
        const u32 row = first + SLAB_ROW, term = start + SLAB_TERMS;
        const int there = row < count ? (int)end - (int)term : 0;
        return load_four(data + row * stride + term, there, vectors);
    }

    __device__ __forceinline__ void put(Slab& slab, float4 four) const { put_terms(slab, four); }
};

// A factor whose rows are contiguous: term `t` of row `r` is `data[t * stride + r]`.
struct Columns {
    const float* data;
    u32 first, count, stride;
    bool vectors;

    __device__ __forceinline__ Columns(const float* data, u32 first, u32 count, u32 stride)
        : data(data), first(first), count(count), stride(stride),
          vectors(stride % 4 == 0 && is_aligned(data)) {}

    __device__ __forceinline__ float4 load(u32 start, u32 end) const {
        const u32 row = first + SLAB_ROWS, term = start + SLAB_TERM;
        const int there = term < end ? (int)count - (int)row : 0;
        return load_four(data + term * stride + row, there, vectors);
    }

    __device__ __forceinline__ void put(Slab& slab, float4 four) const { put_rows(slab, four); }
};

// Adds the products of the terms `from` to `to`, exclusive. All threads of the block must call it.
// Afterwards the slabs and the memory that the factors read can be reused.
template <class Left, class Right>
__device__ __forceinline__ void multiply(Slabs& slabs, u32 from, u32 to, Left left, Right right,
                                         float (&sums)[4][4]) {
    float4 next_left = left.load(from, to), next_right = right.load(from, to);
    u32 now = 0;
    left.put(slabs.left[now], next_left);
    right.put(slabs.right[now], next_right);
    __syncthreads();
    ROLLED for (u32 start = from; start < to; start += TERMS) {
        next_left = left.load(start + TERMS, to);
        next_right = right.load(start + TERMS, to);
#pragma unroll
        for (int term = 0; term < TERMS; term++) {
            const float4 x = *(const float4*)&slabs.left[now][term][TILE_ROW];
            const float4 y = *(const float4*)&slabs.right[now][term][TILE_COLUMN];
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

// Writes a thread's sums to rows of `to`, whose elements are contiguous.
__device__ __forceinline__ void store_tile(const float (&sums)[4][4], float* to, u32 row0, u32 rows,
                                           u32 column0, u32 columns, u32 stride) {
    const bool vectors = stride % 4 == 0 && is_aligned(to);
    const u32 column = column0 + TILE_COLUMN;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 row = row0 + TILE_ROW + i;
        if (row < rows) {
            const float4 four = make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
            store(to + row * stride + column, four, (int)columns - (int)column, vectors);
        }
    }
}
