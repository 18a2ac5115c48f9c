// Recurrences of LSTMs and GRUs. A step computes a position of a sequence. A block computes all
// steps of SAMPLES samples, which do not depend on other samples.
#include "basics.cuh"

#define SAMPLES 4

// Sizes of the operands.
struct Sizes {
    u32 samples, positions, width;
    // Number of positions whose gates and memory are kept: all, or one.
    u32 slots;
    // Whether the steps go from the last position to the first.
    u32 reversed;

    // Number of samples of a block.
    __device__ __forceinline__ u32 count() const { return min(SAMPLES, samples - blockIdx.x * SAMPLES); }

    // Position of a step.
    __device__ __forceinline__ u32 position(u32 step) const {
        return reversed != 0 ? positions - 1 - step : step;
    }

    // Index of the position of a step of a sample of the block.
    __device__ __forceinline__ u32 row(u32 sample, u32 step) const {
        return (blockIdx.x * SAMPLES + sample) * positions + position(step);
    }

    // Index of what is kept of a step of a sample of the block.
    __device__ __forceinline__ u32 kept(u32 sample, u32 step) const {
        return (blockIdx.x * SAMPLES + sample) * slots + position(step) % slots;
    }
};

// Function of a long short-term memory. Kept are the gates and the memory.
struct Lstm {
    static const u32 GATES = 4, KEPT = 5;

    // Index of the vector that receives the recurrent products for a gate.
    __device__ static __forceinline__ u32 vector(u32 gate) { return gate; }

    // Returns the output. `kept` has the products.
    __device__ static __forceinline__ float forward(u32 width, const real* x, float* kept,
                                                    float before_memory, float) {
        const float i = sigmoid(x[0] + kept[0]), f = sigmoid(x[width] + kept[width]);
        const float g = tanhf(x[2 * width] + kept[2 * width]), o = sigmoid(x[3 * width] + kept[3 * width]);
        const float c = f * before_memory + i * g;
        kept[0] = i;
        kept[width] = f;
        kept[2 * width] = g;
        kept[3 * width] = o;
        kept[4 * width] = c;
        return o * tanhf(c);
    }

    // Computes the gradients of the input and of the products from that of the output, and replaces
    // those of the output and of the memory, which the step before has from this one.
    __device__ static __forceinline__ void backward(u32 width, float dh, const float* kept,
                                                    float before_memory, float, float* dx, float* dp,
                                                    float* carried) {
        const float i = kept[0], f = kept[width], g = kept[2 * width], o = kept[3 * width];
        const float memory = tanhf(kept[4 * width]);
        const float dc = dh * o * (1 - memory * memory) + carried[width];
        dp[0] = dx[0] = dc * g * i * (1 - i);
        dp[1] = dx[1] = dc * before_memory * f * (1 - f);
        dp[2] = dx[2] = dc * i * (1 - g * g);
        dp[3] = dx[3] = dh * memory * o * (1 - o);
        carried[0] = 0;
        carried[width] = dc * f;
    }
};

// Function of a gated recurrent unit. Kept are the gates and the products for the last gate.
struct Gru {
    static const u32 GATES = 3, KEPT = 4;

    __device__ static __forceinline__ u32 vector(u32 gate) { return gate == 2 ? 3 : gate; }

    __device__ static __forceinline__ float forward(u32 width, const real* x, float* kept, float,
                                                    float before) {
        const float r = sigmoid(x[0] + kept[0]), z = sigmoid(x[width] + kept[width]);
        const float n = tanhf(x[2 * width] + r * kept[3 * width]);
        kept[0] = r;
        kept[width] = z;
        kept[2 * width] = n;
        return (1 - z) * n + z * before;
    }

    __device__ static __forceinline__ void backward(u32 width, float dh, const float* kept, float,
                                                    float before, float* dx, float* dp, float* carried) {
        const float r = kept[0], z = kept[width], n = kept[2 * width];
        dx[2] = dh * (1 - z) * (1 - n * n);
        dp[2] = dx[2] * r;
        dp[0] = dx[0] = dx[2] * kept[3 * width] * r * (1 - r);
        dp[1] = dx[1] = dh * (before - n) * z * (1 - z);
        carried[0] = dh * z;
    }
};

