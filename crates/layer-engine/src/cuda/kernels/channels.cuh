// Elements of channels of images, as the threads of a block walk them. `blockIdx.x` is the index of
// the block's channels, of which it has `CHANNELS`. A thread has `WIDTH` channels of every `STEP`th
// pixel of all samples, and loads `LOADS` pixels before it waits for the first in kernels that are
// limited by loads. A sum of a channel is returned to the thread with its index in the block.
#pragma once
#include "vectors.cuh"

// Channels first: a block has one channel.
struct ChannelsFirst {
    static constexpr u32 CHANNELS = 1, WIDTH = 1, STEP = THREADS;
    static constexpr int LOADS = 1;
    u32 channels, positions, sample, position;

    // Pixel of the thread among `STEP` pixels, and its first channel among those of the block.
    static __device__ __forceinline__ u32 pixel() { return threadIdx.x; }
    static __device__ __forceinline__ u32 channel() { return 0; }

    // Begins with the thread's pixel of those from `first` on.
    __device__ __forceinline__ ChannelsFirst(u32 channels, u32 positions, u32 first)
        : channels(channels), positions(positions), sample((first + pixel()) / positions),
          position((first + pixel()) % positions) {}

    __device__ __forceinline__ u32 index() const {
        return (sample * channels + blockIdx.x) * positions + position;
    }

    __device__ __forceinline__ void advance() {
        sample += STEP / positions;
        position += STEP % positions;
        if (position >= positions) position -= positions, sample++;
    }

    template <class T> __device__ __forceinline__ void load(const T* from, float (&to)[WIDTH]) const {
        to[0] = from[index()];
    }

    __device__ __forceinline__ void store(const float (&from)[WIDTH], real* to) const {
        to[index()] = from[0];
    }

    // Returns sums over the block's pixels of what each thread has.
    template <int N>
    static __device__ __forceinline__ void sum_pixels(const double (&values)[N][WIDTH], double (&sums)[N]) {
        __shared__ double scratch[N][WARPS];
#pragma unroll
        for (int n = 0; n < N; n++) sums[n] = block_sum(values[n][0], scratch[n]);
    }

    // Returns sums of what the threads whose indices differ by a multiple of `CHANNELS` have.
    template <int N> static __device__ __forceinline__ void sum_threads(double (&sums)[N]) {
        __shared__ double scratch[N][WARPS];
#pragma unroll
        for (int n = 0; n < N; n++) sums[n] = block_sum(sums[n], scratch[n]);
    }
};

// Channels last: a block has 32 adjacent channels. Each pixel is a sample of one position.
struct ChannelsLast {
    static constexpr u32 CHANNELS = 32, WIDTH = 4, STEP = THREADS * WIDTH / CHANNELS;
    static constexpr int LOADS = 4;
    u32 at, step;
    // Number of the thread's channels that exist, negative if there are none.
    int there;
    bool vectors;

    static __device__ __forceinline__ u32 pixel() { return threadIdx.x / (CHANNELS / WIDTH); }
    static __device__ __forceinline__ u32 channel() { return threadIdx.x % (CHANNELS / WIDTH) * WIDTH; }

    __device__ __forceinline__ ChannelsLast(u32 channels, u32, u32 first)
        : at((first + pixel()) * channels + blockIdx.x * CHANNELS + channel()), step(STEP * channels),
          there((int)channels - (int)(blockIdx.x * CHANNELS + channel())), vectors(channels % WIDTH == 0) {}

    __device__ __forceinline__ void advance() { at += step; }

    template <class T> __device__ __forceinline__ void load(const T* from, float (&to)[WIDTH]) const {
        const float4 four = load_four(from + at, there, vectors && is_aligned(from));
        to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    }

    __device__ __forceinline__ void store(const float (&from)[WIDTH], real* to) const {
        ::store(to + at, make_float4(from[0], from[1], from[2], from[3]), there, vectors && is_aligned(to));
    }

    template <int N> static __device__ __forceinline__ void sum_threads(double (&sums)[N]) {
        __shared__ double scratch[N][WARPS][CHANNELS];
#pragma unroll
        for (int n = 0; n < N; n++) {
            scratch[n][threadIdx.x / 32][LANE] = sums[n];
            sums[n] = 0;
        }
        __syncthreads();
        if (threadIdx.x < CHANNELS) {
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int warp = 0; warp < WARPS; warp++) sums[n] += scratch[n][warp][LANE];
        }
    }

    template <int N>
    static __device__ __forceinline__ void sum_pixels(const double (&values)[N][WIDTH], double (&sums)[N]) {
#pragma unroll
        for (int n = 0; n < N; n++) {
            double of_warp[WIDTH];
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                of_warp[j] = values[n][j] + __shfl_xor_sync(0xffffffff, values[n][j], 8);
                of_warp[j] += __shfl_xor_sync(0xffffffff, of_warp[j], 16);
            }
            // The sums of a channel go to the lane with its index.
            sums[n] = 0;
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                const double sum = __shfl_sync(0xffffffff, of_warp[j], LANE / WIDTH);
                if (LANE % WIDTH == j) sums[n] = sum;
            }
        }
        sum_threads(sums);
    }
};

// Index of the channel that the thread finalizes: one thread for each channel of the block.
template <class Walk> __device__ __forceinline__ u32 own_channel() {
    return blockIdx.x * Walk::CHANNELS + threadIdx.x;
}

template <class Walk> __device__ __forceinline__ bool has_own_channel(u32 channels) {
    return threadIdx.x < Walk::CHANNELS && (Walk::CHANNELS == 1 || own_channel<Walk>() < channels);
}

// Adds up the sums of all slices, which the first threads of each block have. `blockIdx.y` is the
// slice. Returns whether the block is the last one of its channels: its first threads then have the
// totals. `parts` has N numbers for each slice and channel, `counters` one for each group of
// channels; neither is needed for one slice.
template <class Walk, int N>
__device__ __forceinline__ bool sum_slices(u32 channels, double (&sums)[N], double* parts, u32* counters) {
    const u32 slices = gridDim.y, numbers = slices * channels;
    if (slices == 1) return true;
    __shared__ bool last;
    if (has_own_channel<Walk>(channels)) {
#pragma unroll
        for (int n = 0; n < N; n++)
            parts[n * numbers + blockIdx.y * channels + own_channel<Walk>()] = sums[n];
    }
    // All of these threads belong to the first warp.
    __syncwarp();
    if (threadIdx.x == 0) last = is_last(counters + blockIdx.x, slices);
    __syncthreads();
    if (!last) return false;
    const u32 channel = blockIdx.x * Walk::CHANNELS + threadIdx.x % Walk::CHANNELS;
#pragma unroll
    for (int n = 0; n < N; n++) sums[n] = 0;
    if (Walk::CHANNELS == 1 || channel < channels) {
#pragma unroll(Walk::LOADS)
        for (u32 i = threadIdx.x / Walk::CHANNELS; i < slices; i += THREADS / Walk::CHANNELS) {
#pragma unroll
            for (int n = 0; n < N; n++) sums[n] += parts[n * numbers + i * channels + channel];
        }
    }
    Walk::sum_threads(sums);
    return true;
}
