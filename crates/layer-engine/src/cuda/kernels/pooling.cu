// Pooling over windows of images, one thread per result. Overlapping windows are added in order.
// The `channels` channels of an image are adjacent at each pixel.
#include "basics.cuh"

// Windows along one axis: of a fixed size, or adaptive if `kernel` is 0.
struct Axis {
    u32 size, windows;
    u32 kernel, stride, padding;

    // Elements of a window: `begin` to `end`, exclusive.
    __device__ __forceinline__ u32 begin(u32 window) const {
        if (kernel == 0) return (u64)window * size / windows;
        const u32 start = window * stride;
        return min(max(start, padding) - padding, end(window));
    }
    __device__ __forceinline__ u32 end(u32 window) const {
        if (kernel == 0) return ((u64)(window + 1) * size + windows - 1) / windows;
        const u32 stop = window * stride + kernel;
        return min(max(stop, padding) - padding, size);
    }
    // Windows that contain an element: `first` to `last`, exclusive.
    __device__ __forceinline__ u32 first(u32 element) const {
        if (kernel == 0) return (u64)element * windows / size;
        const u32 place = element + padding + 1;
        return place > kernel ? (place - kernel + stride - 1) / stride : 0;
    }
    __device__ __forceinline__ u32 last(u32 element) const {
        if (kernel == 0) return ((u64)(element + 1) * windows + size - 1) / size;
        return min((element + padding) / stride + 1, windows);
    }
    // Returns the length that a window's sum is divided by.
    __device__ __forceinline__ u32 counted(u32 window, u32 with_padding) const {
        return with_padding ? kernel : end(window) - begin(window);
    }
};

// Writes the maximum of each window and its index in the window, the first of equal ones. In
// evaluation `places` is null.
KERNEL max_pool_forward(u32 images, u32 channels, const Axis rows, const Axis columns,
                        const real* __restrict__ x, real* __restrict__ y, float* __restrict__ places) {
    const u32 i = ELEMENT, windows = rows.windows * columns.windows;
    if (i >= images * windows * channels) return;
    const u32 window = i / channels, channel = i % channels;
    const u32 row = window % windows / columns.windows, column = window % columns.windows;
    const real* image = x + window / windows * rows.size * columns.size * channels + channel;
    const u32 top = rows.begin(row), bottom = rows.end(row), left = columns.begin(column),
              right = columns.end(column);
    // Corner of the window including padding, in wrapping arithmetic.
    const u32 corner_row = row * rows.stride - rows.padding,
              corner_column = column * columns.stride - columns.padding;
    float best = -INFINITY_F;
    u32 place = (top - corner_row) * columns.kernel + left - corner_column;
    ROLLED for (u32 h = top; h < bottom; h++) {
        ROLLED for (u32 w = left; w < right; w++) {
            const float value = image[(h * columns.size + w) * channels];
            if (value > best || value != value) {
                best = value;
                place = (h - corner_row) * columns.kernel + w - corner_column;
            }
        }
    }
    y[i] = best;
    if (places) places[i] = (float)place;
}

// Gradient of each element: the sum over the windows whose maximum it is.
KERNEL max_pool_backward(u32 images, u32 channels, const Axis rows, const Axis columns,
                         const float* __restrict__ places, const real* __restrict__ dy,
                         real* __restrict__ dx) {
    const u32 i = ELEMENT, pixels = rows.size * columns.size;
    if (i >= images * pixels * channels) return;
    const u32 pixel = i / channels, channel = i % channels;
    const u32 h = pixel % pixels / columns.size, w = pixel % columns.size;
    const u32 windows = pixel / pixels * rows.windows * columns.windows;
    float sum = 0;
    ROLLED for (u32 row = rows.first(h); row < rows.last(h); row++) {
        ROLLED for (u32 column = columns.first(w); column < columns.last(w); column++) {
            const u32 window = (windows + row * columns.windows + column) * channels + channel;
            const u32 place = (h + rows.padding - row * rows.stride) * columns.kernel + w + columns.padding -
                              column * columns.stride;
            if (places[window] == (float)place) sum += dy[window];
        }
    }
    dx[i] = sum;
}

// Mean of each window. `with_padding` is whether padding counts as zeros.
KERNEL avg_pool_forward(u32 images, u32 channels, const Axis rows, const Axis columns, u32 with_padding,
                        const real* __restrict__ x, real* __restrict__ y) {
    const u32 i = ELEMENT, windows = rows.windows * columns.windows;
    if (i >= images * windows * channels) return;
    const u32 window = i / channels, channel = i % channels;
    const u32 row = window % windows / columns.windows, column = window % columns.windows;
    const real* image = x + window / windows * rows.size * columns.size * channels + channel;
    float sum = 0;
    ROLLED for (u32 h = rows.begin(row); h < rows.end(row); h++) {
        ROLLED for (u32 w = columns.begin(column); w < columns.end(column); w++)
            sum += image[(h * columns.size + w) * channels];
    }
    y[i] = sum * (1.0f / (rows.counted(row, with_padding) * columns.counted(column, with_padding)));
}

KERNEL avg_pool_backward(u32 images, u32 channels, const Axis rows, const Axis columns, u32 with_padding,
                         const real* __restrict__ dy, real* __restrict__ dx) {
    const u32 i = ELEMENT, pixels = rows.size * columns.size;
    if (i >= images * pixels * channels) return;
    const u32 pixel = i / channels, channel = i % channels;
    const u32 h = pixel % pixels / columns.size, w = pixel % columns.size;
    const u32 windows = pixel / pixels * rows.windows * columns.windows;
    float sum = 0;
    ROLLED for (u32 row = rows.first(h); row < rows.last(h); row++) {
        ROLLED for (u32 column = columns.first(w); column < columns.last(w); column++) {
            const float share =
                1.0f / (rows.counted(row, with_padding) * columns.counted(column, with_padding));
            sum += dy[(windows + row * columns.windows + column) * channels + channel] * share;
        }
    }
    dx[i] = sum;
}
