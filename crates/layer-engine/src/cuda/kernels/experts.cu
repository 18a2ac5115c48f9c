// Mixtures of experts. A row is a position and one of its experts. The kernels compute all rows in
// the order of positions, without sorting them by expert: they are simple and slow.
#include "basics.cuh"

// Bit of the expert of a row that the expert's capacity drops.
#define DROPPED 0x80000000

// Sizes and function.
struct Sizes {
    u32 samples, positions, features, experts, chosen, width;
    // In the order of `ExpertActivation`.
    u32 activation;
    u32 gated, normalised;
    // Maximum number of positions of a sample for an expert.
    u32 capacity;

    __device__ __forceinline__ u32 rows() const { return samples * positions * chosen; }
    // Number of rows of an expert's first matrix.
    __device__ __forceinline__ u32 inner() const { return gated ? 2 * width : width; }
};

// Value and slope of an activation.
struct Activated {
    float value, slope;
};

__device__ __forceinline__ Activated activated(u32 activation, float x) {
    float gate, slope;
    if (activation == 0) {
        gate = x < 0 ? 0.0f : 1.0f;
        slope = 0;
    } else if (activation == 1) {
        gate = 0.5f + 0.5f * erff(x * 0.70710678f);
        slope = 0.39894228f * expf(-0.5f * x * x);
    } else {
        const float scale = 1.5957691f, cubic = 0.044715f, square = x * x;
        const bool is_silu = activation == 3;
        gate = sigmoid(is_silu ? x : scale * x * (1 + cubic * square));
        slope = gate * (1 - gate) * (is_silu ? 1.0f : scale * (1 + 3 * cubic * square));
    }
    Activated result;
    result.value = x * gate;
    result.slope = activation == 0 && x == 0 ? 0.0f : gate + x * slope;
    return result;
}

// Factor by which the exponential of a score's distance from the largest is its share, the softmax.
__device__ __forceinline__ float share_factor(u32 experts, const real* scores, float* largest) {
    float most = -INFINITY_F;
    ROLLED for (u32 expert = 0; expert < experts; expert++) most = fmaxf(most, scores[expert]);
    double sum = 0;
    ROLLED for (u32 expert = 0; expert < experts; expert++) sum += expf(scores[expert] - most);
    *largest = most;
    return (float)(1.0 / sum);
}

// Chooses the experts of a position: of equal scores, those with the lower index. One thread for
// each position.
KERNEL experts_choose(Sizes sizes, const real* __restrict__ scores, u32* experts, float* weights) {
    const u32 position = ELEMENT;
    if (position >= sizes.samples * sizes.positions) return;
    scores += position * sizes.experts;
    experts += position * sizes.chosen;
    weights += position * sizes.chosen;
    float largest;
    const float factor = share_factor(sizes.experts, scores, &largest);
    double sum = 0;
    ROLLED for (u32 slot = 0; slot < sizes.chosen; slot++) {
        u32 best = sizes.experts;
        float largest_left = 0;
        ROLLED for (u32 expert = 0; expert < sizes.experts; expert++) {
            u32 count = 0;
            ROLLED for (u32 before = 0; before < slot; before++) count += experts[before] == expert ? 1 : 0;
            if (count > 0) continue;
            const float score = scores[expert];
            count = best == sizes.experts ? 1 : 0;
            count += score > largest_left ? 1 : 0;
            best = count > 0 ? expert : best;
            largest_left = count > 0 ? score : largest_left;
        }
        experts[slot] = best;
        weights[slot] = expf(scores[best] - largest) * factor;
        sum += weights[slot];
    }
    ROLLED for (u32 slot = 0; sizes.normalised && slot < sizes.chosen; slot++)
        weights[slot] *= (float)(1.0 / sum);
}

// Drops the rows of an expert beyond its capacity. One thread for each sample and expert.
KERNEL experts_limit(Sizes sizes, u32* experts) {
    if (ELEMENT >= sizes.samples * sizes.experts) return;
    const u32 sample = ELEMENT / sizes.experts, expert = ELEMENT % sizes.experts;
    const u32 rows = sizes.positions * sizes.chosen;
    u32 count = 0;
    ROLLED for (u32 row = sample * rows; row < (sample + 1) * rows; row++)
        if (experts[row] == expert && count++ >= sizes.capacity) experts[row] = expert | DROPPED;
}

