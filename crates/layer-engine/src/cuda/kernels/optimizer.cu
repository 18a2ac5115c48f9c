// Gradient norm, gradient descent, and the launch context.
#include "basics.cuh"

// Runs with one thread.
KERNEL set_context(Context* context, u64 seed, u64 iteration, float learning_rate) {
    context->seed = seed;
    context->iteration = iteration;
    context->learning_rate = learning_rate;
}

// Sums of squares, one per block. Block `b` starts at element `b * THREADS`; the stride is
// `gridDim.x * THREADS`.
KERNEL sum_of_squares(u32 elements, const float* __restrict__ x, double* __restrict__ sums) {
    __shared__ double scratch[WARPS];
    double sum = 0;
    ROLLED for (u32 i = ELEMENT; i < elements; i += gridDim.x * THREADS) sum += (double)x[i] * x[i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// Adds the sums of the blocks. Runs with one block.
KERNEL total_of_squares(u32 count, const double* __restrict__ sums, float* __restrict__ total) {
    __shared__ double scratch[WARPS];
    double sum = 0;
    ROLLED for (u32 i = threadIdx.x; i < count; i += THREADS) sum += sums[i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) *total = (float)sum;
}

// A step of gradient descent. `squared_norm` is null without clipping.
KERNEL sgd_step(u32 elements, float momentum, float weight_decay, float clip_norm,
                const Context* __restrict__ context, const float* __restrict__ gradient,
                const float* __restrict__ squared_norm, float* __restrict__ parameters,
                float* __restrict__ velocity) {
    const u32 i = ELEMENT;
    if (i >= elements) return;
    float scale = 1;
    if (squared_norm) {
        const float norm = sqrtf(*squared_norm);
        if (norm > clip_norm) scale = clip_norm / norm;
    }
    const float speed = momentum * velocity[i] + (scale * gradient[i] + weight_decay * parameters[i]);
    velocity[i] = speed;
    parameters[i] -= context->learning_rate * speed;
}
