// Additive attention (Bahdanau, Cho and Bengio, 2015). A row is a query of a sample. The hyperbolic
// tangents of all pairs are never stored: the gradients compute them again.
#include "basics.cuh"

// Sizes of a sample.
struct Sizes {
    u32 positions, key_positions, units, features;
};

// The inputs. `vector` has the factor of each unit, as of `additive_vector`. `bias` has a number of
// each unit, or is null.
#define INPUTS                                                                                    \
    Sizes sizes, const real *__restrict__ queries, const real *__restrict__ keys,                 \
        const real *__restrict__ values, const float *__restrict__ vector, const real *__restrict__ bias

// Sum of a query and the bias.
__device__ __forceinline__ float biased(float query, const real* bias, u32 unit) {
    return bias ? query + bias[unit] : query;
}

// Computes the factors of the units: the first parameters, divided by their norm and multiplied by
// the next parameter if `normalised`. One block.
KERNEL additive_vector(u32 units, u32 normalised, const real* __restrict__ parameters,
                       float* __restrict__ vector) {
    __shared__ double squares[WARPS];
    float factor = 1;
    if (normalised) {
        double sum = 0;
        ROLLED for (u32 unit = threadIdx.x; unit < units; unit += THREADS)
            sum += (double)parameters[unit] * parameters[unit];
        factor = (float)(parameters[units] / sqrt(block_sum(sum, squares)));
    }
    ROLLED for (u32 unit = threadIdx.x; unit < units; unit += THREADS)
        vector[unit] = parameters[unit] * factor;
}

// Computes the weights and the output of a row. A warp computes the scores of every WARPS-th key.
KERNEL additive_forward(INPUTS, real* __restrict__ y, float* weights) {
    const u32 row = blockIdx.x, sample = row / sizes.positions, warp = threadIdx.x / 32;
    queries += row * sizes.units;
    keys += sample * sizes.key_positions * sizes.units;
    values += sample * sizes.key_positions * sizes.features;
    weights += row * sizes.key_positions;
    ROLLED for (u32 key = warp; key < sizes.key_positions; key += WARPS) {
        double sum = 0;
        ROLLED for (u32 unit = LANE; unit < sizes.units; unit += 32)
            sum += vector[unit] * tanhf(biased(queries[unit], bias, unit) + keys[key * sizes.units + unit]);
        sum = warp_sum(sum);
        if (LANE == 0) weights[key] = (float)sum;
    }
    __syncthreads();
    // Each warp computes the same numbers.
    float largest = -INFINITY_F;
    ROLLED for (u32 key = LANE; key < sizes.key_positions; key += 32) largest = fmaxf(largest, weights[key]);
    largest = warp_largest(largest);
    double total = 0;
    ROLLED for (u32 key = LANE; key < sizes.key_positions; key += 32) total += expf(weights[key] - largest);
    const float factor = (float)(1.0 / warp_sum(total));
    __syncthreads();
    ROLLED for (u32 key = threadIdx.x; key < sizes.key_positions; key += THREADS)
        weights[key] = expf(weights[key] - largest) * factor;
    __syncthreads();
    ROLLED for (u32 feature = threadIdx.x; feature < sizes.features; feature += THREADS) {
        float sum = 0;
        ROLLED for (u32 key = 0; key < sizes.key_positions; key++)
            sum += weights[key] * values[key * sizes.features + feature];
        y[row * sizes.features + feature] = sum;
    }
}

// Computes the gradients of a row's scores: with the gradients g of its weights, weight * (g - the
// sum of weight * g). A warp computes those of every WARPS-th key.
KERNEL additive_slopes(Sizes sizes, const real* __restrict__ values, const float* __restrict__ weights,
                       const real* __restrict__ dy, float* slopes) {
    __shared__ double sums[WARPS];
    const u32 row = blockIdx.x, sample = row / sizes.positions, warp = threadIdx.x / 32;
    values += sample * sizes.key_positions * sizes.features;
    weights += row * sizes.key_positions;
    dy += row * sizes.features;
    slopes += row * sizes.key_positions;
    double mean = 0;
    ROLLED for (u32 key = warp; key < sizes.key_positions; key += WARPS) {
        double sum = 0;
        ROLLED for (u32 feature = LANE; feature < sizes.features; feature += 32)
            sum += dy[feature] * values[key * sizes.features + feature];
        sum = warp_sum(sum);
        if (LANE == 0) {
            slopes[key] = (float)sum;
            mean += weights[key] * sum;
        }
    }
    // Its barrier makes the slopes visible, too.
    const float offset = (float)block_sum(mean, sums);
    ROLLED for (u32 key = threadIdx.x; key < sizes.key_positions; key += THREADS)
        slopes[key] = weights[key] * (slopes[key] - offset);
}

