// Backward passes that `tch` does not wrap.
#include "ffi.h"

#include <array>
#include <optional>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/scaled_dot_product_attention.h>
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

// Computes the requested gradients of input, weight and bias of a two-dimensional convolution.
extern "C" char *layer_engine_convolution_backward(
    const at::Tensor *output_gradient, const at::Tensor *input, const at::Tensor *weight,
    const int64_t *stride,
    const int64_t *padding, int64_t groups, const bool *wanted, at::Tensor **results) {
    return guarded([&] {
        const int64_t bias = weight->size(0);
        store(
            at::convolution_backward(
                *output_gradient, *input, *weight, at::IntArrayRef(&bias, 1), at::IntArrayRef(stride, 2),
                at::IntArrayRef(padding, 2), {1, 1}, false, {0, 0}, groups, mask_of(wanted)),
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

// Computes attention of queries, keys and values, recorded in a graph for `layer_engine_gradient`.
// `leaf` becomes the tensor to differentiate with respect to: the sequence of queries, keys and
// values.
extern "C" char *layer_engine_attention(
    const at::Tensor *sequence, int64_t heads, bool causal, bool differentiable, at::Tensor **leaf,
    at::Tensor **result) {
    return guarded([&] {
        at::AutoGradMode recording(differentiable);
        at::Tensor parts = sequence->detach();
        if (differentiable) {
            parts.requires_grad_(true);
        }
        const int64_t samples = parts.size(0), positions = parts.size(1), features = parts.size(2) / 3;
        // From samples x positions x 3 x heads x width to 3 tensors of samples x heads x positions
        // x width.
        const at::Tensor split =
            parts.view({samples, positions, 3, heads, features / heads}).permute({2, 0, 3, 1, 4});
        const at::Tensor mixed = at::scaled_dot_product_attention(
            split.select(0, 0), split.select(0, 1), split.select(0, 2), std::nullopt, 0.0, causal);
        *result = owned(mixed.transpose(1, 2).reshape({samples, positions, features}));
        *leaf = owned(std::move(parts));
    });
}

// Computes the gradient of `result` with respect to `leaf` from the gradient of `result`. The graph
// between them is kept.
extern "C" char *layer_engine_gradient(
    const at::Tensor *result, const at::Tensor *leaf, const at::Tensor *output_gradient,
    at::Tensor **gradient) {
    return guarded([&] {
        at::AutoGradMode recording(true);
        *gradient = owned(torch::autograd::grad({*result}, {*leaf}, {*output_gradient}, true)[0]);
    });
}
