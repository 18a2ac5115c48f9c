// Batch normalisation in passes, between which the moments can be reduced over ranks. Sums are in
// double precision, because the variance is the mean of squares minus the square of the mean.
#include "chain.cuh"

// Index of one of a channel's elements, which are walked in steps of a block.
struct Walk {
    u32 channels, positions, channel, sample, position;

    __device__ __forceinline__ Walk(u32 channels, u32 positions, u32 channel, u32 first)
        : channels(channels), positions(positions), channel(channel), sample(first / positions),
          position(first % positions) {}

    __device__ __forceinline__ u32 index() const {
        return (sample * channels + channel) * positions + position;
    }

    __device__ __forceinline__ void advance() {
        sample += THREADS / positions;
        position += THREADS % positions;
        if (position >= positions) position -= positions, sample++;
    }
};

// Two sums of a channel.
struct Sums {
    double first, second;
};

// Writes the sums of a channel to the moments, and to the gradient of weight and bias unless it is
// null.
__device__ __forceinline__ void put_moments(u32 channel, u32 channels, u32 count, const Sums& sums,
                                            float* moments, float* gradient) {
    moments[channel] = (float)sums.first;
    moments[channels + channel] = (float)sums.second;
    if (channel == 0) moments[2 * channels] = (float)count;
    if (gradient) {
        gradient[channel] = (float)sums.second;
        gradient[channels + channel] = (float)sums.first;
    }
}

// Writes the sums of a block: to the moments if there is one slice. Otherwise to `parts`, of which
// the last block of a channel adds those of its slices in order.
__device__ __forceinline__ void put_sums(u32 channels, u32 count, const Sums& sums, Sums* parts,
                                         u32* counters, float* moments, float* gradient) {
    if (threadIdx.x != 0) return;
    const u32 channel = blockIdx.x, slices = gridDim.y;
    Sums all = sums;
    if (slices > 1) {
        parts += channel * slices;
        parts[blockIdx.y] = sums;
        if (!is_last(counters + channel, slices)) return;
        all = Sums{0, 0};
        ROLLED for (u32 slice = 0; slice < slices; slice++) {
            all.first += parts[slice].first;
            all.second += parts[slice].second;
        }
    }
    put_moments(channel, channels, count, all, moments, gradient);
}

// Moments of a channel over all samples and positions: sum, sum of squares, count. One block per
// channel and slice of `slice` terms.
KERNEL batch_norm_moments(u32 samples, u32 channels, u32 positions, u32 slice, const real* __restrict__ x,
                          Sums* parts, u32* counters, float* __restrict__ moments,
                          float* __restrict__ gradient) {
    __shared__ double scratch[2][WARPS];
    const u32 count = samples * positions, from = blockIdx.y * slice, to = min(from + slice, count);
    Walk at(channels, positions, blockIdx.x, from + threadIdx.x);
    double sum = 0, squares = 0;
    ROLLED for (u32 i = from + threadIdx.x; i < to; i += THREADS, at.advance()) {
        const double value = x[at.index()];
        sum += value;
        squares += value * value;
    }
    sum = block_sum(sum, scratch[0]);
    squares = block_sum(squares, scratch[1]);
    put_sums(channels, count, Sums{sum, squares}, parts, counters, moments, gradient);
}

// A channel's output as a linear function of its input.
struct Line {
    float slope, offset;
};

// Returns the normalisation of a channel.
__device__ __forceinline__ Line line_of(u32 channel, u32 channels, const real* parameters, double mean,
                                        double inverse_deviation) {
    const double slope = parameters[channel] * inverse_deviation;
    return Line{(float)slope, (float)(parameters[channels + channel] - slope * mean)};
}

// Applies a line to the part of a channel that belongs to the block, adds the other term unless it
// is null, and replaces negative values by 0 if it `rectifies`. An operand that is written may be
// one that is read.
__device__ __forceinline__ void apply(u32 samples, u32 channels, u32 positions, u32 slice, const Line& line,
                                      u32 rectifies, const real* x, const real* added, real* y) {
    const u32 count = samples * positions, from = blockIdx.y * slice, to = min(from + slice, count);
    Walk at(channels, positions, blockIdx.x, from + threadIdx.x);
    ROLLED for (u32 i = from + threadIdx.x; i < to; i += THREADS, at.advance()) {
        const u32 element = at.index();
        // It is rounded as if it was stored.
        const real normalised = line.slope * x[element] + line.offset;
        float value = normalised;
        if (added) value += added[element];
        y[element] = rectifies ? rectified(value) : value;
    }
}

