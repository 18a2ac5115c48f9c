// Elementwise activations and products, and softmax with one warp per row.
#include "basics.cuh"

KERNEL relu_forward(u32 elements, const real* __restrict__ x, real* __restrict__ y) {
    const u32 i = ELEMENT;
    // NaN stays NaN.
    if (i < elements) y[i] = x[i] < 0 ? 0 : (float)x[i];
}

KERNEL relu_backward(u32 elements, const real* __restrict__ y, const real* __restrict__ dy,
                     real* __restrict__ dx) {
    const u32 i = ELEMENT;
    if (i < elements) dx[i] = y[i] > 0 ? (float)dy[i] : 0;
}

KERNEL leaky_relu_forward(u32 elements, float slope, const real* __restrict__ x, real* __restrict__ y) {
    const u32 i = ELEMENT;
    if (i < elements) y[i] = x[i] > 0 ? (float)x[i] : slope * x[i];
}

KERNEL leaky_relu_backward(u32 elements, float slope, const real* __restrict__ y,
                           const real* __restrict__ dy, real* __restrict__ dx) {
    const u32 i = ELEMENT;
    if (i < elements) dx[i] = y[i] > 0 ? (float)dy[i] : slope * dy[i];
}

// The kernels of an activation. `value` is an expression of the input x. `derivative` is an
// expression of the operand that the backward pass reads: of the input x, or of the output y.
#define ACTIVATION(name, value, operand, derivative)                                               \
    KERNEL name##_forward(u32 elements, const real* __restrict__ in, real* __restrict__ out) {     \
        const u32 i = ELEMENT;                                                                     \
        if (i >= elements) return;                                                                 \
        const float x = in[i];                                                                     \
        out[i] = value;                                                                            \
    }                                                                                              \
    KERNEL name##_backward(u32 elements, const real* __restrict__ in, const real* __restrict__ dy, \
                           real* __restrict__ dx) {                                                \
        const u32 i = ELEMENT;                                                                     \
        if (i >= elements) return;                                                                 \
        const float operand = in[i];                                                               \
        dx[i] = dy[i] * (derivative);                                                              \
    }

// A gated unit is x times its gate.
#define GATED(name, gate) ACTIVATION(name, x * gate(x).value, x, gate(x).value + x * gate(x).slope)

// A gate is evaluated together with its derivative.
struct Gate {
    float value, slope;
};

// The closest number from 0 to a limit. NaN stays NaN.
__device__ __forceinline__ float between(float x, float limit) {
    const float positive = x < 0 ? 0 : x;
    return positive > limit ? limit : positive;
}

__device__ __forceinline__ float hard_sigmoid(float x) { return between(x * (1.0f / 6) + 0.5f, 1); }

// Of the line from 0 to 1, with its slope.
__device__ __forceinline__ Gate hard(float x) {
    Gate gate;
    gate.value = hard_sigmoid(x);
    gate.slope = gate.value > 0 && gate.value < 1 ? 1.0f / 6 : 0;
    return gate;
}

// Exact gate: the normal distribution.
__device__ __forceinline__ Gate normal(float x) {
    Gate gate;
    gate.value = 0.5f + 0.5f * erff(x * 0.70710678f);
    gate.slope = 0.39894228f * expf(-0.5f * x * x);
    return gate;
}

// Approximation by a hyperbolic tangent: sigmoid of sqrt(8 / pi) * (x + 0.044715 x^3).
__device__ __forceinline__ Gate tangent(float x) {
    const float scale = 1.5957691f, cubic = 0.044715f, square = x * x;
    Gate gate;
    gate.value = 1 / (1 + expf(-scale * x * (1 + cubic * square)));
    gate.slope = gate.value * (1 - gate.value) * (scale * (1 + 3 * cubic * square));
    return gate;
}

// Sigmoid of a multiple of x.
__device__ __forceinline__ Gate logistic(float x, float scale) {
    Gate gate;
    gate.value = sigmoid(scale * x);
    gate.slope = gate.value * (1 - gate.value) * scale;
    return gate;
}

__device__ __forceinline__ Gate quick(float x) { return logistic(x, 1.702f); }
__device__ __forceinline__ Gate plain(float x) { return logistic(x, 1); }

