// Linear layers: products over all samples, or over all positions of all samples. The terms of a
// product are divided into slices of `slice` terms, one for each value of `blockIdx.y`, whose sums
// are written one after another.
#include "tile.cuh"

// y[sample][output] = sum over inputs of x[sample][input] * weight[output][input] + bias[output].
// `bias` is null if there are no biases or several slices.
template <u32 SIDE>
__device__ __forceinline__ void forward(u32 samples, u32 outputs, u32 inputs, u32 slice, const real* x,
                                        const real* weight, const real* bias, void* y) {
    __shared__ Slabs<SIDE> slabs;
    const u32 row = blockIdx.x / tiles<SIDE>(outputs) * SIDE;
    const u32 column = blockIdx.x % tiles<SIDE>(outputs) * SIDE;
    const u32 from = blockIdx.y * slice, to = min(from + slice, inputs);
    Sums<SIDE> sums = product(slabs, from, to, Rows<SIDE>(x, row, samples, inputs),
                              Rows<SIDE>(weight, column, outputs, inputs));
    if (bias) {
        const u32 first = column + tile_column<SIDE>();
        const float4 four = load_four(bias + first, (int)outputs - (int)first, false);
        const float terms[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < STORED_ROWS<SIDE>; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) sums.at[i][j] += terms[j];
    }
    const u64 offset = (u64)blockIdx.y * samples * outputs;
    store_product<SIDE>(sums.at, y, gridDim.y == 1, offset, row, samples, column, outputs);
}

// dx[sample][input] = sum over outputs of dy[sample][output] * weight[output][input].
template <u32 SIDE>
__device__ __forceinline__ void input_gradient(u32 samples, u32 outputs, u32 inputs, u32 slice,
                                               const real* dy, const real* weight, void* dx) {
    __shared__ Slabs<SIDE> slabs;
    const u32 row = blockIdx.x / tiles<SIDE>(inputs) * SIDE;
    const u32 column = blockIdx.x % tiles<SIDE>(inputs) * SIDE;
    const u32 from = blockIdx.y * slice, to = min(from + slice, outputs);
    const Sums<SIDE> sums = product(slabs, from, to, Rows<SIDE>(dy, row, samples, outputs),
                                    Columns<SIDE>(weight, column, inputs, inputs));
    const u64 offset = (u64)blockIdx.y * samples * inputs;
    store_product<SIDE>(sums.at, dx, gridDim.y == 1, offset, row, samples, column, inputs);
}

// dw[output][input] = sum over samples of dy[sample][output] * x[sample][input].
template <u32 SIDE>
__device__ __forceinline__ void weight_gradient(u32 samples, u32 outputs, u32 inputs, u32 slice,
                                                const real* x, const real* dy, float* dw) {
    __shared__ Slabs<SIDE> slabs;
    const u32 row = blockIdx.x / tiles<SIDE>(inputs) * SIDE;
    const u32 column = blockIdx.x % tiles<SIDE>(inputs) * SIDE;
    const u32 from = blockIdx.y * slice, to = min(from + slice, samples);
    const Sums<SIDE> sums = product(slabs, from, to, Columns<SIDE>(dy, row, outputs, outputs),
                                    Columns<SIDE>(x, column, inputs, inputs));
    dw += (u64)blockIdx.y * outputs * inputs;
    store_tile<SIDE>(sums.at, dw, row, outputs, column, inputs, inputs);
}

KERNEL linear_forward(u32 samples, u32 outputs, u32 inputs, u32 slice, const real* __restrict__ x,
                      const real* __restrict__ weight, const real* __restrict__ bias,
                      void* __restrict__ y) {
    forward<64>(samples, outputs, inputs, slice, x, weight, bias, y);
}

KERNEL linear_input_gradient(u32 samples, u32 outputs, u32 inputs, u32 slice,
                             const real* __restrict__ dy, const real* __restrict__ weight,
                             void* __restrict__ dx) {
    input_gradient<64>(samples, outputs, inputs, slice, dy, weight, dx);
}

KERNEL linear_weight_gradient(u32 samples, u32 outputs, u32 inputs, u32 slice,
                              const real* __restrict__ x, const real* __restrict__ dy,
                              float* __restrict__ dw) {
    weight_gradient<64>(samples, outputs, inputs, slice, x, dy, dw);
}

KERNEL linear_forward_small(u32 samples, u32 outputs, u32 inputs, u32 slice, const real* __restrict__ x,
                            const real* __restrict__ weight, const real* __restrict__ bias,
                            void* __restrict__ y) {
    forward<32>(samples, outputs, inputs, slice, x, weight, bias, y);
}

KERNEL linear_input_gradient_small(u32 samples, u32 outputs, u32 inputs, u32 slice,
                                   const real* __restrict__ dy, const real* __restrict__ weight,
                                   void* __restrict__ dx) {
    input_gradient<32>(samples, outputs, inputs, slice, dy, weight, dx);
}

KERNEL linear_weight_gradient_small(u32 samples, u32 outputs, u32 inputs, u32 slice,
                                    const real* __restrict__ x, const real* __restrict__ dy,
                                    float* __restrict__ dw) {
    weight_gradient<32>(samples, outputs, inputs, slice, x, dy, dw);
}

// db[output] = sum over samples of dy[sample][output]. A block has 32 outputs; its warps process
// samples in turn.
KERNEL linear_bias_gradient(u32 samples, u32 outputs, const real* __restrict__ dy, float* __restrict__ db) {
    __shared__ double sums[WARPS][32];
    const u32 output = blockIdx.x * 32 + LANE, warp = threadIdx.x / 32;
    double sum = 0;
    if (output < outputs) {
        ROLLED for (u32 sample = warp; sample < samples; sample += WARPS)
            sum += dy[sample * outputs + output];
    }
    sums[warp][LANE] = sum;
    __syncthreads();
    if (warp == 0 && output < outputs) {
        double total = 0;
#pragma unroll
        for (int part = 0; part < WARPS; part++) total += sums[part][LANE];
        db[output] = (float)total;
    }
}

// Adds the slices of a product in order, and the bias of the element's channel unless `bias` is
// null.
KERNEL sum_slices(u32 elements, u32 slices, u32 positions, u32 channels, const float* __restrict__ parts,
                  const real* __restrict__ bias, real* __restrict__ to) {
    const u32 i = ELEMENT;
    if (i < elements) {
        float sum = 0;
#pragma unroll 4
        for (u32 slice = 0; slice < slices; slice++) sum += parts[(u64)slice * elements + i];
        to[i] = bias ? sum + bias[i / positions % channels] : sum;
    }
}
