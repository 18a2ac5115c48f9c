// Scaled dot-product attention. Weights are computed in tiles of 64 queries by 64 keys and never
// stored as a whole matrix (FlashAttention; Dao et al., 2022). A block computes up to 64 features
// of a head's output. Blocks of other features of the same head recompute the weights.
#include "tile.cuh"

// Sizes of an attention. The queries, keys and values are in one tensor or in three: each has its
// own pointer. Positions are `stride` elements apart for queries, and `key_stride` for keys and
// values. A group of `group` consecutive query heads shares a head of keys and values. A query of a
// causal attention sees its own position and the `window - 1` positions before it; others have a
// `window` of 0.
struct Sizes {
    u32 positions, key_positions, heads, group, width, window, stride, key_stride;
};

// `mask` is that of `attention_mask`, null without dropout. It has `mask_bytes` bytes for each
// sample, of which the bit `mask_first` belongs to the first weight. `kept` is the factor of
// weights that are not dropped. `biases` has a number for each head and distance, or is null.
// `padding` has a number for each key of each sample, 0 for padding; null if no key is padding.
#define INPUTS                                                                                  \
    Sizes sizes, float scale, const real *__restrict__ queries, const real *__restrict__ keys,  \
        const real *__restrict__ values, const unsigned char *__restrict__ mask, u32 mask_bytes, \
        u32 mask_first, float kept, const float *__restrict__ biases,                          \
        const real *__restrict__ padding

#define NAME_SIZES \
    const auto [positions, key_positions, heads, group, width, window, stride, key_stride] = sizes

// Part of the work of a block: first row of its tile, its first feature, its sample and its head,
// one of `heads`.
struct Part {
    u32 row, feature, sample, head;

    __device__ __forceinline__ Part(u32 rows, u32 heads, u32 width) {
        u32 index = blockIdx.x;
        row = index % tiles(rows) * TILE;
        index /= tiles(rows);
        feature = index % tiles(width) * TILE;
        index /= tiles(width);
        sample = index / heads;
        head = index % heads;
    }

