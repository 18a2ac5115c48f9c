// Vectors of four elements.
#pragma once
#include "basics.cuh"

// Whether the address is a multiple of four elements.
template <class T> __device__ __forceinline__ bool is_aligned(const T* address) {
    return ((u64)address & (4 * sizeof(T) - 1)) == 0;
}

// Four elements at an address that is a multiple of them.
__device__ __forceinline__ float4 load_vector(const float* from) { return *(const float4*)from; }
__device__ __forceinline__ void store_vector(float* to, float4 four) { *(float4*)to = four; }
#ifdef BF16
__device__ __forceinline__ float4 load_vector(const real* from) {
    const uint2 pairs = *(const uint2*)from;
    return make_float4(__uint_as_float(pairs.x << 16), __uint_as_float(pairs.x & 0xffff0000),
                       __uint_as_float(pairs.y << 16), __uint_as_float(pairs.y & 0xffff0000));
}
__device__ __forceinline__ void store_vector(real* to, float4 four) {
    const real x = four.x, y = four.y, z = four.z, w = four.w;
    *(uint2*)to = make_uint2((u32)y.bits << 16 | x.bits, (u32)w.bits << 16 | z.bits);
}
#endif

// Loads four elements, of which `count` are valid; the others are zero.
template <class T> __device__ __forceinline__ float4 load_four(const T* from, int count, bool vectors) {
    float4 four = make_float4(0, 0, 0, 0);
    if (vectors && count >= 4) {
        four = load_vector(from);
    } else {
        if (count > 0) four.x = from[0];
        if (count > 1) four.y = from[1];
        if (count > 2) four.z = from[2];
        if (count > 3) four.w = from[3];
    }
    return four;
}

template <class T> __device__ __forceinline__ void store(T* to, float4 four, int count, bool vectors) {
    if (vectors && count >= 4) {
        store_vector(to, four);
    } else {
        if (count > 0) to[0] = four.x;
        if (count > 1) to[1] = four.y;
        if (count > 2) to[2] = four.z;
        if (count > 3) to[3] = four.w;
    }
}
