// Layer normalisation and root-mean-square normalisation of rows of features, one warp per row, and
// group normalisation, one block per group of a sample.
#include "basics.cuh"

// Saves mean and inverse standard deviation of each row. In evaluation `saved` is null.
KERNEL layer_norm_forward(u32 rows, u32 features, double epsilon, const real* __restrict__ x,
                          const real* __restrict__ parameters, real* __restrict__ y,
                          float* __restrict__ saved) {
    const u32 row = ROW;
    if (row >= rows) return;
    x += row * features;
    y += row * features;
    double sum = 0, squares = 0;
    ROLLED for (u32 i = LANE; i < features; i += 32) sum += x[i];
    const double exact_mean = warp_sum(sum) / features;
    ROLLED for (u32 i = LANE; i < features; i += 32) squares += (x[i] - exact_mean) * (x[i] - exact_mean);
    const float mean = (float)exact_mean, scale = (float)(1.0 / sqrt(warp_sum(squares) / features + epsilon));
    ROLLED for (u32 i = LANE; i < features; i += 32)
        y[i] = (x[i] - mean) * scale * parameters[i] + parameters[features + i];
    if (saved && LANE == 0) {
        saved[2 * row] = mean;
        saved[2 * row + 1] = scale;
    }
}

// With g = weight * dy: dx = scale * (g - mean(g) - normalised x * mean(g * normalised x)).
KERNEL layer_norm_input_gradient(u32 rows, u32 features, const real* __restrict__ x,
                                 const real* __restrict__ parameters, const float* __restrict__ saved,
                                 const real* __restrict__ dy, real* __restrict__ dx) {
    const u32 row = ROW;
    if (row >= rows) return;
    x += row * features;
    dy += row * features;
    dx += row * features;
    const float mean = saved[2 * row], scale = saved[2 * row + 1];
    double sum = 0, centred = 0;
    ROLLED for (u32 i = LANE; i < features; i += 32) {
        const double g = dy[i] * parameters[i];
        sum += g;
        centred += g * ((double)x[i] - mean);
    }
    const float offset = (float)(warp_sum(sum) / features);
    const float slope = (float)(warp_sum(centred) * scale * scale / features);
    ROLLED for (u32 i = LANE; i < features; i += 32)
        dx[i] = scale * (dy[i] * parameters[i] - offset - (x[i] - mean) * slope);
}

// Sums over the rows. A block has 32 features; its warps process rows in turn.
KERNEL layer_norm_parameter_gradient(u32 rows, u32 features, const real* __restrict__ x,
                                     const float* __restrict__ saved, const real* __restrict__ dy,
                                     float* __restrict__ gradient) {
    __shared__ double weights[WARPS][32], biases[WARPS][32];
    const u32 feature = blockIdx.x * 32 + LANE, warp = threadIdx.x / 32;
    double weight = 0, bias = 0;
    if (feature < features) {
        ROLLED for (u32 row = warp; row < rows; row += WARPS) {
            const double g = dy[row * features + feature];
            weight += g * (((double)x[row * features + feature] - saved[2 * row]) * saved[2 * row + 1]);
            bias += g;
        }
    }
    weights[warp][LANE] = weight;
    biases[warp][LANE] = bias;
    __syncthreads();
    if (warp == 0 && feature < features) {
        weight = bias = 0;
#pragma unroll
        for (int part = 0; part < WARPS; part++) {
            weight += weights[part][LANE];
            bias += biases[part][LANE];
        }
        gradient[feature] = (float)weight;
        gradient[features + feature] = (float)bias;
    }
}

// Saves the inverse root mean square of each row. In evaluation `saved` is null. The factor of a
// feature is its weight plus `offset`.
KERNEL rms_norm_forward(u32 rows, u32 features, double epsilon, float offset, const real* __restrict__ x,
                        const real* __restrict__ weight, real* __restrict__ y, float* __restrict__ saved) {
    const u32 row = ROW;
    if (row >= rows) return;
    x += row * features;
    y += row * features;
    double squares = 0;
    ROLLED for (u32 i = LANE; i < features; i += 32) squares += (double)x[i] * x[i];
    const float scale = (float)(1.0 / sqrt(warp_sum(squares) / features + epsilon));
    ROLLED for (u32 i = LANE; i < features; i += 32) y[i] = x[i] * scale * (weight[i] + offset);
    if (saved && LANE == 0) saved[row] = scale;
}

// With g = factor * dy: dx = scale * (g - x * scale^2 * mean(g * x)).
KERNEL rms_norm_input_gradient(u32 rows, u32 features, float offset, const real* __restrict__ x,
                               const real* __restrict__ weight, const float* __restrict__ saved,
                               const real* __restrict__ dy, real* __restrict__ dx) {
    const u32 row = ROW;
    if (row >= rows) return;
    x += row * features;
    dy += row * features;
    dx += row * features;
    const float scale = saved[row];
    double sum = 0;
    ROLLED for (u32 i = LANE; i < features; i += 32) sum += (double)(dy[i] * (weight[i] + offset)) * x[i];
    const float slope = (float)(warp_sum(sum) * scale * scale / features);
    ROLLED for (u32 i = LANE; i < features; i += 32)
        dx[i] = scale * (dy[i] * (weight[i] + offset) - x[i] * slope);
}

