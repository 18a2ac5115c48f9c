// The random numbers of `random::RandomStream`: ChaCha with 8 rounds (Bernstein, 2008). The key is
// the purpose of the numbers; the nonce is the sample.
#pragma once
#include "basics.cuh"

__device__ __forceinline__ void quarter_round(u32& a, u32& b, u32& c, u32& d) {
    a += b, d ^= a, d = __funnelshift_l(d, d, 16);
    c += d, b ^= c, b = __funnelshift_l(b, b, 12);
    a += b, d ^= a, d = __funnelshift_l(d, d, 8);
    c += d, b ^= c, b = __funnelshift_l(b, b, 7);
}

// A block of eight numbers of a stream. They have 53 bits: `number(j)` is in 0..1.
struct Numbers {
    u32 state[16], input[16];

    // `purpose` and `name` are parts of the key. `block` is the index of the block.
    __device__ __forceinline__ Numbers(const Context* context, u64 purpose, u64 name, u64 block, u64 nonce) {
        const u32 words[16] = {
            0x61707865, 0x3320646e, 0x79622d32, 0x6b206574,
            (u32)context->seed, (u32)(context->seed >> 32), (u32)purpose, (u32)(purpose >> 32),
            (u32)context->iteration, (u32)(context->iteration >> 32), (u32)name, (u32)(name >> 32),
            (u32)block, (u32)(block >> 32), (u32)nonce, (u32)(nonce >> 32)};
#pragma unroll
        for (int word = 0; word < 16; word++) state[word] = input[word] = words[word];
        ROLLED for (int round = 0; round < 4; round++) {
            quarter_round(state[0], state[4], state[8], state[12]);
            quarter_round(state[1], state[5], state[9], state[13]);
            quarter_round(state[2], state[6], state[10], state[14]);
            quarter_round(state[3], state[7], state[11], state[15]);
            quarter_round(state[0], state[5], state[10], state[15]);
            quarter_round(state[1], state[6], state[11], state[12]);
            quarter_round(state[2], state[7], state[8], state[13]);
            quarter_round(state[3], state[4], state[9], state[14]);
        }
    }

    __device__ __forceinline__ double number(u32 j) const {
        const u64 low = state[2 * j] + input[2 * j], high = state[2 * j + 1] + input[2 * j + 1];
        return (double)((high << 32 | low) >> 11) * (1.0 / 9007199254740992.0);
    }
};