// Computes the first product. One warp for each element of the result.
KERNEL experts_inner(Sizes sizes, const u32* __restrict__ experts, const real* __restrict__ x,
                     const real* __restrict__ parameters, float* inner) {
    const u32 rows = sizes.inner(), row = ROW / rows;
    if (row >= sizes.rows()) return;
    const u32 expert = experts[row];
    float sum = 0;
    if (expert < sizes.experts) {
        x += row / sizes.chosen * sizes.features;
        parameters += (expert * rows + ROW % rows) * sizes.features;
        ROLLED for (u32 i = LANE; i < sizes.features; i += 32) sum += (float)x[i] * (float)parameters[i];
    }
    sum = (float)warp_sum(sum);
    if (LANE == 0) inner[ROW] = sum;
}

// Computes the factors of the second product. One thread for each.
KERNEL experts_activate(Sizes sizes, const float* __restrict__ inner, float* factors) {
    const u32 row = ELEMENT / sizes.width;
    if (row >= sizes.rows()) return;
    inner += row * sizes.inner() + ELEMENT % sizes.width;
    const float value = activated(sizes.activation, inner[0]).value;
    factors[ELEMENT] = sizes.gated ? value * inner[sizes.width] : value;
}

// Computes the second product and the weighted sum. One warp for each element of the output.
// `parameters` are those of the second product.
KERNEL experts_output(Sizes sizes, const u32* __restrict__ experts, const float* __restrict__ weights,
                      const float* __restrict__ factors, const real* __restrict__ parameters,
                      real* __restrict__ y) {
    const u32 position = ROW / sizes.features, feature = ROW % sizes.features;
    if (position >= sizes.samples * sizes.positions) return;
    float sum = 0;
    ROLLED for (u32 slot = 0; slot < sizes.chosen; slot++) {
        const u32 row = position * sizes.chosen + slot, expert = experts[row];
        if (expert >= sizes.experts) continue;
        const real* weight = parameters + (expert * sizes.features + feature) * sizes.width;
        float product = 0;
        ROLLED for (u32 i = LANE; i < sizes.width; i += 32)
            product += factors[row * sizes.width + i] * (float)weight[i];
        sum += weights[row] * product;
    }
    sum = (float)warp_sum(sum);
    if (LANE == 0) y[ROW] = sum;
}

// Computes the gradients of the factors, without the weights. One thread for each.
KERNEL experts_factor_gradient(Sizes sizes, const u32* __restrict__ experts,
                               const real* __restrict__ parameters, const real* __restrict__ dy,
                               float* gradients) {
    const u32 row = ELEMENT / sizes.width, unit = ELEMENT % sizes.width;
    if (row >= sizes.rows()) return;
    const u32 expert = experts[row];
    float sum = 0;
    if (expert < sizes.experts) {
        dy += row / sizes.chosen * sizes.features;
        parameters += expert * sizes.features * sizes.width + unit;
        ROLLED for (u32 i = 0; i < sizes.features; i++)
            sum += (float)dy[i] * (float)parameters[i * sizes.width];
    }
    gradients[ELEMENT] = sum;
}

// Computes the gradients of the weights. One warp for each row.
KERNEL experts_weight_gradient(Sizes sizes, const float* __restrict__ factors,
                               const float* __restrict__ gradients, float* of_weights) {
    if (ROW >= sizes.rows()) return;
    float sum = 0;
    ROLLED for (u32 i = LANE; i < sizes.width; i += 32)
        sum += factors[ROW * sizes.width + i] * gradients[ROW * sizes.width + i];
    sum = (float)warp_sum(sum);
    if (LANE == 0) of_weights[ROW] = sum;
}