// Computes the outputs. `states` has the outputs of two steps in single precision: rounded ones do
// not change those of later steps. It has all samples of the last block, too.
template <class Cell>
__device__ __forceinline__ void forward(const Sizes& sizes, const real* __restrict__ x,
                                        const real* __restrict__ weight, const real* __restrict__ bias,
                                        real* __restrict__ y, float* kept, float* states) {
    const u32 width = sizes.width, count = sizes.count();
    states += blockIdx.x * SAMPLES * 2 * width;
    ROLLED for (u32 step = 0; step < sizes.positions; step++) {
        const float* states_before = states + (step - 1) % 2 * width;
        // One warp for each row of the weight.
        ROLLED for (u32 row = threadIdx.x / 32; row < Cell::GATES * width; row += WARPS) {
            float sums[SAMPLES] = {};
            ROLLED for (u32 i = LANE; step > 0 && i < width; i += 32) {
                const float factor = weight[row * width + i];
#pragma unroll
                for (u32 sample = 0; sample < SAMPLES; sample++)
                    sums[sample] += factor * states_before[2 * sample * width + i];
            }
            const float start = bias == nullptr ? 0.0f : (float)bias[row];
            const u32 place = Cell::vector(row / width) * width + row % width;
#pragma unroll
            for (u32 sample = 0; sample < SAMPLES; sample++) {
                const float sum = (float)warp_sum(sums[sample]) + start;
                if (LANE == 0 && sample < count)
                    kept[sizes.kept(sample, step) * Cell::KEPT * width + place] = sum;
            }
        }
        __syncthreads();
        ROLLED for (u32 i = threadIdx.x; i < count * width; i += THREADS) {
            const u32 sample = i / width, unit = i % width, row = sizes.row(sample, step);
            float* here = kept + sizes.kept(sample, step) * Cell::KEPT * width + unit;
            float memory = 0, before = 0;
            if (step > 0) {
                const u32 last = sizes.kept(sample, step - 1) * Cell::KEPT + Cell::KEPT - 1;
                before = states_before[2 * sample * width + unit];
                memory = kept[last * width + unit];
            }
            const real* gates = x + row * Cell::GATES * width + unit;
            const float state = Cell::forward(width, gates, here, memory, before);
            states[(2 * sample + step % 2) * width + unit] = state;
            y[row * width + unit] = state;
        }
        __syncthreads();
    }
}

// Computes the gradients of the inputs and of the recurrent products, and copies the outputs of the
// step before each step to `before`. `carried` has a gradient of the output and of the memory for
// each sample. It and `products` have all samples of the last block, too.
template <class Cell>
__device__ __forceinline__ void gradient(const Sizes& sizes, const real* __restrict__ weight,
                                         const real* __restrict__ y, const float* __restrict__ kept,
                                         const real* __restrict__ dy, real* __restrict__ dx,
                                         float* products, float* __restrict__ before, float* carried) {
    const u32 width = sizes.width, count = sizes.count(), inputs = Cell::GATES * width;
    carried += blockIdx.x * SAMPLES * 2 * width;
    ROLLED for (u32 i = threadIdx.x; i < count * 2 * width; i += THREADS) carried[i] = 0;
    __syncthreads();
    ROLLED for (u32 step = sizes.positions; step-- > 0;) {
        ROLLED for (u32 i = threadIdx.x; i < count * width; i += THREADS) {
            const u32 sample = i / width, unit = i % width, row = sizes.row(sample, step);
            float memory = 0, state = 0;
            if (step > 0) {
                const u32 last = sizes.row(sample, step - 1);
                state = y[last * width + unit];
                memory = kept[(last * Cell::KEPT + Cell::KEPT - 1) * width + unit];
            }
            float* own = carried + sample * 2 * width + unit;
            const float* here = kept + row * Cell::KEPT * width + unit;
            float inner[Cell::GATES], outer[Cell::GATES];
            Cell::backward(width, dy[row * width + unit] + own[0], here, memory, state, outer, inner, own);
#pragma unroll
            for (u32 gate = 0; gate < Cell::GATES; gate++) {
                dx[row * inputs + gate * width + unit] = outer[gate];
                products[row * inputs + gate * width + unit] = inner[gate];
            }
            before[row * width + unit] = state;
        }
        __syncthreads();
        ROLLED for (u32 unit = threadIdx.x; step > 0 && unit < width; unit += THREADS) {
            float sums[SAMPLES] = {};
            ROLLED for (u32 row = 0; row < inputs; row++) {
                const float factor = weight[row * width + unit];
#pragma unroll
                for (u32 sample = 0; sample < SAMPLES; sample++)
                    sums[sample] += factor * products[sizes.row(sample, step) * inputs + row];
            }
#pragma unroll
            for (u32 sample = 0; sample < SAMPLES; sample++)
                carried[sample * 2 * width + unit] += sums[sample];
        }
        __syncthreads();
    }
}

KERNEL lstm_forward(Sizes sizes, const real* __restrict__ x, const real* __restrict__ weight,
                    const real* __restrict__ bias, real* __restrict__ y, float* kept, float* states) {
    forward<Lstm>(sizes, x, weight, bias, y, kept, states);
}

KERNEL gru_forward(Sizes sizes, const real* __restrict__ x, const real* __restrict__ weight,
                   const real* __restrict__ bias, real* __restrict__ y, float* kept, float* states) {
    forward<Gru>(sizes, x, weight, bias, y, kept, states);
}

KERNEL lstm_gradient(Sizes sizes, const real* __restrict__ weight, const real* __restrict__ y,
                     const float* __restrict__ kept, const real* __restrict__ dy, real* __restrict__ dx,
                     float* products, float* __restrict__ before, float* carried) {
    gradient<Lstm>(sizes, weight, y, kept, dy, dx, products, before, carried);
}

KERNEL gru_gradient(Sizes sizes, const real* __restrict__ weight, const real* __restrict__ y,
                    const float* __restrict__ kept, const real* __restrict__ dy, real* __restrict__ dx,
                    float* products, float* __restrict__ before, float* carried) {
    gradient<Gru>(sizes, weight, y, kept, dy, dx, products, before, carried);
}
