// Scaled dot-product attention. Weights are computed in tiles of 64 queries by 64 keys and never
// stored as a whole matrix (FlashAttention; Dao et al., 2022). A block computes up to 64 features
// of a head's output. Blocks of other features of the same head recompute the weights.
#include "tile.cuh"

// Part of the work of a block: first row of its tile, its first feature, number of its head,
// features of an output position, and offsets of the head in the input and in the output.
struct Part {
    u32 row, feature, number, features;
    u64 head, output;

    __device__ __forceinline__ Part(u32 positions, u32 heads, u32 width) {
        u32 index = blockIdx.x;
        row = index % tiles(positions) * TILE;
        index /= tiles(positions);
        feature = index % tiles(width) * TILE;
        number = index / tiles(width);
        features = heads * width;
        const u32 sample = number / heads, offset = number % heads * width;
        head = (u64)sample * positions * 3 * features + offset;
        output = (u64)sample * positions * features + offset;
    }
};

// A factor in shared memory. The first index is the row, the second the term. All terms of a tile
// can be read.
struct SharedRows : FourTerms<TILE> {
    const float (&data)[TILE][PITCH];
    __device__ __forceinline__ SharedRows(const float (&data)[TILE][PITCH]) : data(data) {}
    __device__ __forceinline__ float4 load(u32 start, u32 end) const {
        return start < end ? *(const float4*)&data[row()][start + term()] : make_float4(0, 0, 0, 0);
    }
};

// A factor in shared memory. The first index is the term, the second the row.
struct SharedColumns : FourRows<TILE> {
    const float (&data)[TILE][PITCH];
    __device__ __forceinline__ SharedColumns(const float (&data)[TILE][PITCH]) : data(data) {}
    __device__ __forceinline__ float4 load(u32 start, u32 end) const {
        return start < end ? *(const float4*)&data[start + term()][row()] : make_float4(0, 0, 0, 0);
    }
};

__device__ __forceinline__ void put_tile(const float (&values)[4][4], float (&shared)[TILE][PITCH]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        *(float4*)&shared[TILE_ROW + i][TILE_COLUMN] =
            make_float4(values[i][0], values[i][1], values[i][2], values[i][3]);
    __syncthreads();
}

// Reductions over the 16 threads that have the same rows of a tile.
__device__ __forceinline__ float row_largest(float value) {
#pragma unroll
    for (int distance = 8; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, distance));
    return value;
}

__device__ __forceinline__ float row_sum(float value) {
#pragma unroll
    for (int distance = 8; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffff, value, distance);
    return value;
}

__device__ __forceinline__ bool is_seen(u32 query, u32 key, u32 positions, u32 causal) {
    return query < positions && key < positions && (!causal || key <= query);
}

// Saves the logarithm of the sum of exponentials of each query. In evaluation `saved` is null.
KERNEL attention_forward(u32 positions, u32 heads, u32 width, u32 causal, float scale,
                         const real* __restrict__ x, real* __restrict__ y, float* __restrict__ saved) {
    __shared__ Slabs<> slabs;
    __shared__ __align__(16) float weights[TILE][PITCH];
    const Part part(positions, heads, width);
    const u32 stride = 3 * part.features;
    const real *queries = x + part.head, *keys = queries + part.features, *values = keys + part.features;
    float result[4][4] = {}, best[4], total[4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++) best[i] = -INFINITY_F;
    const u32 end = causal ? min(part.row + TILE, positions) : positions;
    ROLLED for (u32 first = 0; first < end; first += TILE) {
        float scores[4][4] = {};
        multiply(slabs, 0, width, Rows(queries, part.row, positions, stride),
                 Rows(keys, first, positions, stride), scores);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float largest = -INFINITY_F;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const u32 key = first + TILE_COLUMN + j;
                // Rows beyond the last query are computed like it and not stored.
                const bool seen =
                    is_seen(min(part.row + TILE_ROW + i, positions - 1), key, positions, causal);
                scores[i][j] = seen ? scores[i][j] * scale : -INFINITY_F;
                largest = fmaxf(largest, scores[i][j]);
            }
            // The first tile has a key for every query, so the maximum is finite from then on.
            const float now = fmaxf(best[i], row_largest(largest)), factor = expf(best[i] - now);
            float sum = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                scores[i][j] = expf(scores[i][j] - now);
                sum += scores[i][j];
                result[i][j] *= factor;
            }
            best[i] = now;
            total[i] = total[i] * factor + row_sum(sum);
        }
        put_tile(scores, weights);
        multiply(slabs, 0, min(TILE, positions - first), SharedRows{weights},
                 Columns(values + first * stride, part.feature, width, stride), result);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 query = part.row + TILE_ROW + i;
#pragma unroll
        for (int j = 0; j < 4; j++) result[i][j] /= total[i];
        if (saved && part.feature == 0 && threadIdx.x % 16 == 0 && query < positions)
            saved[part.number * positions + query] = best[i] + logf(total[i]);
    }
    store_tile(result, y + part.output, part.row, positions, part.feature, width, part.features);
}

