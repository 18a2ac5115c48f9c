// Kernels of mux-bench, which replace those of a workload.

typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

#define LIVE 36

// Computes for a number of rounds. In `loads` of 1024 rounds, each thread reads 16 bytes at a
// distinct address.
extern "C" __global__ void __launch_bounds__(1024, 1)
mux_compute(u32 rounds, u32 loads, const float4 *memory, u64 mask, float *sink) {
    float value[LIVE];
#pragma unroll
    for (int i = 0; i < LIVE; i++) value[i] = threadIdx.x * 1e-3f + i;
    const u64 threads = (u64)gridDim.x * blockDim.x;
    u64 place = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u32 due = 0;
#pragma unroll 1
    for (u32 round = 0; round < rounds; round++) {
        float4 read = make_float4(0.f, 0.f, 0.f, 0.f);
        due += loads;
        while (due >= 1024) {
            due -= 1024;
            float4 next = __ldcs(memory + (place & mask));
            read.x += next.x; read.y += next.y; read.z += next.z; read.w += next.w;
            place += threads;
        }
#pragma unroll
        for (int i = 0; i < LIVE; i++) value[i] = fmaf(value[i], 0.999f, 1e-3f);
        value[0] += read.x + read.y + read.z + read.w;
    }
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < LIVE; i++) sum += value[i];
    // Always false, but unknown to the compiler.
    if (sum == 1e30f) *sink = sum;
}

// Exchanges like a collective: a few blocks wait for the partners, which arrive `partners_ns` after
// the end of the previous exchange, and then copy for a number of rounds. clock[0] is that end (0
// before the first exchange), clock[1] counts the blocks that are done.
extern "C" __global__ void __launch_bounds__(512)
mux_exchange(u64 *clock, u64 partners_ns, u32 rounds, const float4 *from, float4 *to, u64 mask) {
    volatile u64 *last = clock;
    const u64 begin = last[0] == 0 ? nanoseconds() : last[0];
    while (nanoseconds() < begin + partners_ns) {}
    const u64 threads = (u64)gridDim.x * blockDim.x;
    u64 place = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (u32 round = 0; round < rounds; round++) {
        to[place & mask] = from[place & mask];
        place += threads;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        if (atomicAdd(clock + 1, 1ull) == gridDim.x - 1) {
            clock[1] = 0;
            last[0] = nanoseconds();
            __threadfence();
        }
    }
}

// Does nothing: measures the cost of a launch.
extern "C" __global__ void mux_nothing() {}
