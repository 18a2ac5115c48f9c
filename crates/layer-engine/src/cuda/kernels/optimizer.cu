// Gradient norm, gradient descent, and the launch context.
#include "basics.cuh"

// Maximum number of tensors of a launch. Their table is an argument, and all arguments of a launch
// have at most 4 KB.
#ifdef BF16
#define TENSORS 96
#else
#define TENSORS 120
#endif

// Tensors of a launch. Each is computed by consecutive blocks. `first_block` is the number of all
// blocks from the place after the last tensor on. Absent addresses are null.
struct Tensors {
    u32 first_block[128];
    u32 elements[TENSORS];
    const float* gradients[TENSORS];
    real* parameters[TENSORS];
#ifdef BF16
    // Parameters in single precision, of which `parameters` are roundings.
    float* masters[TENSORS];
#endif
    float* velocities[TENSORS];
};

// Index of the tensor that the block computes.
#define TENSOR_OF_BLOCK(tensors, tensor)                                                          \
    u32 tensor = 0;                                                                               \
    _Pragma("unroll") for (u32 step = 64; step > 0; step /= 2) {                                  \
        if (tensors.first_block[tensor + step] <= blockIdx.x) tensor += step;                     \
    }

// Runs with one thread.
KERNEL set_context(Context* context, u64 seed, u64 iteration, float learning_rate) {
    context->seed = seed;
    context->iteration = iteration;
    context->learning_rate = learning_rate;
}

// Sums of squares, one per block. Block `b` of a tensor starts at element `b * THREADS`; the stride
// is the number of blocks of the tensor, times `THREADS`.
KERNEL sum_of_squares(const Tensors tensors, double* __restrict__ sums) {
    __shared__ double scratch[WARPS];
    TENSOR_OF_BLOCK(tensors, tensor)
    const u32 first = tensors.first_block[tensor], stride = tensors.first_block[tensor + 1] - first;
    const u32 elements = tensors.elements[tensor];
    const float* __restrict__ x = tensors.gradients[tensor];
    double sum = 0;
    ROLLED for (u32 i = (blockIdx.x - first) * THREADS + threadIdx.x; i < elements; i += stride * THREADS)
        sum += (double)x[i] * x[i];
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

// A step of gradient descent. Block `b` of a tensor computes `UPDATED` elements from element `b *
// UPDATED` on. `squared_norm` is null without clipping.
#define UPDATED (4 * THREADS)
KERNEL sgd_step(const Tensors tensors, float momentum, float weight_decay, float clip_norm,
                const Context* __restrict__ context, const float* __restrict__ squared_norm) {
    TENSOR_OF_BLOCK(tensors, tensor)
    const u32 first = (blockIdx.x - tensors.first_block[tensor]) * UPDATED + threadIdx.x;
    const u32 elements = tensors.elements[tensor];
    const float* __restrict__ gradient = tensors.gradients[tensor];
    real* __restrict__ parameters = tensors.parameters[tensor];
#ifdef BF16
    float* __restrict__ masters = tensors.masters[tensor];
#else
    float* __restrict__ masters = parameters;
#endif
    float* __restrict__ velocity = tensors.velocities[tensor];
    float scale = 1;
    if (squared_norm) {
        const float norm = sqrtf(*squared_norm);
        if (norm > clip_norm) scale = clip_norm / norm;
    }
    const float learning_rate = context->learning_rate;
#pragma unroll
    for (u32 part = 0; part < UPDATED; part += THREADS) {
        const u32 i = first + part;
        if (i >= elements) return;
        const float speed = momentum * velocity[i] + (scale * gradient[i] + weight_decay * masters[i]);
        velocity[i] = speed;
        masters[i] -= learning_rate * speed;
#ifdef BF16
        parameters[i] = masters[i];
#endif
    }
}
