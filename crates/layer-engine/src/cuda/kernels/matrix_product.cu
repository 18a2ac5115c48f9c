// Linear layers: products over all samples, or over all positions of all samples. The terms of a
// product are divided into slices of `slice` terms, one for each value of `blockIdx.y`, whose sums
// are written one after another.
#include "tile.cuh"

// y[sample][output] = sum over inputs of x[sample][input] * weight[output][input] + bias[output].
// `bias` is null if there are no biases or several slices.
KERNEL linear_forward(u32 samples, u32 outputs, u32 inputs, u32 slice, const float* __restrict__ x,
                      const float* __restrict__ weight, const float* __restrict__ bias,
                      float* __restrict__ y) {
    __shared__ Slabs slabs;
    const u32 row = blockIdx.x / tiles(outputs) * TILE, column = blockIdx.x % tiles(outputs) * TILE;
    const u32 from = blockIdx.y * slice, to = min(from + slice, inputs);
    float sums[4][4] = {};
    multiply(slabs, from, to, Rows(x, row, samples, inputs), Rows(weight, column, outputs, inputs), sums);
    if (bias) {
        const float4 four =
            load_four(bias + column + TILE_COLUMN, (int)outputs - (int)(column + TILE_COLUMN), false);
        const float terms[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) sums[i][j] += terms[j];
    }
    store_tile(sums, y + (u64)blockIdx.y * samples * outputs, row, samples, column, outputs, outputs);
}

// dx[sample][input] = sum over outputs of dy[sample][output] * weight[output][input].
KERNEL linear_input_gradient(u32 samples, u32 outputs, u32 inputs, u32 slice,
                             const float* __restrict__ dy, const float* __restrict__ weight,
                             float* __restrict__ dx) {
    __shared__ Slabs slabs;
    const u32 row = blockIdx.x / tiles(inputs) * TILE, column = blockIdx.x % tiles(inputs) * TILE;
    const u32 from = blockIdx.y * slice, to = min(from + slice, outputs);
    float sums[4][4] = {};
    multiply(slabs, from, to, Rows(dy, row, samples, outputs), Columns(weight, column, inputs, inputs),
             sums);
    store_tile(sums, dx + (u64)blockIdx.y * samples * inputs, row, samples, column, inputs, inputs);
}

// dw[output][input] = sum over samples of dy[sample][output] * x[sample][input].
KERNEL linear_weight_gradient(u32 samples, u32 outputs, u32 inputs, u32 slice, const float* __restrict__ x,
                              const float* __restrict__ dy, float* __restrict__ dw) {
    __shared__ Slabs slabs;
    const u32 row = blockIdx.x / tiles(inputs) * TILE, column = blockIdx.x % tiles(inputs) * TILE;
    const u32 from = blockIdx.y * slice, to = min(from + slice, samples);
    float sums[4][4] = {};
    multiply(slabs, from, to, Columns(dy, row, outputs, outputs), Columns(x, column, inputs, inputs), sums);
    store_tile(sums, dw + (u64)blockIdx.y * outputs * inputs, row, outputs, column, inputs, inputs);
}

// db[output] = sum over samples of dy[sample][output]. A block has 32 outputs; its warps process
// samples in turn.
KERNEL linear_bias_gradient(u32 samples, u32 outputs, const float* __restrict__ dy, float* __restrict__ db) {
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
                  const float* __restrict__ bias, float* __restrict__ to) {
    const u32 i = ELEMENT;
    if (i < elements) {
        float sum = 0;
#pragma unroll 4
        for (u32 slice = 0; slice < slices; slice++) sum += parts[(u64)slice * elements + i];
        to[i] = bias ? sum + bias[i / positions % channels] : sum;
    }
}
