// Softmax and cross entropy of each sample: the mean over its positions. A part of a layer has some
// of the positions, and `mean_positions` is the number of all. Label smoothing spreads the share
// `smoothing` of the target evenly over the classes.
#include "basics.cuh"

// Labels of samples of `positions` positions each. If `has_weights`, the label `ignored` is that of
// positions without a loss, and the weight of a sample, the factor of its loss, is behind its
// labels.
struct Labels {
    const float* __restrict__ values;
    u32 positions, has_weights;
    float ignored;

    __device__ __forceinline__ float at(u32 row) const {
        return values[row / positions * (positions + has_weights) + row % positions];
    }

    __device__ __forceinline__ bool is_ignored(u32 row) const { return has_weights && at(row) == ignored; }

    __device__ __forceinline__ float weight(u32 sample) const {
        return has_weights ? values[sample * (positions + 1) + positions] : 1;
    }
};

// Returns the class of a label, or the nearest valid class.
__device__ __forceinline__ u32 class_of(float label, u32 classes) {
    return (u32)min(max((int)label, 0), (int)classes - 1);
}

// One warp per position: writes the probabilities (unless `saved` is null), the loss, and whether
// the first of the largest scores is the label's. The loss of an invalid label is NaN. `saved` may
// be `scores`.
KERNEL cross_entropy_positions(u32 rows, u32 classes, float smoothing, const real* scores,
                               const float* __restrict__ values, u32 positions, u32 has_weights,
                               float ignored, float* saved, double* __restrict__ losses,
                               double* __restrict__ right) {
    const Labels labels = {values, positions, has_weights, ignored};
    const u32 row = ROW;
    if (row >= rows) return;
    scores += row * classes;
    const float best = largest_of_row(classes, scores);
    double sum = 0, distance = 0;
    u32 winner = classes;
    ROLLED for (u32 i = LANE; i < classes; i += 32) {
        const float score = scores[i] - best;
        sum += expf(score);
        distance += score;
        if (scores[i] == best) winner = min(winner, i);
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        winner = min(winner, __shfl_xor_sync(0xffffffff, winner, distance));
    sum = warp_sum(sum);
    distance = warp_sum(distance);
    if (LANE == 0) {
        const u32 label = class_of(labels.at(row), classes);
        double margin = (double)scores[label] - best;
        // The distance of a score of minus infinity is infinite.
        if (smoothing > 0) margin += smoothing * (distance / classes - margin);
        const double loss = log(sum) - margin;
        losses[row] = labels.is_ignored(row) ? 0 : labels.at(row) == (float)label ? loss : NAN_F;
        right[row] = winner == label && !labels.is_ignored(row) ? 1 : 0;
    }
    // The score of the label has been read.
    __syncwarp();
    if (saved) {
        const float factor = (float)(1.0 / sum);
        ROLLED for (u32 i = LANE; i < classes; i += 32)
            saved[row * classes + i] = expf(scores[i] - best) * factor;
    }
}

// Sums over the positions of each sample as shares of the mean, one warp per sample.
KERNEL cross_entropy_samples(u32 samples, u32 positions, double* __restrict__ losses,
                             double* __restrict__ right, u32 mean_positions, u32 has_weights,
                             const float* __restrict__ values, float* __restrict__ y) {
    const Labels labels = {values, positions, has_weights, 0};
    const u32 sample = ROW;
    if (sample >= samples) return;
    double loss = 0, share = 0;
    ROLLED for (u32 i = LANE; i < positions; i += 32) {
        loss += losses[sample * positions + i];
        share += right[sample * positions + i];
    }
    loss = labels.weight(sample) * warp_sum(loss) / mean_positions;
    share = labels.weight(sample) * warp_sum(share) / mean_positions;
    if (LANE == 0) {
        y[sample] = (float)loss;
        // The first position of this sample, which the other lanes have already read.
        losses[sample * positions] = loss;
        right[sample * positions] = share;
    }
}

// Sums over the samples, by one block.
KERNEL cross_entropy_metrics(u32 samples, u32 positions, const double* __restrict__ losses,
                             const double* __restrict__ right, float* __restrict__ metrics) {
    __shared__ double scratch[2][WARPS];
    double loss = 0, share = 0;
    ROLLED for (u32 sample = threadIdx.x; sample < samples; sample += THREADS) {
        loss += losses[sample * positions];
        share += right[sample * positions];
    }
    loss = block_sum(loss, scratch[0]);
    share = block_sum(share, scratch[1]);
    if (threadIdx.x == 0) {
        metrics[0] = (float)loss;
        metrics[1] = (float)share;
    }
}

// Returns the factor of the gradient at a position with respect to the loss of its sample.
__device__ __forceinline__ float scale_of(const Labels& labels, u32 row, u32 mean_positions,
                                          const float* __restrict__ dy) {
    const u32 sample = row / labels.positions;
    return labels.is_ignored(row) ? 0 : dy[sample] * (1.0f / mean_positions) * labels.weight(sample);
}

// `dx` may be `saved`.
KERNEL cross_entropy_backward(u32 rows, u32 classes, u32 positions, u32 mean_positions, float smoothing,
                              const float* saved, const float* __restrict__ values, u32 has_weights,
                              float ignored, const float* __restrict__ dy, real* dx) {
    const Labels labels = {values, positions, has_weights, ignored};
    const u32 i = ELEMENT, row = i / classes;
    if (i >= rows * classes) return;
    const float scale = scale_of(labels, row, mean_positions, dy);
    const float gradient = scale * (saved[i] - smoothing / classes);
    const bool is_label = i % classes == class_of(labels.at(row), classes);
    dx[i] = is_label ? gradient - scale * (1 - smoothing) : gradient;
}

#ifdef BF16
// Replaces scores by their gradient. Computes the probabilities again, because 16 bits are too few
// to save those near 1. One warp per position.
KERNEL cross_entropy_backward_in_place(u32 rows, u32 classes, u32 positions, u32 mean_positions,
                                       float smoothing, real* __restrict__ scores,
                                       const float* __restrict__ values, u32 has_weights, float ignored,
                                       const float* __restrict__ dy) {
    const Labels labels = {values, positions, has_weights, ignored};
    const u32 row = ROW;
    if (row >= rows) return;
    scores += row * classes;
    const float best = largest_of_row(classes, scores);
    const float factor = softmax_factor(classes, scores, best);
    const float scale = scale_of(labels, row, mean_positions, dy);
    const u32 label = class_of(labels.at(row), classes);
    ROLLED for (u32 i = LANE; i < classes; i += 32) {
        const float gradient = scale * (expf(scores[i] - best) * factor - smoothing / classes);
        scores[i] = i == label ? gradient - scale * (1 - smoothing) : gradient;
    }
}
#endif

// Losses of each element against a number, its label: the squared error, or the cross entropy of
// the probability whose logit is the element.
enum ElementwiseLoss { MEAN_SQUARED_ERROR, BINARY_CROSS_ENTROPY };

// Adds up the losses of a sample, and the elements on the right side of one half. One warp per
// sample.
KERNEL elementwise_loss_samples(u32 samples, u32 elements, u32 kind, const real* __restrict__ x,
                                const float* __restrict__ labels, double* __restrict__ losses,
                                double* __restrict__ right, float* __restrict__ y) {
    const u32 sample = ROW;
    if (sample >= samples) return;
    double loss = 0, share = 0;
    ROLLED for (u32 i = LANE; i < elements; i += 32) {
        const float value = x[sample * elements + i], label = labels[sample * elements + i];
        if (kind == MEAN_SQUARED_ERROR) {
            loss += (double)(value - label) * (value - label);
        } else {
            loss += fmaxf(value, 0) - label * value + logf(1 + expf(-fabsf(value)));
            share += (value > 0) == (label > 0.5f) ? 1 : 0;
        }
    }
    loss = warp_sum(loss) / elements;
    share = warp_sum(share) / elements;
    if (LANE == 0) {
        losses[sample] = loss;
        right[sample] = share;
        y[sample] = (float)loss;
    }
}

KERNEL elementwise_loss_backward(u32 size, u32 elements, u32 kind, const real* __restrict__ x,
                                 const float* __restrict__ labels, const float* __restrict__ dy,
                                 real* __restrict__ dx) {
    const u32 i = ELEMENT;
    if (i >= size) return;
    const float value = x[i];
    const float slope =
        kind == MEAN_SQUARED_ERROR ? 2 * (value - labels[i]) : 1 / (1 + expf(-value)) - labels[i];
    dx[i] = dy[i / elements] / elements * slope;
}
