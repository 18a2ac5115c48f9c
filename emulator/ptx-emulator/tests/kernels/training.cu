// Kernels of training in the style of a simple CUDA engine. `training.ptx` is compiled from them by
// NVRTC:
//     ../compilers/nvrtc.py --line-info training.cu training.ptx

#define INFINITY_F __int_as_float(0x7f800000)

// c[m][n] = a[m][k] * b[k][n]. Tiles of 64 x 64 by blocks of 16 x 16 threads, 4 x 4 values each.
extern "C" __global__ void __launch_bounds__(256) gemm(int m, int n, int k, const float* __restrict__ a,
                                                      const float* __restrict__ b, float* __restrict__ c) {
    __shared__ float left[16][64];
    __shared__ float right[16][64];
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const int row0 = blockIdx.y * 64, column0 = blockIdx.x * 64;
    float sums[4][4] = {};
    for (int start = 0; start < k; start += 16) {
        for (int i = threadIdx.x; i < 64 * 16; i += 256) {
            const int row = i / 16, column = i % 16;
            left[column][row] =
                row0 + row < m && start + column < k ? a[(row0 + row) * k + start + column] : 0.0f;
        }
        for (int i = threadIdx.x; i < 64 * 16; i += 256) {
            const int row = i / 64, column = i % 64;
            right[row][column] =
                start + row < k && column0 + column < n ? b[(start + row) * n + column0 + column] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int step = 0; step < 16; step++) {
            float x[4], y[4];
#pragma unroll
            for (int i = 0; i < 4; i++) x[i] = left[step][ty * 4 + i];
#pragma unroll
            for (int j = 0; j < 4; j++) y[j] = right[step][tx * 4 + j];
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sums[i][j] += x[i] * y[j];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int row = row0 + ty * 4 + i, column = column0 + tx * 4 + j;
            if (row < m && column < n) c[row * n + column] = sums[i][j];
        }
}

// 3 x 3 convolution with padding 1 in NCHW. A block computes a tile of 16 x 16 positions of 8
// output channels of one sample.
extern "C" __global__ void __launch_bounds__(256) convolution(int channels, int outputs, int height,
                                                             int width,
                                                             const float* __restrict__ input,
                                                             const float* __restrict__ weights,
                                                             const float* __restrict__ bias,
                                                             float* __restrict__ output) {
    __shared__ float tile[18][18];
    __shared__ float filter[8][9];
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const int tiles = (width + 15) / 16;
    const int x0 = blockIdx.x % tiles * 16, y0 = blockIdx.x / tiles * 16;
    const int first = blockIdx.y * 8, sample = blockIdx.z;
    float sums[8] = {};
    for (int channel = 0; channel < channels; channel++) {
        for (int i = threadIdx.x; i < 18 * 18; i += 256) {
            const int y = y0 + i / 18 - 1, x = x0 + i % 18 - 1;
            const bool inside = y >= 0 && y < height && x >= 0 && x < width;
            tile[i / 18][i % 18] =
                inside ? input[((sample * channels + channel) * height + y) * width + x] : 0.0f;
        }
        if (threadIdx.x < 72) {
            const int out = first + threadIdx.x / 9;
            filter[threadIdx.x / 9][threadIdx.x % 9] =
                out < outputs ? weights[(out * channels + channel) * 9 + threadIdx.x % 9] : 0.0f;
        }
        __syncthreads();
        float window[9];
#pragma unroll
        for (int i = 0; i < 9; i++) window[i] = tile[ty + i / 3][tx + i % 3];
#pragma unroll
        for (int o = 0; o < 8; o++)
#pragma unroll
            for (int i = 0; i < 9; i++) sums[o] += window[i] * filter[o][i];
        __syncthreads();
    }
    const int y = y0 + ty, x = x0 + tx;
    if (y >= height || x >= width) return;
#pragma unroll
    for (int o = 0; o < 8; o++)
        if (first + o < outputs)
            output[((sample * outputs + first + o) * height + y) * width + x] = sums[o] + bias[first + o];
}

__device__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(~0u, value, offset);
    return value;
}

// Mean and biased variance of each channel in NCHW, with one block for each channel.
extern "C" __global__ void batch_norm_statistics(int samples, int channels, int positions,
                                                 const float* values,
                                                 float* mean, float* variance) {
    __shared__ float sums[32], squares[32];
    const int channel = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float sum = 0, square = 0;
    for (int i = threadIdx.x; i < samples * positions; i += blockDim.x) {
        const float value = values[(i / positions * channels + channel) * positions + i % positions];
        sum += value;
        square += value * value;
    }
    sum = warp_sum(sum);
    square = warp_sum(square);
    if (lane == 0) {
        sums[warp] = sum;
        squares[warp] = square;
    }
    __syncthreads();
    if (warp == 0) {
        sum = warp_sum(lane < blockDim.x / 32 ? sums[lane] : 0);
        square = warp_sum(lane < blockDim.x / 32 ? squares[lane] : 0);
        if (lane == 0) {
            const float count = samples * positions;
            mean[channel] = sum / count;
            variance[channel] = square / count - sum / count * (sum / count);
        }
    }
}

