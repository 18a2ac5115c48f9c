// Dropout with the random numbers of `random::RandomStream`.
#include "random.cuh"

// A thread generates one block of eight numbers. Elements whose number is below `probability` are
// dropped, the others scaled. The backward pass does the same with the gradient. The `elements`
// elements of a sample are ranges of `length` elements of a sample of the whole layer. The first
// range begins at `first`, each other one `stride` elements after the previous one. A range has
// elements in at most `blocks` blocks. Numbers are assigned in the order of channels first.
// `channels` is the number of adjacent channels at a pixel, 1 if the elements are in that order.
// With `of_samples`, the first number of a sample is that of all its elements.
KERNEL dropout(u32 samples, u32 elements, u32 first, u32 length, u32 stride, u32 blocks, u32 channels,
               u64 first_sample, u64 purpose, u64 name, double probability, float scale, u32 of_samples,
               const Context* __restrict__ context, const real* __restrict__ x, real* __restrict__ y) {
    const u32 ranges = elements / length, i = ELEMENT;
    if (i >= samples * ranges * blocks) return;
    const u32 range = i / blocks % ranges, begin = first + range * stride;
    const u32 block = begin / 8 + i % blocks, sample = i / blocks / ranges;
    const Numbers numbers(context, purpose, name, of_samples ? 0 : block, first_sample + sample);
    const u32 start = sample * elements, pixels = elements / channels;
#pragma unroll
    for (u32 j = 0; j < 8; j++) {
        const double number = numbers.number(of_samples ? 0 : j);
        // Elements before the range wrap around to a large offset.
        const u32 offset = block * 8 + j - begin;
        if (offset < length) {
            const u32 element = range * length + offset;
            const u32 at = start + element % pixels * channels + element / pixels;
            y[at] = x[at] * (number < probability ? 0 : scale);
        }
    }
}

// The mask of an attention's weights: one bit for each number of a sample, 1 for a kept weight. A
// thread generates one byte, the numbers of one of the `blocks` blocks of a sample, of which the
// first one has the index `first_block`.
KERNEL attention_mask(u32 samples, u32 blocks, u64 first_block, u64 first_sample, u64 purpose, u64 name,
                      double probability, const Context* __restrict__ context,
                      unsigned char* __restrict__ mask) {
    const u32 i = ELEMENT;
    if (i >= samples * blocks) return;
    const Numbers numbers(context, purpose, name, first_block + i % blocks, first_sample + i / blocks);
    u32 bits = 0;
#pragma unroll
    for (u32 j = 0; j < 8; j++) bits |= (u32)(numbers.number(j) >= probability) << j;
    mask[i] = bits;
}