// For each query, the mean of its weights' gradients, weighted by the weights: the scalar product
// of its output and its output gradient.
KERNEL attention_means(u32 rows, u32 positions, u32 heads, u32 width, const real* __restrict__ y,
                       const real* __restrict__ dy, float* __restrict__ means) {
    const u32 row = ROW;
    if (row >= rows) return;
    const u32 number = row / positions, position = number / heads * positions + row % positions;
    const u32 offset = (position * heads + number % heads) * width;
    double sum = 0;
    ROLLED for (u32 i = LANE; i < width; i += 32) sum += (double)y[offset + i] * dy[offset + i];
    sum = warp_sum(sum);
    if (LANE == 0) means[row] = (float)sum;
}

// Computes a tile's weights and their gradients. On entry, `weights` holds products of queries with
// keys, and `slopes` products of output gradients with values.
__device__ __forceinline__ void weigh(float (&weights)[4][4], float (&slopes)[4][4], u32 query0, u32 key0,
                                      u32 positions, u32 causal, float scale, const float* log_sums,
                                      const float* means) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 query = query0 + TILE_ROW + i, place = min(query, positions - 1);
        const float log_sum = log_sums[place], mean = means[place];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const bool seen = is_seen(query, key0 + TILE_COLUMN + j, positions, causal);
            weights[i][j] = seen ? expf(weights[i][j] * scale - log_sum) : 0;
            slopes[i][j] = seen ? weights[i][j] * (slopes[i][j] - mean) * scale : 0;
        }
    }
}

KERNEL attention_query_gradient(u32 positions, u32 heads, u32 width, u32 causal, float scale,
                                const real* __restrict__ x, const float* __restrict__ saved,
                                const float* __restrict__ means, const real* __restrict__ dy,
                                real* __restrict__ dx) {
    __shared__ Slabs<> slabs;
    __shared__ __align__(16) float shared[TILE][PITCH];
    const Part part(positions, heads, width);
    const u32 stride = 3 * part.features;
    const real *queries = x + part.head, *keys = queries + part.features, *values = keys + part.features;
    float result[4][4] = {};
    const u32 end = causal ? min(part.row + TILE, positions) : positions;
    ROLLED for (u32 first = 0; first < end; first += TILE) {
        float weights[4][4] = {}, slopes[4][4] = {};
        multiply(slabs, 0, width, Rows(queries, part.row, positions, stride),
                 Rows(keys, first, positions, stride), weights);
        multiply(slabs, 0, width, Rows(dy + part.output, part.row, positions, part.features),
                 Rows(values, first, positions, stride), slopes);
        weigh(weights, slopes, part.row, first, positions, causal, scale, saved + part.number * positions,
              means + part.number * positions);
        put_tile(slopes, shared);
        multiply(slabs, 0, min(TILE, positions - first), SharedRows{shared},
                 Columns(keys + first * stride, part.feature, width, stride), result);
    }
    store_tile(result, dx + part.head, part.row, positions, part.feature, width, stride);
}

KERNEL attention_key_value_gradient(u32 positions, u32 heads, u32 width, u32 causal, float scale,
                                    const real* __restrict__ x, const float* __restrict__ saved,
                                    const float* __restrict__ means, const real* __restrict__ dy,
                                    real* __restrict__ dx) {
    __shared__ Slabs<> slabs;
    __shared__ __align__(16) float shared[TILE][PITCH];
    const Part part(positions, heads, width);
    const u32 stride = 3 * part.features;
    const real *queries = x + part.head, *keys = queries + part.features, *values = keys + part.features;
    const real* gradients = dy + part.output;
    float key_gradient[4][4] = {}, value_gradient[4][4] = {};
    // Earlier queries do not attend to the keys of this tile.
    ROLLED for (u32 first = causal ? part.row : 0; first < positions; first += TILE) {
        float weights[4][4] = {}, slopes[4][4] = {};
        multiply(slabs, 0, width, Rows(queries, first, positions, stride),
                 Rows(keys, part.row, positions, stride), weights);
        multiply(slabs, 0, width, Rows(gradients, first, positions, part.features),
                 Rows(values, part.row, positions, stride), slopes);
        weigh(weights, slopes, first, part.row, positions, causal, scale, saved + part.number * positions,
              means + part.number * positions);
        const u32 count = min(TILE, positions - first);
        put_tile(weights, shared);
        multiply(slabs, 0, count, SharedColumns{shared},
                 Columns(gradients + first * part.features, part.feature, width, part.features),
                 value_gradient);
        put_tile(slopes, shared);
        multiply(slabs, 0, count, SharedColumns{shared},
                 Columns(queries + first * stride, part.feature, width, stride), key_gradient);
    }
    real* to = dx + part.head + part.features;
    store_tile(key_gradient, to, part.row, positions, part.feature, width, stride);
    store_tile(value_gradient, to + part.features, part.row, positions, part.feature, width, stride);
}