// Sums over the rows. A block has 32 features; its warps process rows in turn.
KERNEL rms_norm_parameter_gradient(u32 rows, u32 features, const real* __restrict__ x,
                                   const float* __restrict__ saved, const real* __restrict__ dy,
                                   float* __restrict__ gradient) {
    __shared__ double weights[WARPS][32];
    const u32 feature = blockIdx.x * 32 + LANE, warp = threadIdx.x / 32;
    double weight = 0;
    if (feature < features) {
        ROLLED for (u32 row = warp; row < rows; row += WARPS)
            weight += (double)dy[row * features + feature] * x[row * features + feature] * saved[row];
    }
    weights[warp][LANE] = weight;
    __syncthreads();
    if (warp == 0 && feature < features) {
        weight = 0;
#pragma unroll
        for (int part = 0; part < WARPS; part++) weight += weights[part][LANE];
        gradient[feature] = (float)weight;
    }
}

// Channels of group normalisation.
struct Groups {
    u32 groups;
    // Channels of a group, and elements of a channel of a sample.
    u32 channels, pixels;
    // Whether the channels of a pixel are adjacent, instead of the pixels of a channel.
    u32 last;

    __device__ __forceinline__ u32 row() const { return channels * pixels; }
    // Channel of an element of a row, from the first one of the group on.
    __device__ __forceinline__ u32 channel(u32 i) const { return last ? i % channels : i / pixels; }
    // Index of an element of a row in a batch. A row is a group of a sample.
    __device__ __forceinline__ u32 place(u32 row, u32 i) const {
        const u32 first = row % groups * channels;
        return last ? (row / groups * pixels + i / channels) * groups * channels + first + i % channels
                    : row * channels * pixels + i;
    }
};

// Saves mean and inverse standard deviation of each row. In evaluation `saved` is null.
KERNEL group_norm_forward(const Groups g, double epsilon, const real* __restrict__ x,
                          const real* __restrict__ parameters, real* __restrict__ y,
                          float* __restrict__ saved) {
    __shared__ double sums[WARPS], squares[WARPS];
    const u32 row = blockIdx.x;
    double sum = 0, square = 0;
    ROLLED for (u32 i = threadIdx.x; i < g.row(); i += THREADS) sum += x[g.place(row, i)];
    const double exact_mean = block_sum(sum, sums) / g.row();
    ROLLED for (u32 i = threadIdx.x; i < g.row(); i += THREADS) {
        const double distance = x[g.place(row, i)] - exact_mean;
        square += distance * distance;
    }
    const float mean = (float)exact_mean,
                scale = (float)(1.0 / sqrt(block_sum(square, squares) / g.row() + epsilon));
    parameters += row % g.groups * g.channels;
    ROLLED for (u32 i = threadIdx.x; i < g.row(); i += THREADS) {
        const u32 at = g.place(row, i), channel = g.channel(i);
        y[at] = (x[at] - mean) * scale * parameters[channel] + parameters[g.groups * g.channels + channel];
    }
    if (saved && threadIdx.x == 0) {
        saved[2 * row] = mean;
        saved[2 * row + 1] = scale;
    }
}

// As `layer_norm_input_gradient`.
KERNEL group_norm_input_gradient(const Groups g, const real* __restrict__ x,
                                 const real* __restrict__ parameters, const float* __restrict__ saved,
                                 const real* __restrict__ dy, real* __restrict__ dx) {
    __shared__ double sums[WARPS], products[WARPS];
    const u32 row = blockIdx.x;
    const float mean = saved[2 * row], scale = saved[2 * row + 1];
    parameters += row % g.groups * g.channels;
    double sum = 0, centred = 0;
    ROLLED for (u32 i = threadIdx.x; i < g.row(); i += THREADS) {
        const u32 at = g.place(row, i);
        const double of_normalised = dy[at] * parameters[g.channel(i)];
        sum += of_normalised;
        centred += of_normalised * ((double)x[at] - mean);
    }
    const float offset = (float)(block_sum(sum, sums) / g.row());
    const float slope = (float)(block_sum(centred, products) * scale * scale / g.row());
    ROLLED for (u32 i = threadIdx.x; i < g.row(); i += THREADS) {
        const u32 at = g.place(row, i);
        dx[at] = scale * (dy[at] * parameters[g.channel(i)] - offset - (x[at] - mean) * slope);
    }
}

// A block sums over the samples and pixels of its channel.
KERNEL group_norm_parameter_gradient(u32 samples, const Groups g, const real* __restrict__ x,
                                     const float* __restrict__ saved, const real* __restrict__ dy,
                                     float* __restrict__ gradient) {
    __shared__ double weights[WARPS], biases[WARPS];
    const u32 channel = blockIdx.x, group = channel / g.channels;
    double weight = 0, bias = 0;
    ROLLED for (u32 j = threadIdx.x; j < samples * g.pixels; j += THREADS) {
        const u32 row = j / g.pixels * g.groups + group, pixel = j % g.pixels, own = channel % g.channels;
        const u32 at = g.place(row, g.last ? pixel * g.channels + own : own * g.pixels + pixel);
        weight += (double)dy[at] * (((double)x[at] - saved[2 * row]) * saved[2 * row + 1]);
        bias += dy[at];
    }
    weight = block_sum(weight, weights);
    bias = block_sum(bias, biases);
    if (threadIdx.x == 0) {
        gradient[channel] = (float)weight;
        gradient[g.groups * g.channels + channel] = (float)bias;
    }
}