    // Offset of the first position of a head in a tensor.
    __device__ __forceinline__ u64 start(u32 positions, u32 stride, u32 head, u32 width) const {
        return (u64)sample * positions * stride + head * width;
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

__device__ __forceinline__ bool is_seen(u32 query, u32 key, u32 positions, u32 key_positions, u32 window) {
    // Later keys wrap around to large distances.
    return query < positions && key < key_positions && (!window || query - key < window);
}

// First key of the first tile that the queries of a tile see.
__device__ __forceinline__ u32 first_key(u32 query, u32 window) {
    return window && query >= window ? (query + 1 - window) / TILE * TILE : 0;
}

// Factors of the weights of one head.
struct Factors {
    const unsigned char* bits;
    u64 first;
    u32 key_positions;
    float kept;

    __device__ __forceinline__ float of(u32 query, u32 key) const {
        if (!bits) return 1;
        const u64 bit = first + (u64)query * key_positions + key;
        return bits[bit / 8] >> bit % 8 & 1 ? kept : 0;
    }
};

#define FACTORS(part, head)                                                       \
    Factors {                                                                     \
        mask ? mask + (u64)part.sample * mask_bytes : mask,                       \
            mask_first + (u64)(head)*positions * key_positions, key_positions, kept \
    }

// Numbers that one head adds to its scaled products: one for each distance, the position of
// the key minus that of the query, in increasing order; minus infinity for padding.
struct Biases {
    const float* data;
    const real* padding;
    u32 last_query;

    __device__ __forceinline__ float of(u32 query, u32 key) const {
        const float hidden = padding ? (padding[key] > 0.5f ? 0 : -INFINITY_F) : 0;
        return data ? data[last_query - query + key] + hidden : hidden;
    }
};

#define BIASES(part, head)                                                                  \
    Biases {                                                                                \
        biases ? biases + (head) * (positions + key_positions - 1) : biases,                \
            padding ? padding + (part).sample * key_positions : padding, positions - 1      \
    }

// Copies the number of each distance of each head from the parameters, `buckets x heads`. `buckets`
// has the bucket of each distance.
KERNEL attention_biases(u32 distances, u32 heads, const u32* __restrict__ buckets,
                        const real* __restrict__ parameters, float* __restrict__ biases) {
    const u32 element = ELEMENT;
    if (element >= distances * heads) return;
    biases[element] = parameters[buckets[element % distances] * heads + element / distances];
}

// Saves the logarithm of the sum of exponentials of each query. In evaluation `saved` is null.
KERNEL attention_forward(INPUTS, real* __restrict__ y, float* __restrict__ saved) {
    NAME_SIZES;
    __shared__ Slabs<> slabs;
    __shared__ __align__(16) float weights[TILE][PITCH];
    const Part part(positions, heads, width);
    const u32 features = heads * width, number = part.sample * heads + part.head;
    queries += part.start(positions, stride, part.head, width);
    keys += part.start(key_positions, key_stride, part.head / group, width);
    values += part.start(key_positions, key_stride, part.head / group, width);
    const Factors factors = FACTORS(part, part.head);
    const Biases added = BIASES(part, part.head);
    float result[4][4] = {}, best[4], total[4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++) best[i] = -INFINITY_F;
    const u32 end = window ? min(part.row + TILE, positions) : key_positions;
    ROLLED for (u32 first = first_key(part.row, window); first < end; first += TILE) {
        float scores[4][4] = {};
        multiply(slabs, 0, width, Rows(queries, part.row, positions, stride),
                 Rows(keys, first, key_positions, key_stride), scores);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float largest = -INFINITY_F;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const u32 key = first + TILE_COLUMN + j;
                // Rows beyond the last query are computed like it and not stored.
                const u32 query = min(part.row + TILE_ROW + i, positions - 1);
                const bool seen = is_seen(query, key, positions, key_positions, window);
                scores[i][j] = seen ? scores[i][j] * scale + added.of(query, key) : -INFINITY_F;
                largest = fmaxf(largest, scores[i][j]);
            }
            // The maximum is infinite until a query sees a key.
            const float now = fmaxf(best[i], row_largest(largest)), base = now == -INFINITY_F ? 0 : now;
            const float factor = expf(best[i] - base);
            float sum = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const u32 query = part.row + TILE_ROW + i, key = first + TILE_COLUMN + j;
                scores[i][j] = expf(scores[i][j] - base);
                sum += scores[i][j];
                if (is_seen(query, key, positions, key_positions, window))
                    scores[i][j] *= factors.of(query, key);
                result[i][j] *= factor;
            }
            best[i] = now;
            total[i] = total[i] * factor + row_sum(sum);
        }
        put_tile(scores, weights);
        multiply(slabs, 0, min(TILE, key_positions - first), SharedRows{weights},
                 Columns(values + first * key_stride, part.feature, width, key_stride), result);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 query = part.row + TILE_ROW + i;
#pragma unroll
        for (int j = 0; j < 4; j++) result[i][j] = total[i] > 0 ? result[i][j] / total[i] : 0;
        // The backward pass computes weights of zero for a query that sees no key.
        if (saved && part.feature == 0 && threadIdx.x % 16 == 0 && query < positions)
            saved[number * positions + query] = total[i] > 0 ? best[i] + logf(total[i]) : INFINITY_F;
    }
    store_tile(result, y + part.start(positions, features, part.head, width), part.row, positions,
               part.feature, width, features);
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

// Computes a tile's weights, times their factors, and their gradients. On entry, `weights` holds
// products of queries with keys, and `slopes` products of output gradients with values.
__device__ __forceinline__ void weigh(float (&weights)[4][4], float (&slopes)[4][4], u32 query0, u32 key0,
                                      u32 positions, u32 key_positions, u32 window, float scale,
                                      const float* log_sums, const float* means, const Factors& factors,
                                      const Biases& biases) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 query = query0 + TILE_ROW + i, place = min(query, positions - 1);
        const float log_sum = log_sums[place], mean = means[place];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const u32 key = key0 + TILE_COLUMN + j;
            const bool seen = is_seen(query, key, positions, key_positions, window);
            const float factor = seen ? factors.of(query, key) : 0;
            weights[i][j] = seen ? expf(weights[i][j] * scale + biases.of(query, key) - log_sum) : 0;
            slopes[i][j] = seen ? weights[i][j] * (slopes[i][j] * factor - mean) * scale : 0;
            weights[i][j] *= factor;
        }
    }
}

