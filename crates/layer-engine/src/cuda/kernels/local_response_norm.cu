// Local response normalisation over neighbouring channels: x / s^beta with s = k + alpha / size *
// (sum of squares).
#include "basics.cuh"

// Returns s at an element: sum over the channels up to `before` before and `after` after its
// channel.
__device__ __forceinline__ float scale(const real* x, u32 i, u32 channels, u32 positions, u32 before,
                                       u32 after, float factor, float k) {
    const u32 channel = i / positions % channels;
    const u32 from = channel - min(channel, before), to = min(channel + after + 1, channels);
    const real* column = x + (i - channel * positions);
    float sum = k;
    ROLLED for (u32 near = from; near < to; near++) {
        const float value = column[near * positions];
        sum += factor * value * value;
    }
    return sum;
}

// `factor` is alpha / size.
KERNEL response_norm_forward(u32 elements, u32 channels, u32 positions, u32 before, u32 after, float factor,
                             float beta, float k, const real* __restrict__ x, real* __restrict__ y) {
    const u32 i = ELEMENT;
    if (i < elements) y[i] = x[i] * powf(scale(x, i, channels, positions, before, after, factor, k), -beta);
}

// Computes dy / s^beta and the ratio dy * x / s^(beta + 1) of each element.
KERNEL response_norm_ratios(u32 elements, u32 channels, u32 positions, u32 before, u32 after, float factor,
                            float beta, float k, const real* __restrict__ x, const real* __restrict__ dy,
                            float* __restrict__ shares, float* __restrict__ ratios) {
    const u32 i = ELEMENT;
    if (i >= elements) return;
    const float sum = scale(x, i, channels, positions, before, after, factor, k);
    const float share = dy[i] * powf(sum, -beta);
    shares[i] = share;
    ratios[i] = share * x[i] / sum;
}

// x normalises the channels that have it as a neighbour: the reach is reversed. `factor` is 2 alpha
// beta / size.
KERNEL response_norm_input_gradient(u32 elements, u32 channels, u32 positions, u32 before, u32 after,
                                    float factor, const real* __restrict__ x,
                                    const float* __restrict__ shares, const float* __restrict__ ratios,
                                    real* __restrict__ dx) {
    const u32 i = ELEMENT;
    if (i >= elements) return;
    const u32 channel = i / positions % channels;
    const u32 from = channel - min(channel, after), to = min(channel + before + 1, channels);
    const float* column = ratios + (i - channel * positions);
    float sum = 0;
    ROLLED for (u32 near = from; near < to; near++) sum += column[near * positions];
    dx[i] = shares[i] - factor * x[i] * sum;
}