// Computes the gradients of the first product's results. One thread for each factor.
KERNEL experts_inner_gradient(Sizes sizes, const float* __restrict__ weights, const float* __restrict__ inner,
                              const float* __restrict__ gradients, float* inner_gradients) {
    const u32 row = ELEMENT / sizes.width;
    if (row >= sizes.rows()) return;
    const u32 place = row * sizes.inner() + ELEMENT % sizes.width;
    const Activated gate = activated(sizes.activation, inner[place]);
    const float gradient = weights[row] * gradients[ELEMENT];
    if (sizes.gated) {
        inner_gradients[place] = gradient * inner[place + sizes.width] * gate.slope;
        inner_gradients[place + sizes.width] = gradient * gate.value;
    } else {
        inner_gradients[place] = gradient * gate.slope;
    }
}

// Computes the gradients of the features. One thread for each.
KERNEL experts_input_gradient(Sizes sizes, const u32* __restrict__ experts,
                              const float* __restrict__ inner_gradients, const real* __restrict__ parameters,
                              real* __restrict__ dx) {
    const u32 position = ELEMENT / sizes.features, feature = ELEMENT % sizes.features;
    if (position >= sizes.samples * sizes.positions) return;
    const u32 inner = sizes.inner();
    float sum = 0;
    ROLLED for (u32 slot = 0; slot < sizes.chosen; slot++) {
        const u32 row = position * sizes.chosen + slot, expert = experts[row];
        if (expert >= sizes.experts) continue;
        const real* weight = parameters + expert * inner * sizes.features + feature;
        ROLLED for (u32 i = 0; i < inner; i++)
            sum += inner_gradients[row * inner + i] * (float)weight[i * sizes.features];
    }
    dx[ELEMENT] = sum;
}

// Computes the gradients of the scores from those of the weights. One thread for each position.
KERNEL experts_score_gradient(Sizes sizes, const real* __restrict__ scores, const u32* __restrict__ experts,
                              const float* __restrict__ weights, const float* __restrict__ of_weights,
                              real* __restrict__ gradient) {
    const u32 position = ELEMENT, first = position * sizes.chosen;
    if (position >= sizes.samples * sizes.positions) return;
    scores += position * sizes.experts;
    float largest, mean = 0;
    const float factor = share_factor(sizes.experts, scores, &largest);
    ROLLED for (u32 row = first; row < first + sizes.chosen; row++) mean += weights[row] * of_weights[row];
    ROLLED for (u32 expert = 0; expert < sizes.experts; expert++) {
        float sum = sizes.normalised ? 0.0f : -mean * expf(scores[expert] - largest) * factor;
        ROLLED for (u32 row = first; row < first + sizes.chosen; row++)
            if ((experts[row] & ~DROPPED) == expert)
                sum += weights[row] * (of_weights[row] - (sizes.normalised ? mean : 0.0f));
        gradient[position * sizes.experts + expert] = sum;
    }
}

// Computes the gradient of the first product's parameters. One thread for each.
KERNEL experts_first_gradient(Sizes sizes, const u32* __restrict__ experts, const real* __restrict__ x,
                              const float* __restrict__ inner_gradients, float* gradient) {
    const u32 inner = sizes.inner(), feature = ELEMENT % sizes.features;
    const u32 expert = ELEMENT / sizes.features / inner, unit = ELEMENT / sizes.features % inner;
    if (expert >= sizes.experts) return;
    float sum = 0;
    ROLLED for (u32 row = 0; row < sizes.rows(); row++)
        if (experts[row] == expert)
            sum += inner_gradients[row * inner + unit] *
                   (float)x[row / sizes.chosen * sizes.features + feature];
    gradient[ELEMENT] = sum;
}

// Computes the gradient of the second product's parameters. One thread for each.
KERNEL experts_second_gradient(Sizes sizes, const u32* __restrict__ experts,
                               const float* __restrict__ weights, const float* __restrict__ factors,
                               const real* __restrict__ dy, float* gradient) {
    const u32 unit = ELEMENT % sizes.width, feature = ELEMENT / sizes.width % sizes.features;
    const u32 expert = ELEMENT / sizes.width / sizes.features;
    if (expert >= sizes.experts) return;
    float sum = 0;
    ROLLED for (u32 row = 0; row < sizes.rows(); row++)
        if (experts[row] == expert)
            sum += weights[row] * factors[row * sizes.width + unit] *
                   (float)dy[row / sizes.chosen * sizes.features + feature];
    gradient[ELEMENT] = sum;
}
