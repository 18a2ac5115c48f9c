// CUB algorithms on blocks of 128 threads, compiled by NVRTC: `nvrtc.py --cub cub.cu cub.ptx`.
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>

constexpr int THREADS = 128, ITEMS = 4, TILE = THREADS * ITEMS;

struct Less {
    template <typename T>
    __device__ bool operator()(const T& a, const T& b) const {
        return a < b;
    }
};

// One result for each block.
extern "C" __global__ void block_sum_f32(const float* input, float* output) {
    using Reduce = cub::BlockReduce<float, THREADS>;
    __shared__ typename Reduce::TempStorage storage;
    const float sum = Reduce(storage).Sum(input[blockIdx.x * THREADS + threadIdx.x]);
    if (threadIdx.x == 0) output[blockIdx.x] = sum;
}

extern "C" __global__ void block_sum_u32(const unsigned* input, unsigned* output) {
    using Reduce = cub::BlockReduce<unsigned, THREADS>;
    __shared__ typename Reduce::TempStorage storage;
    const unsigned sum = Reduce(storage).Sum(input[blockIdx.x * THREADS + threadIdx.x]);
    if (threadIdx.x == 0) output[blockIdx.x] = sum;
}

// One result for each warp, by `redux`.
extern "C" __global__ void warp_max_s32(const int* input, int* output) {
    using Reduce = cub::WarpReduce<int>;
    __shared__ typename Reduce::TempStorage storage[THREADS / 32];
    const int i = blockIdx.x * THREADS + threadIdx.x;
    const int largest = Reduce(storage[threadIdx.x / 32]).Reduce(input[i], ::cuda::maximum<int>{});
    if (threadIdx.x % 32 == 0) output[i / 32] = largest;
}

extern "C" __global__ void exclusive_sum_s32(const int* input, int* output) {
    using Scan = cub::BlockScan<int, THREADS>;
    __shared__ typename Scan::TempStorage storage;
    int items[ITEMS];
    cub::LoadDirectBlocked(threadIdx.x, input + blockIdx.x * TILE, items);
    Scan(storage).ExclusiveSum(items, items);
    cub::StoreDirectBlocked(threadIdx.x, output + blockIdx.x * TILE, items);
}

extern "C" __global__ void inclusive_sum_f64(const double* input, double* output) {
    using Scan = cub::BlockScan<double, THREADS, cub::BLOCK_SCAN_WARP_SCANS>;
    __shared__ typename Scan::TempStorage storage;
    double items[ITEMS];
    cub::LoadDirectBlocked(threadIdx.x, input + blockIdx.x * TILE, items);
    Scan(storage).InclusiveSum(items, items);
    cub::StoreDirectBlocked(threadIdx.x, output + blockIdx.x * TILE, items);
}

extern "C" __global__ void merge_sort_s32(const int* input, int* output) {
    using Sort = cub::BlockMergeSort<int, THREADS, ITEMS>;
    __shared__ typename Sort::TempStorage storage;
    int items[ITEMS];
    cub::LoadDirectBlocked(threadIdx.x, input + blockIdx.x * TILE, items);
    Sort(storage).Sort(items, Less{});
    cub::StoreDirectBlocked(threadIdx.x, output + blockIdx.x * TILE, items);
}

extern "C" __global__ void radix_sort_u32(const unsigned* input, unsigned* output) {
    using Load = cub::BlockLoad<unsigned, THREADS, ITEMS, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
    using Store = cub::BlockStore<unsigned, THREADS, ITEMS, cub::BLOCK_STORE_WARP_TRANSPOSE>;
    using Sort = cub::BlockRadixSort<unsigned, THREADS, ITEMS>;
    __shared__ union {
        typename Load::TempStorage load;
        typename Store::TempStorage store;
        typename Sort::TempStorage sort;
    } storage;
    unsigned items[ITEMS];
    Load(storage.load).Load(const_cast<unsigned*>(input) + blockIdx.x * TILE, items);
    __syncthreads();
    Sort(storage.sort).Sort(items);
    __syncthreads();
    Store(storage.store).Store(output + blockIdx.x * TILE, items);
}

extern "C" __global__ void radix_sort_pairs_f32(const float* keys, const int* values, float* sorted,
                                                int* places) {
    using Sort = cub::BlockRadixSort<float, THREADS, ITEMS, int>;
    __shared__ typename Sort::TempStorage storage;
    float items[ITEMS];
    int indices[ITEMS];
    cub::LoadDirectBlocked(threadIdx.x, keys + blockIdx.x * TILE, items);
    cub::LoadDirectBlocked(threadIdx.x, values + blockIdx.x * TILE, indices);
    Sort(storage).SortDescending(items, indices);
    cub::StoreDirectBlocked(threadIdx.x, sorted + blockIdx.x * TILE, items);
    cub::StoreDirectBlocked(threadIdx.x, places + blockIdx.x * TILE, indices);
}

template <cub::BlockHistogramAlgorithm ALGORITHM>
__device__ void count(const unsigned char* input, unsigned* counts) {
    using Histogram = cub::BlockHistogram<unsigned char, THREADS, ITEMS, 256, ALGORITHM>;
    __shared__ typename Histogram::TempStorage storage;
    __shared__ unsigned own[256];
    unsigned char items[ITEMS];
    cub::LoadDirectBlocked(threadIdx.x, input + blockIdx.x * TILE, items);
    Histogram(storage).Histogram(items, own);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += THREADS) atomicAdd(counts + i, own[i]);
}

extern "C" __global__ void histogram_atomic(const unsigned char* input, unsigned* counts) {
    count<cub::BLOCK_HISTO_ATOMIC>(input, counts);
}

extern "C" __global__ void histogram_sort(const unsigned char* input, unsigned* counts) {
    count<cub::BLOCK_HISTO_SORT>(input, counts);
}
