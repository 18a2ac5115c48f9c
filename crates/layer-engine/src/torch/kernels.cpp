// Backward passes that `tch` does not wrap.
#include "ffi.h"

#include <array>
#include <limits>
#include <optional>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <torch/csrc/autograd/autograd.h>

namespace {

using Mask = std::array<bool, 3>;

Mask mask_of(const bool *wanted) { return {wanted[0], wanted[1], wanted[2]}; }

void store(std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients, at::Tensor **results) {
    results[0] = owned(std::move(std::get<0>(gradients)));
    results[1] = owned(std::move(std::get<1>(gradients)));
    results[2] = owned(std::move(std::get<2>(gradients)));
}

} // namespace

// Computes the requested gradients of input, weight and bias of a two-dimensional convolution,
// which is transposed unless `output_padding` is null.
extern "C" char *layer_engine_convolution_backward(
    const at::Tensor *output_gradient, const at::Tensor *input, const at::Tensor *weight,
    const int64_t *stride,
    const int64_t *padding, const int64_t *dilation, const int64_t *output_padding, int64_t groups,
    const bool *wanted, at::Tensor **results) {
    return guarded([&] {
        const bool transposed = output_padding != nullptr;
        const int64_t bias = transposed ? weight->size(1) * groups : weight->size(0);
        const std::array<int64_t, 2> none = {0, 0};
        store(
            at::convolution_backward(
                *output_gradient, *input, *weight, at::IntArrayRef(&bias, 1), at::IntArrayRef(stride, 2),
                at::IntArrayRef(padding, 2), at::IntArrayRef(dilation, 2), transposed,
                at::IntArrayRef(transposed ? output_padding : none.data(), 2), groups, mask_of(wanted)),
            results);
    });
}

// Computes the requested gradients of input, weight and bias of a layer normalisation.
extern "C" char *layer_engine_layer_norm_backward(
    const at::Tensor *output_gradient, const at::Tensor *input, const at::Tensor *mean,
    const at::Tensor *inverse_deviation, const at::Tensor *weight, const at::Tensor *bias, const bool *wanted,
    at::Tensor **results) {
    return guarded([&] {
        store(
            at::native_layer_norm_backward(
                *output_gradient, *input, weight->sizes(), *mean, *inverse_deviation, *weight, *bias,
                mask_of(wanted)),
            results);
    });
}

// Computes the gradients of weight and bias of a batch normalisation from the values that its
// forward pass saved.
extern "C" char *layer_engine_batch_norm_backward(
    const at::Tensor *output_gradient, const at::Tensor *input, const at::Tensor *mean,
    const at::Tensor *inverse_deviation, at::Tensor **results) {
    return guarded([&] {
        store(
            at::native_batch_norm_backward(
                *output_gradient, *input, std::nullopt, std::nullopt, std::nullopt, *mean,
                *inverse_deviation, true,
                0.0, {false, true, true}),
            results);
    });
}

// Computes attention of queries, keys and values, recorded in a graph for `layer_engine_gradients`.
// They are `count` tensors: one of samples x positions x 3 features, or three of samples x
// positions x features. `leaves` become the tensors to differentiate with respect to. The weights
// are multiplied by `factors`, unless it is null. The row of `biases` (buckets x heads) that
// `buckets` (positions x key positions) names is added to the scaled products, unless it is null;
// `biases` is then the last leaf. `mask`, unless it is null, is added to them, too; it hides later
// keys if the attention is causal.
extern "C" char *layer_engine_attention(
    const at::Tensor *const *inputs, size_t count, int64_t heads, bool causal, double scale,
    const at::Tensor *factors, const at::Tensor *biases, const at::Tensor *buckets,
    const at::Tensor *mask, bool differentiable,
    at::Tensor **leaves, at::Tensor **result) {
    return guarded([&] {
        at::AutoGradMode recording(differentiable);
        std::vector<at::Tensor> originals;
        for (size_t i = 0; i < count; i++) {
            originals.push_back(inputs[i]->detach());
        }
        if (biases != nullptr) {
            originals.push_back(biases->detach());
        }
        for (at::Tensor &original : originals) {
            original.requires_grad_(differentiable);
        }
        std::vector<at::Tensor> parts(originals.begin(), originals.begin() + count);
        if (count == 1) {
            parts = parts[0].chunk(3, 2);
        }
        const int64_t width = parts[0].size(2) / heads, key_heads = parts[1].size(2) / width;
        // From samples x positions x heads x width to samples x heads x positions x width.
        for (at::Tensor &part : parts) {
            part = part.view({part.size(0), part.size(1), part.size(2) / width, width}).transpose(1, 2);
        }
        at::Tensor mixed;
        if (factors == nullptr && biases == nullptr) {
            mixed = at::scaled_dot_product_attention(
                parts[0], parts[1], parts[2], mask == nullptr ? std::nullopt : std::optional(*mask), 0.0,
                causal && mask == nullptr, scale, key_heads != heads);
        } else {
            for (int64_t part = 1; key_heads != heads && part < 3; part++) {
                parts[part] = parts[part].repeat_interleave(heads / key_heads, 1);
            }
            at::Tensor scores = at::matmul(parts[0].mul(scale), parts[1].transpose(2, 3));
            if (biases != nullptr) {
                // The gradient of an embedding does not depend on the order of its atomic sums.
                const at::Tensor rows = at::embedding(originals[count], *buckets);
                scores = scores.add(rows.view({scores.size(2), scores.size(3), heads}).permute({2, 0, 1}));
            }
            if (mask != nullptr) {
                scores = scores.add(*mask);
            } else if (causal) {
                const auto options = scores.options().dtype(at::kBool);
                const at::Tensor hidden = at::ones({scores.size(2), scores.size(3)}, options).triu(1);
                scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
            }
            at::Tensor weights = at::softmax(scores, 3);
            if (factors != nullptr) {
                weights = weights.mul(factors->view_as(weights).to(weights.scalar_type()));
            }
            mixed = at::matmul(weights.to(parts[2].scalar_type()), parts[2]);
        }
        *result = owned(mixed.transpose(1, 2).flatten(2));
        for (size_t i = 0; i < originals.size(); i++) {
            leaves[i] = owned(originals[i]);
        }
    });
}

// Computes the gradients of `result` with respect to `count` leaves from the gradient of `result`.
// The graph between them is kept.
extern "C" char *layer_engine_gradients(
    const at::Tensor *result, const at::Tensor *const *leaves, size_t count,
    const at::Tensor *output_gradient, at::Tensor **gradients) {
    return guarded([&] {
        at::AutoGradMode recording(true);
        std::vector<at::Tensor> variables;
        for (size_t i = 0; i < count; i++) {
            variables.push_back(*leaves[i]);
        }
        const auto found = torch::autograd::grad({*result}, variables, {*output_gradient}, true);
        for (size_t i = 0; i < count; i++) {
            gradients[i] = owned(found[i]);
        }
    });
}
