// Batch normalisation in passes, between which the moments can be reduced over ranks. Sums are in
// double precision, because the variance is the mean of squares minus the square of the mean.
//
// A kernel has a variant for each type in `channels.cuh`, its parameter `Walk`. There is a block
// for each `Walk::CHANNELS` channels and each slice of `slice` pixels of all samples.
#include "chain.cuh"
#include "channels.cuh"

// Writes the two sums that a block has in its first threads to the moments, and to the gradient of
// weight and bias unless it is null. If there are several slices, the last block of the channels
// writes the sums of all slices.
template <class Walk>
__device__ __forceinline__ void put_sums(u32 channels, u32 count, double (&sums)[2], double* parts,
                                         u32* counters, float* moments, float* gradient) {
    if (!sum_slices<Walk>(channels, sums, parts, counters) || !has_own_channel<Walk>(channels)) return;
    const u32 channel = own_channel<Walk>();
    moments[channel] = (float)sums[0];
    moments[channels + channel] = (float)sums[1];
    if (channel == 0) moments[2 * channels] = (float)count;
    if (gradient) {
        gradient[channel] = (float)sums[1];
        gradient[channels + channel] = (float)sums[0];
    }
}

// Sum, sum of squares and number of values of each channel over all samples and positions.
template <class Walk>
__device__ __forceinline__ void moments(u32 samples, u32 channels, u32 positions, u32 slice,
                                        const real* __restrict__ x, double* parts, u32* counters,
                                        float* __restrict__ moments, float* __restrict__ gradient) {
    const u32 count = samples * positions, from = blockIdx.y * slice, to = min(from + slice, count);
    Walk at(channels, positions, from);
    double values[2][Walk::WIDTH] = {};
    ROLLED for (u32 i = from + Walk::pixel(); i < to; i += Walk::LOADS * Walk::STEP) {
        float loaded[Walk::LOADS][Walk::WIDTH] = {};
#pragma unroll
        for (int load = 0; load < Walk::LOADS; load++, at.advance())
            if (i + load * Walk::STEP < to) at.load(x, loaded[load]);
#pragma unroll
        for (int load = 0; load < Walk::LOADS; load++) {
#pragma unroll
            for (int j = 0; j < Walk::WIDTH; j++) {
                const double value = loaded[load][j];
                values[0][j] += value;
                values[1][j] += value * value;
            }
        }
    }
    double sums[2];
    Walk::sum_pixels(values, sums);
    put_sums<Walk>(channels, count, sums, parts, counters, moments, gradient);
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

// Applies the lines of the block's channels to its pixels, adds the other term unless it is null,
// and replaces negative values by 0 if it `rectifies`. An operand that is written may be one that
// is read.
template <class Walk>
__device__ __forceinline__ void apply(u32 samples, u32 channels, u32 positions, u32 slice,
                                      const Line (&lines)[Walk::CHANNELS], u32 rectifies, const real* x,
                                      const real* added, real* y) {
    const u32 count = samples * positions, from = blockIdx.y * slice, to = min(from + slice, count);
    Walk at(channels, positions, from);
    Line line[Walk::WIDTH];
#pragma unroll
    for (int j = 0; j < Walk::WIDTH; j++) line[j] = lines[Walk::channel() + j];
    ROLLED for (u32 i = from + Walk::pixel(); i < to; i += Walk::STEP, at.advance()) {
        float values[Walk::WIDTH];
        at.load(x, values);
#pragma unroll
        for (int j = 0; j < Walk::WIDTH; j++)
            // It is rounded as if it was stored.
            values[j] = (real)(line[j].slope * values[j] + line[j].offset);
        add(at, added, values);
#pragma unroll
        for (int j = 0; j < Walk::WIDTH; j++) values[j] = rectifies ? rectified(values[j]) : values[j];
        at.store(values, y);
    }
}

// Normalises by the moments. The blocks of the first slice save mean and inverse standard
// deviation, and update the running statistics unless they are null. Then adds another term and
// rectifies, as `apply` does.
template <class Walk>
__device__ __forceinline__ void forward(u32 samples, u32 channels, u32 positions, u32 slice, double epsilon,
                                        double momentum, u32 rectifies, const real* x, const real* parameters,
                                        const float* moments, float* saved, float* statistics,
                                        const real* added, real* y) {
    __shared__ Line lines[Walk::CHANNELS];
    if (has_own_channel<Walk>(channels)) {
        const u32 channel = own_channel<Walk>();
        const double count = moments[2 * channels];
        double mean = 0, variance = 0;
        if (count > 0) {
            mean = moments[channel] / count;
            // Rounding can make the variance of a constant channel slightly negative.
            variance = fmax(moments[channels + channel] / count - mean * mean, 0.0);
        }
        const double inverse_deviation = 1.0 / sqrt(variance + epsilon);
        lines[threadIdx.x] = line_of(channel, channels, parameters, mean, inverse_deviation);
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
    apply<Walk>(samples, channels, positions, slice, lines, rectifies, x, added, y);
}

// Normalises by the running statistics.
template <class Walk>
__device__ __forceinline__ void infer(u32 samples, u32 channels, u32 positions, u32 slice, double epsilon,
                                      const real* x, const real* parameters, const float* statistics,
                                      real* y) {
    __shared__ Line lines[Walk::CHANNELS];
    if (has_own_channel<Walk>(channels)) {
        const u32 channel = own_channel<Walk>();
        lines[threadIdx.x] = line_of(channel, channels, parameters, statistics[channel],
                                     1.0 / sqrt(statistics[channels + channel] + epsilon));
    }
    __syncthreads();
    apply<Walk>(samples, channels, positions, slice, lines, 0, x, nullptr, y);
}

// Sums of the gradient and of gradient * normalised x. They are the gradients of bias and weight
// too. The gradient is the result of a chain of elementwise operations, of which copies are
// written. A copy may be a term or the gate, but not x.
template <class Walk>
__device__ __forceinline__ void gradient_moments(u32 samples, u32 channels, u32 positions, u32 slice,
                                                 const real* __restrict__ x, const float* __restrict__ saved,
                                                 const real* a, const real* b, const real* c, const real* d,
                                                 const real* gate, real* to_a, real* to_b, real* to_c,
                                                 real* to_d, double* parts, u32* counters,
                                                 float* __restrict__ moments, float* __restrict__ gradient) {
    const u32 count = samples * positions, from = blockIdx.y * slice, to = min(from + slice, count);
    const u32 first = blockIdx.x * Walk::CHANNELS + Walk::channel();
    double mean[Walk::WIDTH], values[2][Walk::WIDTH] = {};
#pragma unroll
    for (int j = 0; j < Walk::WIDTH; j++)
        mean[j] = Walk::CHANNELS == 1 || first + j < channels ? saved[first + j] : 0;
    Walk at(channels, positions, from);
    ROLLED for (u32 i = from + Walk::pixel(); i < to; i += Walk::STEP, at.advance()) {
        float inputs[Walk::WIDTH], slopes[Walk::WIDTH];
        at.load(x, inputs);
        gated_sum(at, a, b, c, d, gate, slopes);
#pragma unroll
        // They are rounded as if they were stored and read.
        for (int j = 0; j < Walk::WIDTH; j++) slopes[j] = (real)slopes[j];
        put_copies(at, slopes, to_a, to_b, to_c, to_d);
#pragma unroll
        for (int j = 0; j < Walk::WIDTH; j++) {
            const double slope = slopes[j];
            values[0][j] += slope;
            values[1][j] += slope * (inputs[j] - mean[j]);
        }
    }
    double sums[2];
    Walk::sum_pixels(values, sums);
    if (has_own_channel<Walk>(channels)) sums[1] *= saved[channels + own_channel<Walk>()];
    put_sums<Walk>(channels, count, sums, parts, counters, moments, gradient);
}

// dx = scale * (dy - mean(dy) - normalised x * mean(dy * normalised x)) as a linear function of dy
// and x with coefficients scale, slope and offset.
template <class Walk>
__device__ __forceinline__ void input_gradient(u32 samples, u32 channels, u32 positions, u32 slice,
                                               const real* __restrict__ x, const real* parameters,
                                               const float* saved, const float* moments,
                                               const real* __restrict__ dy, real* __restrict__ dx) {
    __shared__ float scales[Walk::CHANNELS];
    __shared__ Line lines[Walk::CHANNELS];
    if (has_own_channel<Walk>(channels)) {
        const u32 channel = own_channel<Walk>();
        const double count = fmax((double)moments[2 * channels], 1.0);
        const double mean = saved[channel], inverse_deviation = saved[channels + channel];
        const double scale = parameters[channel] * inverse_deviation;
        const double slope = -scale * (moments[channels + channel] / count) * inverse_deviation;
        scales[threadIdx.x] = (float)scale;
        lines[threadIdx.x] = Line{(float)slope, (float)(-scale * (moments[channel] / count) - slope * mean)};
    }
    __syncthreads();
    float scale[Walk::WIDTH];
    Line line[Walk::WIDTH];
#pragma unroll
    for (int j = 0; j < Walk::WIDTH; j++) {
        scale[j] = scales[Walk::channel() + j];
        line[j] = lines[Walk::channel() + j];
    }
    const u32 elements = samples * positions, from = blockIdx.y * slice, to = min(from + slice, elements);
    Walk at(channels, positions, from);
    ROLLED for (u32 i = from + Walk::pixel(); i < to; i += Walk::STEP, at.advance()) {
        float inputs[Walk::WIDTH], slopes[Walk::WIDTH];
        at.load(x, inputs);
        at.load(dy, slopes);
#pragma unroll
        for (int j = 0; j < Walk::WIDTH; j++)
            slopes[j] = scale[j] * slopes[j] + line[j].slope * inputs[j] + line[j].offset;
        at.store(slopes, dx);
    }
}

#define KERNELS(SUFFIX, Walk) \
    KERNEL batch_norm_moments##SUFFIX(u32 samples, u32 channels, u32 positions, u32 slice, \
                                      const real* __restrict__ x, double* parts, u32* counters, \
                                      float* __restrict__ to, float* __restrict__ gradient) { \
        moments<Walk>(samples, channels, positions, slice, x, parts, counters, to, gradient); \
    } \
    KERNEL batch_norm_forward##SUFFIX( \
        u32 samples, u32 channels, u32 positions, u32 slice, double epsilon, double momentum, u32 rectifies, \
        const real* x, const real* __restrict__ parameters, const float* __restrict__ moments, \
        float* __restrict__ saved, float* __restrict__ statistics, const real* added, real* y) { \
        forward<Walk>(samples, channels, positions, slice, epsilon, momentum, rectifies, x, parameters, \
                      moments, saved, statistics, added, y); \
    } \
    KERNEL batch_norm_infer##SUFFIX(u32 samples, u32 channels, u32 positions, u32 slice, double epsilon, \
                                    const real* __restrict__ x, const real* __restrict__ parameters, \
                                    const float* __restrict__ statistics, real* __restrict__ y) { \
        infer<Walk>(samples, channels, positions, slice, epsilon, x, parameters, statistics, y); \
    } \
    KERNEL batch_norm_gradient_moments##SUFFIX( \
        u32 samples, u32 channels, u32 positions, u32 slice, const real* __restrict__ x, \
        const float* __restrict__ saved, const real* a, const real* b, const real* c, const real* d, \
        const real* gate, real* to_a, real* to_b, real* to_c, real* to_d, double* parts, u32* counters, \
        float* __restrict__ moments, float* __restrict__ gradient) { \
        gradient_moments<Walk>(samples, channels, positions, slice, x, saved, a, b, c, d, gate, to_a, to_b, \
                               to_c, to_d, parts, counters, moments, gradient); \
    } \
    KERNEL batch_norm_input_gradient##SUFFIX( \
        u32 samples, u32 channels, u32 positions, u32 slice, const real* __restrict__ x, \
        const real* __restrict__ parameters, const float* __restrict__ saved, \
        const float* __restrict__ moments, const real* __restrict__ dy, real* __restrict__ dx) { \
        input_gradient<Walk>(samples, channels, positions, slice, x, parameters, saved, moments, dy, dx); \
    }

KERNELS(, ChannelsFirst)
KERNELS(_last, ChannelsLast)
