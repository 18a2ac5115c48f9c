// Definitions shared by all families. Indices of elements have 32 bits: the engine rejects larger
// operands.
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

#define THREADS 256
#define WARPS (THREADS / 32)
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)
// Index of the thread, for kernels with one element per thread.
#define ELEMENT (blockIdx.x * THREADS + threadIdx.x)
// Index of the thread's warp, for kernels with one row per warp, and lane of the thread.
#define ROW (blockIdx.x * WARPS + threadIdx.x / 32)
#define LANE (threadIdx.x % 32)
// A loop that is not unrolled, to limit code size.
#define ROLLED _Pragma("unroll 1")

// Element of an operand that has 16 bits in the variant `BF16`: of outputs of layers, their
// gradients, and parameters. It is computed with in single precision and rounded to the nearest
// number when it is stored.
#ifdef BF16
struct real {
    unsigned short bits;

    real() = default;
    __device__ __forceinline__ real(float value) {
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    }
    __device__ __forceinline__ operator float() const { return __uint_as_float((u32)bits << 16); }
};
#else
typedef float real;
#endif

#define INFINITY_F __int_as_float(0x7f800000)
#define NAN_F __int_as_float(0x7fc00000)

__device__ __forceinline__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }

// Values that change between launches. They are in the memory of the queue, so that a captured
// graph reads the current ones.
struct Context {
    u64 seed;
    u64 iteration;
    float learning_rate;
};

// Sum over the lanes of a warp, returned to each lane.
__device__ __forceinline__ double warp_sum(double value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_xor_sync(0xffffffff, value, distance);
    return value;
}

// Maximum over the lanes of a warp. NaN is ignored.
__device__ __forceinline__ float warp_largest(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, distance));
    return value;
}

// Sum over the threads of a block, returned to each thread. `scratch` can be reused after the next
// barrier.
__device__ __forceinline__ double block_sum(double value, double (&scratch)[WARPS]) {
    value = warp_sum(value);
    if (LANE == 0) scratch[threadIdx.x / 32] = value;
    __syncthreads();
    double sum = 0;
#pragma unroll
    for (int warp = 0; warp < WARPS; warp++) sum += scratch[warp];
    return sum;
}

// Returns whether this thread is the last of `count` threads, each of another block, to call the
// function with a counter. What the others wrote before is then visible to it. The counter is 0
// before the first call and after the last one.
__device__ __forceinline__ bool is_last(u32* counter, u32 count) {
    __threadfence();
    const bool last = atomicInc(counter, count - 1) == count - 1;
    __threadfence();
    return last;
}

// Returns the largest of a row's elements. One warp computes it.
__device__ __forceinline__ float largest_of_row(u32 elements, const real* x) {
    float largest = -INFINITY_F;
    ROLLED for (u32 i = LANE; i < elements; i += 32) largest = fmaxf(largest, x[i]);
    return warp_largest(largest);
}

// Returns the factor by which the exponential of an element's distance from the largest is its
// softmax. One warp computes it.
__device__ __forceinline__ float softmax_factor(u32 elements, const real* x, float largest) {
    double sum = 0;
    ROLLED for (u32 i = LANE; i < elements; i += 32) sum += expf(x[i] - largest);
    return (float)(1.0 / warp_sum(sum));
}