ACTIVATION(relu6, between(x, 6), y, y > 0 && y < 6 ? 1.0f : 0.0f)
ACTIVATION(hard_sigmoid, hard_sigmoid(x), y, y > 0 && y < 1 ? 1.0f / 6 : 0.0f)
GATED(hard_swish, hard)
GATED(gelu, normal)
GATED(gelu_tanh, tangent)
GATED(quick_gelu, quick)
GATED(silu, plain)
ACTIVATION(sigmoid, sigmoid(x), y, y * (1 - y))
ACTIVATION(tanh, tanhf(x), y, 1 - y * y)

KERNEL multiply_forward(u32 elements, const real* __restrict__ a, const real* __restrict__ b,
                        real* __restrict__ y) {
    const u32 i = ELEMENT;
    if (i < elements) y[i] = a[i] * b[i];
}

KERNEL multiply_backward(u32 elements, const real* __restrict__ a, const real* __restrict__ b,
                         const real* __restrict__ dy, real* __restrict__ da, real* __restrict__ db) {
    const u32 i = ELEMENT;
    if (i >= elements) return;
    const float g = dy[i];
    da[i] = g * b[i];
    db[i] = g * a[i];
}

// Products with one number a channel of each image. Elements of a channel are `channels` apart,
// which is 1 if each channel of a sample is an image of one channel.
KERNEL channel_product_forward(u32 elements, u32 channels, u32 pixels, const real* __restrict__ x,
                               const real* __restrict__ factors, real* __restrict__ y) {
    const u32 i = ELEMENT;
    if (i < elements) y[i] = x[i] * factors[i / (channels * pixels) * channels + i % channels];
}

// One warp computes the gradients of a channel of an image.
KERNEL channel_product_backward(u32 rows, u32 channels, u32 pixels, const real* __restrict__ x,
                                const real* __restrict__ factors, const real* __restrict__ dy,
                                real* __restrict__ dx, real* __restrict__ of_factors) {
    const u32 row = ROW;
    if (row >= rows) return;
    const u32 first = row / channels * channels * pixels + row % channels;
    const float factor = factors[row];
    double sum = 0;
    ROLLED for (u32 pixel = LANE; pixel < pixels; pixel += 32) {
        const u32 i = first + pixel * channels;
        const float g = dy[i];
        dx[i] = g * factor;
        sum += (double)g * x[i];
    }
    sum = warp_sum(sum);
    if (LANE == 0) of_factors[row] = (float)sum;
}

// Product with `constant`, or, unless `factors` is null, with one of `count` factors for each row
// of `length` elements, in turn.
KERNEL scale_rows(u32 elements, u32 count, u32 length, float constant, const real* __restrict__ factors,
                  const real* __restrict__ x, real* __restrict__ y) {
    const u32 i = ELEMENT;
    if (i < elements) y[i] = x[i] * (factors ? (float)factors[i / length % count] : constant);
}

// Gradient of the factors of `scale_rows`. A block sums over the rows of its factor.
KERNEL scale_gradient(u32 elements, u32 count, u32 length, const real* __restrict__ x,
                      const real* __restrict__ dy, float* __restrict__ gradient) {
    __shared__ double sums[WARPS];
    double sum = 0;
    ROLLED for (u32 j = threadIdx.x; j < elements / count; j += THREADS) {
        const u32 i = (j / length * count + blockIdx.x) * length + j % length;
        sum += (double)x[i] * dy[i];
    }
    sum = block_sum(sum, sums);
    if (threadIdx.x == 0) gradient[blockIdx.x] = (float)sum;
}

KERNEL softmax_forward(u32 rows, u32 classes, const real* __restrict__ x, real* __restrict__ y) {
    const u32 row = ROW;
    if (row >= rows) return;
    x += row * classes;
    y += row * classes;
    const float best = largest_of_row(classes, x);
    const float factor = softmax_factor(classes, x, best);
    ROLLED for (u32 i = LANE; i < classes; i += 32) y[i] = expf(x[i] - best) * factor;
}

KERNEL softmax_backward(u32 rows, u32 classes, const real* __restrict__ y, const real* __restrict__ dy,
                        real* __restrict__ dx) {
    const u32 row = ROW;
    if (row >= rows) return;
    y += row * classes;
    dy += row * classes;
    dx += row * classes;
    double sum = 0;
    ROLLED for (u32 i = LANE; i < classes; i += 32) sum += (double)y[i] * dy[i];
    const float mean = (float)warp_sum(sum);
    ROLLED for (u32 i = LANE; i < classes; i += 32) dx[i] = y[i] * (dy[i] - mean);
}
