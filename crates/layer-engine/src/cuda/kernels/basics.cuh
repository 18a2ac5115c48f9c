// What the kernels of all families share. Elements are counted in 32 bits: the engine refuses larger operands.
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

#define THREADS 256
#define WARPS (THREADS / 32)
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)
// The thread's number, where each has an element.
#define ELEMENT (blockIdx.x * THREADS + threadIdx.x)
// The row of the thread's warp, where each warp has a row, and its lane.
#define ROW (blockIdx.x * WARPS + threadIdx.x / 32)
#define LANE (threadIdx.x % 32)
// A loop that is not unrolled: its remainders would be most of the code.
#define ROLLED _Pragma("unroll 1")

#define INFINITY_F __int_as_float(0x7f800000)
#define NAN_F __int_as_float(0x7fc00000)

// What changes from launch to launch, in the memory of a queue, so that a captured graph reads it anew.
struct Context {
    u64 seed;
    u64 iteration;
    float learning_rate;
};

// The sum over the lanes of a warp, the same in each of them.
__device__ __forceinline__ double warp_sum(double value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffff, value, distance);
    return value;
}

// The largest value over the lanes of a warp; what is not a number is passed over.
__device__ __forceinline__ float warp_largest(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, distance));
    return value;
}

// The sum over the threads of a block, the same in each of them. `scratch` may be used again after the next barrier.
__device__ __forceinline__ double block_sum(double value, double (&scratch)[WARPS]) {
    value = warp_sum(value);
    if (LANE == 0) scratch[threadIdx.x / 32] = value;
    __syncthreads();
    double sum = 0;
#pragma unroll
    for (int warp = 0; warp < WARPS; warp++) sum += scratch[warp];
    return sum;
}