// Loss of each row, and gradient of the mean loss, with one block of 128 threads for each row.
extern "C" __global__ void softmax_cross_entropy(int classes, float scale, const float* logits,
                                                 const int* labels,
                                                 float* losses, float* gradient) {
    __shared__ float scratch[128];
    const float* row = logits + (long long)blockIdx.x * classes;
    float largest = -INFINITY_F;
    for (int i = threadIdx.x; i < classes; i += 128) largest = fmaxf(largest, row[i]);
    scratch[threadIdx.x] = largest;
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (threadIdx.x < half)
            scratch[threadIdx.x] = fmaxf(scratch[threadIdx.x], scratch[threadIdx.x + half]);
        __syncthreads();
    }
    largest = scratch[0];
    __syncthreads();
    float sum = 0;
    for (int i = threadIdx.x; i < classes; i += 128) sum += expf(row[i] - largest);
    scratch[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (threadIdx.x < half) scratch[threadIdx.x] += scratch[threadIdx.x + half];
        __syncthreads();
    }
    sum = scratch[0];
    const int label = labels[blockIdx.x];
    for (int i = threadIdx.x; i < classes; i += 128)
        gradient[(long long)blockIdx.x * classes + i] =
            scale * (expf(row[i] - largest) / sum - (i == label ? 1.0f : 0.0f));
    if (threadIdx.x == 0) losses[blockIdx.x] = logf(sum) + largest - row[label];
}

extern "C" __global__ void gelu(int count, const float* input, float* output) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) output[i] = 0.5f * input[i] * (1.0f + erff(input[i] * 0.70710678f));
}

extern "C" __global__ void gelu_tanh(int count, const float* input, float* output) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        const float x = input[i];
        output[i] = 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    }
}

// SGD with momentum and weight decay as in PyTorch, four values for each thread.
extern "C" __global__ void sgd(int quarters, float rate, float momentum, float decay, float4* parameters,
                               const float4* gradient, float4* velocity) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= quarters) return;
    float4 p = parameters[i], g = gradient[i], v = velocity[i];
    v.x = momentum * v.x + (g.x + decay * p.x);
    v.y = momentum * v.y + (g.y + decay * p.y);
    v.z = momentum * v.z + (g.z + decay * p.z);
    v.w = momentum * v.w + (g.w + decay * p.w);
    p.x -= rate * v.x;
    p.y -= rate * v.y;
    p.z -= rate * v.z;
    p.w -= rate * v.w;
    parameters[i] = p;
    velocity[i] = v;
}

// Backward pass of max pooling with 3 x 3 windows and stride 2: a gradient is added to the first
// maximum of its window. Windows overlap.
extern "C" __global__ void max_pool_backward(int planes, int height, int width, int out_height, int out_width,
                                             const float* input, const float* output_gradient,
                                             float* input_gradient) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= planes * out_height * out_width) return;
    const int x = i % out_width, y = i / out_width % out_height, plane = i / out_width / out_height;
    int place = -1;
    float largest = -INFINITY_F;
    for (int dy = 0; dy < 3; dy++)
        for (int dx = 0; dx < 3; dx++) {
            const int row = y * 2 + dy, column = x * 2 + dx;
            if (row >= height || column >= width) continue;
            const float value = input[(plane * height + row) * width + column];
            if (place < 0 || value > largest) {
                largest = value;
                place = (plane * height + row) * width + column;
            }
        }
    atomicAdd(input_gradient + place, output_gradient[i]);
}

// Drops values by a counter-based generator (SplitMix64 of seed and index) and scales the others.
extern "C" __global__ void dropout(long long count, unsigned long long seed, float keep,
                                   const float* input, float* output) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= count) return;
    unsigned long long z = seed + (i + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    output[i] = (z >> 40) * (1.0f / 16777216.0f) < keep ? input[i] / keep : 0.0f;
}

// Histogram of bytes: in shared memory, then over all blocks.
extern "C" __global__ void histogram(int count, const unsigned char* values, unsigned* counts) {
    __shared__ unsigned own[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) own[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        atomicAdd(own + values[i], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(counts + i, own[i]);
}
