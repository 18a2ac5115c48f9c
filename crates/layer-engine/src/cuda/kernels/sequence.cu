// Embeddings, position embeddings and class tokens.
#include "basics.cuh"

// Returns the token of a number, or the nearest valid token.
__device__ __forceinline__ u32 token_of(float number, u32 vocabulary) {
    return (u32)min(max((int)number, 0), (int)vocabulary - 1);
}

// Embedding lookup: the vector of each token.
KERNEL embedding_forward(u32 tokens, u32 vocabulary, u32 features, const float* __restrict__ x,
                         const real* __restrict__ vectors, real* __restrict__ y) {
    const u32 i = ELEMENT;
    if (i < tokens * features)
        y[i] = vectors[token_of(x[i / features], vocabulary) * features + i % features];
}

// Sum of the output gradients at the positions of a token, in order. It is zero for `padding`. One
// block per token.
KERNEL embedding_gradient(u32 tokens, u32 vocabulary, u32 features, const float* __restrict__ x,
                          const real* __restrict__ dy, float* __restrict__ gradient, u32 padding) {
    __shared__ u32 found[WARPS];
    const u32 token = blockIdx.x;
    gradient += token * features;
    ROLLED for (u32 feature = threadIdx.x; feature < features; feature += THREADS) gradient[feature] = 0;
    if (token == padding) return;
    ROLLED for (u32 start = 0; start < tokens; start += THREADS) {
        const u32 place = start + threadIdx.x;
        const u32 here = place < tokens ? token_of(x[place], vocabulary) : vocabulary;
        const u32 lanes = __ballot_sync(0xffffffff, here == token);
        if (LANE == 0) found[threadIdx.x / 32] = lanes;
        __syncthreads();
        ROLLED for (u32 warp = 0; warp < WARPS; warp++) {
            ROLLED for (u32 left = found[warp]; left != 0; left &= left - 1) {
                const real* from = dy + (start + warp * 32 + 31 - __clz(left & (0 - left))) * features;
                ROLLED for (u32 feature = threadIdx.x; feature < features; feature += THREADS)
                    gradient[feature] += from[feature];
            }
        }
        __syncthreads();
    }
}

// Rotates pairs of the first `rotated` features of each head by angles that grow with the position
// of their row, and copies the others. The features of a pair are neighbours if `interleaved`, or
// `rotated / 2` apart. `turns` has the angle of each pair at position 1 as a part of a full circle.
KERNEL rotate(u32 pairs, u32 features, u32 width, u32 rotated, u32 interleaved, u32 rows, u32 first,
              const double* __restrict__ turns, const real* __restrict__ x, real* __restrict__ y) {
    const u32 i = ELEMENT, half = rotated / 2;
    if (i >= pairs) return;
    const u32 pair = i % (width / 2), head = i / (width / 2) * width;
    const bool in_halves = pair < half && !interleaved;
    const u32 place = head + (in_halves ? pair : 2 * pair), other = place + (in_halves ? half : 1);
    const float a = x[place], b = x[other];
    float sine = 0, cosine = 1;
    if (pair < half) {
        const double turn = turns[pair] * (first + place / features % rows);
        sincospif(2 * (float)(turn - rint(turn)), &sine, &cosine);
    }
    y[place] = pair < half ? a * cosine - b * sine : a;
    y[other] = pair < half ? b * cosine + a * sine : b;
}

// Adds the same elements to each row.
KERNEL add_to_rows(u32 rows, u32 elements, const real* __restrict__ x, const real* __restrict__ learned,
                   real* __restrict__ y) {
    const u32 i = ELEMENT;
    if (i < rows * elements) y[i] = x[i] + learned[i % elements];
}

// Sum over rows of `stride` elements. The sums are stored from `first` on; elements before and
// after them are zero.
KERNEL sum_of_rows(u32 rows, u32 stride, u32 elements, u32 first, const real* __restrict__ from,
                   float* __restrict__ to) {
    const u32 i = ELEMENT;
    if (i >= elements) return;
    float sum = 0;
    // Elements before the first one wrap around to a large index.
    if (i - first < stride) {
        ROLLED for (u32 row = 0; row < rows; row++) sum += from[row * stride + i - first];
    }
    to[i] = sum;
}