// Computes a row's gradient `of_units` of the sums of queries, keys and biases, and `of_vector`,
// that of the factors. The first one is also written to `dq` if that is not null.
KERNEL additive_query_gradient(INPUTS, const float* __restrict__ slopes, real* __restrict__ dq,
                               float* __restrict__ of_units, float* __restrict__ of_vector) {
    const u32 row = blockIdx.x, sample = row / sizes.positions;
    keys += sample * sizes.key_positions * sizes.units;
    slopes += row * sizes.key_positions;
    ROLLED for (u32 unit = threadIdx.x; unit < sizes.units; unit += THREADS) {
        const u32 at = row * sizes.units + unit;
        const float query = biased(queries[at], bias, unit);
        float of_unit = 0, of_factor = 0;
        ROLLED for (u32 key = 0; key < sizes.key_positions; key++) {
            const float tangent = tanhf(query + keys[key * sizes.units + unit]);
            of_unit += slopes[key] * (1 - tangent * tangent);
            of_factor += slopes[key] * tangent;
        }
        of_unit *= vector[unit];
        of_units[at] = of_unit;
        of_vector[at] = of_factor;
        if (dq) dq[at] = of_unit;
    }
}

// Computes the gradients of a key and of a value of a sample.
KERNEL additive_key_value_gradient(INPUTS, const float* __restrict__ weights,
                                   const float* __restrict__ slopes, const real* __restrict__ dy,
                                   real* __restrict__ dk, real* __restrict__ dv) {
    const u32 sample = blockIdx.x / sizes.key_positions, key = blockIdx.x % sizes.key_positions;
    queries += sample * sizes.positions * sizes.units;
    weights += sample * sizes.positions * sizes.key_positions + key;
    slopes += sample * sizes.positions * sizes.key_positions + key;
    dy += sample * sizes.positions * sizes.features;
    ROLLED for (u32 unit = threadIdx.x; unit < sizes.units; unit += THREADS) {
        const u32 at = blockIdx.x * sizes.units + unit;
        const float own = biased(keys[at], bias, unit);
        float sum = 0;
        ROLLED for (u32 query = 0; query < sizes.positions; query++) {
            const float tangent = tanhf(queries[query * sizes.units + unit] + own);
            sum += slopes[query * sizes.key_positions] * (1 - tangent * tangent);
        }
        dk[at] = vector[unit] * sum;
    }
    ROLLED for (u32 feature = threadIdx.x; feature < sizes.features; feature += THREADS) {
        float sum = 0;
        ROLLED for (u32 query = 0; query < sizes.positions; query++)
            sum += weights[query * sizes.key_positions] * dy[query * sizes.features + feature];
        dv[blockIdx.x * sizes.features + feature] = sum;
    }
}

// Sums the gradients of rows over all rows. A block has 32 units; its warps process rows in turn.
KERNEL additive_sums(u32 rows, u32 units, const float* __restrict__ gradients, float* __restrict__ result) {
    __shared__ double sums[WARPS][32];
    const u32 unit = blockIdx.x * 32 + LANE, warp = threadIdx.x / 32;
    double sum = 0;
    if (unit < units) {
        ROLLED for (u32 row = warp; row < rows; row += WARPS) sum += gradients[row * units + unit];
    }
    sums[warp][LANE] = sum;
    __syncthreads();
    if (warp == 0 && unit < units) {
        sum = 0;
#pragma unroll
        for (int part = 0; part < WARPS; part++) sum += sums[part][LANE];
        result[unit] = (float)sum;
    }
}

// Replaces the gradient w of the factors by that of a normalised vector v and of its factor f, the
// parameter after it. With u = v / |v|: the gradients are f / |v| * (w - u (u w)), and u w. One
// block.
KERNEL additive_vector_gradient(u32 units, const real* __restrict__ parameters, float* gradient) {
    __shared__ double squares[WARPS], products[WARPS];
    double square = 0, product = 0;
    ROLLED for (u32 unit = threadIdx.x; unit < units; unit += THREADS) {
        square += (double)parameters[unit] * parameters[unit];
        product += (double)parameters[unit] * gradient[unit];
    }
    const double norm = sqrt(block_sum(square, squares)), along = block_sum(product, products) / norm;
    const double scale = parameters[units] / norm, back = along / norm;
    if (threadIdx.x == 0) gradient[units] = (float)along;
    ROLLED for (u32 unit = threadIdx.x; unit < units; unit += THREADS)
        gradient[unit] = (float)(scale * (gradient[unit] - parameters[unit] * back));
}
