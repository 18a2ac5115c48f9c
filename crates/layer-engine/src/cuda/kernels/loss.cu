// Softmax and cross entropy of each sample: the mean over its positions. A part of a layer has some
// of the positions, and `mean_positions` is the number of all.
#include "basics.cuh"

// Returns the class of a label, or the nearest valid class.
__device__ __forceinline__ u32 class_of(float label, u32 classes) {
    return (u32)min(max((int)label, 0), (int)classes - 1);
}

// One warp per position: writes the probabilities (unless `saved` is null), the loss, and whether
// the first of the largest scores is the label's. The loss of an invalid label is NaN. `saved` may
// be `scores`.
KERNEL cross_entropy_positions(u32 rows, u32 classes, const real* scores, const float* __restrict__ labels,
                               float* saved, double* __restrict__ losses, double* __restrict__ right) {
    const u32 row = ROW;
    if (row >= rows) return;
    scores += row * classes;
    const float best = largest_of_row(classes, scores);
    double sum = 0;
    u32 winner = classes;
    ROLLED for (u32 i = LANE; i < classes; i += 32) {
        sum += expf(scores[i] - best);
        if (scores[i] == best) winner = min(winner, i);
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        winner = min(winner, __shfl_xor_sync(0xffffffff, winner, distance));
    sum = warp_sum(sum);
    if (LANE == 0) {
        const u32 label = class_of(labels[row], classes);
        const double loss = log(sum) - ((double)scores[label] - best);
        losses[row] = labels[row] == (float)label ? loss : NAN_F;
        right[row] = winner == label ? 1 : 0;
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
                             double* __restrict__ right, u32 mean_positions, float* __restrict__ y) {
    const u32 sample = ROW;
    if (sample >= samples) return;
    double loss = 0, share = 0;
    ROLLED for (u32 i = LANE; i < positions; i += 32) {
        loss += losses[sample * positions + i];
        share += right[sample * positions + i];
    }
    loss = warp_sum(loss) / mean_positions;
    share = warp_sum(share) / mean_positions;
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

// `dx` may be `saved`.
KERNEL cross_entropy_backward(u32 rows, u32 classes, u32 positions, u32 mean_positions, const float* saved,
                              const float* __restrict__ labels, const float* __restrict__ dy, real* dx) {
    const u32 i = ELEMENT, row = i / classes;
    if (i >= rows * classes) return;
    const float scale = dy[row / positions] * (1.0f / mean_positions);
    const float gradient = scale * saved[i];
    dx[i] = i % classes == class_of(labels[row], classes) ? gradient - scale : gradient;
}

#ifdef BF16
// Replaces scores by their gradient. Computes the probabilities again, because 16 bits are too few
// to save those near 1. One warp per position.
KERNEL cross_entropy_backward_in_place(u32 rows, u32 classes, u32 positions, u32 mean_positions,
                                       real* __restrict__ scores, const float* __restrict__ labels,
                                       const float* __restrict__ dy) {
    const u32 row = ROW;
    if (row >= rows) return;
    scores += row * classes;
    const float best = largest_of_row(classes, scores);
    const float factor = softmax_factor(classes, scores, best);
    const float scale = dy[row / positions] * (1.0f / mean_positions);
    const u32 label = class_of(labels[row], classes);
    ROLLED for (u32 i = LANE; i < classes; i += 32) {
        const float gradient = scale * (expf(scores[i] - best) * factor);
        scores[i] = i == label ? gradient - scale : gradient;
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