KERNEL attention_query_gradient(INPUTS, const float* __restrict__ saved, const float* __restrict__ means,
                                const real* __restrict__ dy, real* __restrict__ query_gradients) {
    NAME_SIZES;
    __shared__ Slabs<> slabs;
    __shared__ __align__(16) float shared[TILE][PITCH];
    const Part part(positions, heads, width);
    const u32 features = heads * width, number = part.sample * heads + part.head;
    const u64 output = part.start(positions, features, part.head, width);
    queries += part.start(positions, stride, part.head, width);
    keys += part.start(key_positions, key_stride, part.head / group, width);
    values += part.start(key_positions, key_stride, part.head / group, width);
    float result[4][4] = {};
    const u32 end = window ? min(part.row + TILE, positions) : key_positions;
    ROLLED for (u32 first = first_key(part.row, window); first < end; first += TILE) {
        float weights[4][4] = {}, slopes[4][4] = {};
        multiply(slabs, 0, width, Rows(queries, part.row, positions, stride),
                 Rows(keys, first, key_positions, key_stride), weights);
        multiply(slabs, 0, width, Rows(dy + output, part.row, positions, features),
                 Rows(values, first, key_positions, key_stride), slopes);
        weigh(weights, slopes, part.row, first, positions, key_positions, window, scale,
              saved + number * positions, means + number * positions, FACTORS(part, part.head),
              BIASES(part, part.head));
        put_tile(slopes, shared);
        multiply(slabs, 0, min(TILE, key_positions - first), SharedRows{shared},
                 Columns(keys + first * key_stride, part.feature, width, key_stride), result);
    }
    store_tile(result, query_gradients + part.start(positions, stride, part.head, width), part.row, positions,
               part.feature, width, stride);
}

// A block sums over the query heads of its key head.
KERNEL attention_key_value_gradient(INPUTS, const float* __restrict__ saved, const float* __restrict__ means,
                                    const real* __restrict__ dy, real* __restrict__ key_gradients,
                                    real* __restrict__ value_gradients) {
    NAME_SIZES;
    __shared__ Slabs<> slabs;
    __shared__ __align__(16) float shared[TILE][PITCH];
    const Part part(key_positions, heads / group, width);
    const u32 features = heads * width;
    const u64 start = part.start(key_positions, key_stride, part.head, width);
    keys += start;
    values += start;
    float key_gradient[4][4] = {}, value_gradient[4][4] = {};
    ROLLED for (u32 head = part.head * group; head < (part.head + 1) * group; head++) {
        const u32 number = part.sample * heads + head;
        const real* of_head = queries + part.start(positions, stride, head, width);
        const real* gradients = dy + part.start(positions, features, head, width);
        // Earlier queries do not attend to the keys of this tile, nor do those beyond the window.
        const u32 end = window ? min(part.row + TILE - 1 + window, positions) : positions;
        ROLLED for (u32 first = window ? part.row : 0; first < end; first += TILE) {
            float weights[4][4] = {}, slopes[4][4] = {};
            multiply(slabs, 0, width, Rows(of_head, first, positions, stride),
                     Rows(keys, part.row, key_positions, key_stride), weights);
            multiply(slabs, 0, width, Rows(gradients, first, positions, features),
                     Rows(values, part.row, key_positions, key_stride), slopes);
            weigh(weights, slopes, first, part.row, positions, key_positions, window, scale,
                  saved + number * positions, means + number * positions, FACTORS(part, head),
                  BIASES(part, head));
            const u32 count = min(TILE, positions - first);
            put_tile(weights, shared);
            multiply(slabs, 0, count, SharedColumns{shared},
                     Columns(gradients + first * features, part.feature, width, features), value_gradient);
            put_tile(slopes, shared);
            multiply(slabs, 0, count, SharedColumns{shared},
                     Columns(of_head + first * stride, part.feature, width, stride), key_gradient);
        }
    }
    store_tile(key_gradient, key_gradients + start, part.row, key_positions, part.feature, width, key_stride);
    store_tile(value_gradient, value_gradients + start, part.row, key_positions, part.feature, width,
               key_stride);
}

