// Dropout with the masks of `random::RandomStream`: ChaCha with 8 rounds (Bernstein, 2008). The key
// is the purpose of the numbers; the nonce is the sample.
#include "basics.cuh"

__device__ __forceinline__ void quarter_round(u32& a, u32& b, u32& c, u32& d) {
    a += b, d ^= a, d = __funnelshift_l(d, d, 16);
    c += d, b ^= c, b = __funnelshift_l(b, b, 12);
    a += b, d ^= a, d = __funnelshift_l(d, d, 8);
    c += d, b ^= c, b = __funnelshift_l(b, b, 7);
}

// A thread generates one block of ChaCha, which gives eight numbers. `purpose` and `name` are parts
// of the key. Elements whose number is below `probability` are dropped, the others scaled. The
// backward pass does the same with the gradient. The `elements` elements of a sample are ranges of
// `length` elements of a sample of the whole layer. The first range begins at `first`, each other
// one `stride` elements after the previous one. A range has elements in at most `blocks` blocks.
// Numbers are assigned in the order of channels first. `channels` is the number of adjacent
// channels at a pixel, 1 if the elements are in that order. With `of_samples`, the first number of
// a sample is that of all its elements.
KERNEL dropout(u32 samples, u32 elements, u32 first, u32 length, u32 stride, u32 blocks, u32 channels,
               u64 first_sample, u64 purpose, u64 name, double probability, float scale, u32 of_samples,
               const Context* __restrict__ context, const real* __restrict__ x, real* __restrict__ y) {
    const u32 ranges = elements / length, i = ELEMENT;
    if (i >= samples * ranges * blocks) return;
    const u32 range = i / blocks % ranges, begin = first + range * stride;
    const u32 block = begin / 8 + i % blocks, sample = i / blocks / ranges;
    const u64 nonce = first_sample + sample;
    const u32 input[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574,
                           (u32)context->seed, (u32)(context->seed >> 32), (u32)purpose, (u32)(purpose >> 32),
                           (u32)context->iteration, (u32)(context->iteration >> 32),
                           (u32)name, (u32)(name >> 32),
                           of_samples ? 0 : block, 0, (u32)nonce, (u32)(nonce >> 32)};
    u32 state[16];
#pragma unroll
    for (int word = 0; word < 16; word++) state[word] = input[word];
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
    u64 of_sample = 0;
    const u32 start = sample * elements, pixels = elements / channels;
#pragma unroll
    for (u32 j = 0; j < 8; j++) {
        const u64 low = state[2 * j] + input[2 * j], high = state[2 * j + 1] + input[2 * j + 1];
        const u64 drawn = (high << 32 | low) >> 11;
        if (j == 0) of_sample = drawn;
        const double number = (double)(of_samples ? of_sample : drawn) * (1.0 / 9007199254740992.0);
        // Elements before the range wrap around to a large offset.
        const u32 offset = block * 8 + j - begin;
        if (offset < length) {
            const u32 element = range * length + offset;
            const u32 at = start + element % pixels * channels + element / pixels;
            y[at] = x[at] * (number < probability ? 0 : scale);
        }
    }
}
