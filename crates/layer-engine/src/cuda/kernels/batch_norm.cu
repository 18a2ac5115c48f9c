// Batch normalisation in passes, between which the moments can be reduced over ranks. Sums are in
// double precision, because the variance is the mean of squares minus the square of the mean.
#include "basics.cuh"

// Moments of a channel over all samples and positions: sum, sum of squares, count. One block per
// channel.
KERNEL batch_norm_moments(u32 samples, u32 channels, u32 positions, const float* __restrict__ x,
                          float* __restrict__ moments) {
    __shared__ double scratch[2][WARPS];
    const u32 channel = blockIdx.x, count = samples * positions;
    double sum = 0, squares = 0;
    ROLLED for (u32 i = threadIdx.x; i < count; i += THREADS) {
        const double value = x[(i / positions * channels + channel) * positions + i % positions];
        sum += value;
        squares += value * value;
    }
    sum = block_sum(sum, scratch[0]);
    squares = block_sum(squares, scratch[1]);
    if (threadIdx.x == 0) {
        moments[channel] = (float)sum;
        moments[channels + channel] = (float)squares;
        if (channel == 0) moments[2 * channels] = (float)count;
    }
}

// Writes slope and offset of the normalisation of a channel.
__device__ __forceinline__ void put_line(u32 channel, u32 channels, const float* parameters, double mean,
                                         double inverse_deviation, float* lines) {
    const double slope = parameters[channel] * inverse_deviation;
    lines[channel] = (float)slope;
    lines[channels + channel] = (float)(parameters[channels + channel] - slope * mean);
}

// One thread per channel: computes mean and inverse standard deviation from the moments and saves
// them, writes slope and offset, and updates the running statistics unless they are null.
KERNEL batch_norm_statistics(u32 channels, double epsilon, double momentum,
                             const float* __restrict__ parameters, const float* __restrict__ moments,
                             float* __restrict__ saved, float* __restrict__ lines,
                             float* __restrict__ statistics) {
    const u32 channel = ELEMENT;
    if (channel >= channels) return;
    const double count = moments[2 * channels];
    double mean = 0, variance = 0;
    if (count > 0) {
        mean = moments[channel] / count;
        // Rounding can make the variance of a constant channel slightly negative.
        variance = fmax(moments[channels + channel] / count - mean * mean, 0.0);
    }
    const double inverse_deviation = 1.0 / sqrt(variance + epsilon);
    saved[channel] = (float)mean;
    saved[channels + channel] = (float)inverse_deviation;
    put_line(channel, channels, parameters, mean, inverse_deviation, lines);
    if (statistics && count > 0) {
        const double former_mean = statistics[channel], former_variance = statistics[channels + channel];
        const double unbiased = variance * count / fmax(count - 1, 1.0);
        statistics[channel] = (float)(former_mean + momentum * (mean - former_mean));
        statistics[channels + channel] = (float)(former_variance + momentum * (unbiased - former_variance));
    }
}

// Writes slope and offset from the running statistics.
KERNEL batch_norm_running(u32 channels, double epsilon, const float* __restrict__ parameters,
                          const float* __restrict__ statistics, float* __restrict__ lines) {
    const u32 channel = ELEMENT;
    if (channel >= channels) return;
    put_line(channel, channels, parameters, statistics[channel],
             1.0 / sqrt(statistics[channels + channel] + epsilon), lines);
}

KERNEL batch_norm_apply(u32 elements, u32 channels, u32 positions, const float* __restrict__ lines,
                        const float* __restrict__ x, float* __restrict__ y) {
    const u32 i = ELEMENT;
    if (i >= elements) return;
    const u32 channel = i / positions % channels;
    y[i] = lines[channel] * x[i] + lines[channels + channel];
}

// Sums of the gradient and of gradient * normalised x. They are the gradients of bias and weight
// too.
KERNEL batch_norm_gradient_moments(u32 samples, u32 channels, u32 positions, const float* __restrict__ x,
                                   const float* __restrict__ saved, const float* __restrict__ dy,
                                   float* __restrict__ moments, float* __restrict__ gradient) {
    __shared__ double scratch[2][WARPS];
    const u32 channel = blockIdx.x, count = samples * positions;
    const double mean = saved[channel];
    double sum = 0, centred = 0;
    ROLLED for (u32 i = threadIdx.x; i < count; i += THREADS) {
        const u32 place = (i / positions * channels + channel) * positions + i % positions;
        const double slope = dy[place];
        sum += slope;
        centred += slope * (x[place] - mean);
    }
    sum = block_sum(sum, scratch[0]);
    centred = block_sum(centred, scratch[1]) * saved[channels + channel];
    if (threadIdx.x == 0) {
        moments[channel] = (float)sum;
        moments[channels + channel] = (float)centred;
        if (channel == 0) moments[2 * channels] = (float)count;
        gradient[channel] = (float)centred;
        gradient[channels + channel] = (float)sum;
    }
}

// dx = scale * (dy - mean(dy) - normalised x * mean(dy * normalised x)) as a linear function of dy
// and x with coefficients scale, slope and offset.
KERNEL batch_norm_gradient_lines(u32 channels, const float* __restrict__ parameters,
                                 const float* __restrict__ saved, const float* __restrict__ moments,
                                 float* __restrict__ lines) {
    const u32 channel = ELEMENT;
    if (channel >= channels) return;
    const double count = fmax((double)moments[2 * channels], 1.0);
    const double mean = saved[channel], inverse_deviation = saved[channels + channel];
    const double scale = parameters[channel] * inverse_deviation;
    const double slope = -scale * (moments[channels + channel] / count) * inverse_deviation;
    lines[channel] = (float)scale;
    lines[channels + channel] = (float)slope;
    lines[2 * channels + channel] = (float)(-scale * (moments[channel] / count) - slope * mean);
}

KERNEL batch_norm_input_gradient(u32 elements, u32 channels, u32 positions, const float* __restrict__ lines,
                                 const float* __restrict__ x, const float* __restrict__ dy,
                                 float* __restrict__ dx) {
    const u32 i = ELEMENT;
    if (i >= elements) return;
    const u32 channel = i / positions % channels;
    dx[i] = lines[channel] * dy[i] + lines[channels + channel] * x[i] + lines[2 * channels + channel];
}