// Number of diagonals of a tile. A diagonal has the products of one distance.
#define DIAGONALS (2 * TILE - 1)

// Sums the gradients of the scaled products over the samples and over each distance. A block has
// the tiles of one diagonal of tiles: `sums` is `heads x diagonals of tiles x DIAGONALS`.
KERNEL attention_bias_sums(INPUTS, const float* __restrict__ saved, const float* __restrict__ means,
                           const real* __restrict__ dy, u32 samples, float* __restrict__ sums) {
    NAME_SIZES;
    __shared__ Slabs<> slabs;
    __shared__ __align__(16) float shared[TILE][PITCH];
    const u32 rows = tiles(positions), columns = tiles(key_positions), features = heads * width;
    // The first diagonal has the last tile of queries and the first one of keys.
    const u32 diagonal_of_tiles = blockIdx.x % (rows + columns - 1);
    const u32 begin = diagonal_of_tiles < rows ? rows - 1 - diagonal_of_tiles : 0;
    const u32 end = min(rows, rows + columns - 1 - diagonal_of_tiles);
    Part part(1, heads, 1);
    part.head = blockIdx.x / (rows + columns - 1);
    float result[4][4] = {};
    ROLLED for (u32 i = 0; i < (end - begin) * samples; i++) {
        part.sample = i / (end - begin);
        part.row = (begin + i % (end - begin)) * TILE;
        const u32 first = part.row + (diagonal_of_tiles + 1 - rows) * TILE;
        const u32 number = part.sample * heads + part.head;
        const u64 start = part.start(key_positions, key_stride, part.head / group, width);
        float weights[4][4] = {}, slopes[4][4] = {};
        multiply(slabs, 0, width,
                 Rows(queries + part.start(positions, stride, part.head, width), part.row, positions, stride),
                 Rows(keys + start, first, key_positions, key_stride), weights);
        multiply(slabs, 0, width,
                 Rows(dy + part.start(positions, features, part.head, width), part.row, positions, features),
                 Rows(values + start, first, key_positions, key_stride), slopes);
        weigh(weights, slopes, part.row, first, positions, key_positions, window, scale,
              saved + number * positions, means + number * positions, FACTORS(part, part.head),
              BIASES(part, part.head));
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) result[i][j] += slopes[i][j];
    }
    put_tile(result, shared);
    const u32 diagonal = threadIdx.x;
    if (diagonal >= DIAGONALS) return;
    float sum = 0;
    // The first diagonal has the last query and the first key of the tile.
    ROLLED for (u32 query = 0; query < TILE; query++) {
        const u32 key = query + diagonal - (TILE - 1);
        if (key < TILE) sum += shared[query][key];
    }
    sums[blockIdx.x * DIAGONALS + diagonal] = sum / scale;
}

// Sums the distances of each bucket and head, one warp for each.
KERNEL attention_bias_gradient(u32 parameters, Sizes sizes, const u32* __restrict__ buckets,
                               const float* __restrict__ sums, float* __restrict__ gradient) {
    NAME_SIZES;
    const u32 row = ROW;
    if (row >= parameters) return;
    const u32 bucket = row / heads, head = row % heads, rows = tiles(positions);
    const u32 count = (rows + tiles(key_positions) - 1) * DIAGONALS;
    double sum = 0;
    ROLLED for (u32 i = LANE; i < count; i += 32) {
        // Wraps around for distances that no query and key have.
        const u32 distance = positions + (i / DIAGONALS - rows) * TILE + i % DIAGONALS;
        if (distance < positions + key_positions - 1 && buckets[distance] == bucket)
            sum += sums[head * count + i];
    }
    sum = warp_sum(sum);
    if (LANE == 0) gradient[row] = (float)sum;
}