// Normalises by the moments. The first block of a channel saves mean and inverse standard
// deviation, and updates the running statistics unless they are null. Then adds another term and
// rectifies, as `apply` does. One block per channel and slice of `slice` elements.
KERNEL batch_norm_forward(u32 samples, u32 channels, u32 positions, u32 slice, double epsilon,
                          double momentum, u32 rectifies, const real* x,
                          const real* __restrict__ parameters, const float* __restrict__ moments,
                          float* __restrict__ saved, float* __restrict__ statistics, const real* added,
                          real* y) {
    __shared__ Line line;
    const u32 channel = blockIdx.x;
    if (threadIdx.x == 0) {
        const double count = moments[2 * channels];
        double mean = 0, variance = 0;
        if (count > 0) {
            mean = moments[channel] / count;
            // Rounding can make the variance of a constant channel slightly negative.
            variance = fmax(moments[channels + channel] / count - mean * mean, 0.0);
        }
        const double inverse_deviation = 1.0 / sqrt(variance + epsilon);
        line = line_of(channel, channels, parameters, mean, inverse_deviation);
        if (blockIdx.y == 0) {
            saved[channel] = (float)mean;
            saved[channels + channel] = (float)inverse_deviation;
            if (statistics && count > 0) {
                const double former_mean = statistics[channel];
                const double former_variance = statistics[channels + channel];
                const double unbiased = variance * count / fmax(count - 1, 1.0);
                statistics[channel] = (float)(former_mean + momentum * (mean - former_mean));
                statistics[channels + channel] =
                    (float)(former_variance + momentum * (unbiased - former_variance));
            }
        }
    }
    __syncthreads();
    apply(samples, channels, positions, slice, line, rectifies, x, added, y);
}

// Normalises by the running statistics. One block per channel and slice of `slice` elements.
KERNEL batch_norm_infer(u32 samples, u32 channels, u32 positions, u32 slice, double epsilon,
                        const real* __restrict__ x, const real* __restrict__ parameters,
                        const float* __restrict__ statistics, real* __restrict__ y) {
    __shared__ Line line;
    const u32 channel = blockIdx.x;
    if (threadIdx.x == 0)
        line = line_of(channel, channels, parameters, statistics[channel],
                       1.0 / sqrt(statistics[channels + channel] + epsilon));
    __syncthreads();
    apply(samples, channels, positions, slice, line, 0, x, nullptr, y);
}

// Sums of the gradient and of gradient * normalised x. They are the gradients of bias and weight
// too. The gradient is the result of a chain of elementwise operations, of which copies are
// written. A copy may be a term or the gate, but not x. One block per channel and slice of `slice`
// terms.
KERNEL batch_norm_gradient_moments(u32 samples, u32 channels, u32 positions, u32 slice,
                                   const real* __restrict__ x, const float* __restrict__ saved,
                                   const real* a, const real* b, const real* c, const real* d,
                                   const real* gate, real* to_a, real* to_b, real* to_c, real* to_d,
                                   Sums* parts, u32* counters, float* __restrict__ moments,
                                   float* __restrict__ gradient) {
    __shared__ double scratch[2][WARPS];
    const u32 channel = blockIdx.x;
    const u32 count = samples * positions, from = blockIdx.y * slice, to = min(from + slice, count);
    const double mean = saved[channel];
    Walk at(channels, positions, channel, from + threadIdx.x);
    double sum = 0, centred = 0;
    ROLLED for (u32 i = from + threadIdx.x; i < to; i += THREADS, at.advance()) {
        const u32 element = at.index();
        // It is rounded as if it was stored and read.
        const real value = gated_sum(element, a, b, c, d, gate);
        put_copies(element, value, to_a, to_b, to_c, to_d);
        const double slope = value;
        sum += slope;
        centred += slope * (x[element] - mean);
    }
    sum = block_sum(sum, scratch[0]);
    centred = block_sum(centred, scratch[1]) * saved[channels + channel];
    put_sums(channels, count, Sums{sum, centred}, parts, counters, moments, gradient);
}

// dx = scale * (dy - mean(dy) - normalised x * mean(dy * normalised x)) as a linear function of dy
// and x with coefficients scale, slope and offset. One block per channel and slice of `slice`
// elements.
KERNEL batch_norm_input_gradient(u32 samples, u32 channels, u32 positions, u32 slice,
                                 const real* __restrict__ x, const real* __restrict__ parameters,
                                 const float* __restrict__ saved, const float* __restrict__ moments,
                                 const real* __restrict__ dy, real* __restrict__ dx) {
    __shared__ float scale_of_dy;
    __shared__ Line line;
    const u32 channel = blockIdx.x;
    if (threadIdx.x == 0) {
        const double count = fmax((double)moments[2 * channels], 1.0);
        const double mean = saved[channel], inverse_deviation = saved[channels + channel];
        const double scale = parameters[channel] * inverse_deviation;
        const double slope = -scale * (moments[channels + channel] / count) * inverse_deviation;
        scale_of_dy = (float)scale;
        line = Line{(float)slope, (float)(-scale * (moments[channel] / count) - slope * mean)};
    }
    __syncthreads();
    const u32 elements = samples * positions, from = blockIdx.y * slice, to = min(from + slice, elements);
    Walk at(channels, positions, channel, from + threadIdx.x);
    ROLLED for (u32 i = from + threadIdx.x; i < to; i += THREADS, at.advance())
        dx[at.index()] = scale_of_dy * dy[at.index()] + line.slope * x[at.index()] + line.offset;
}
