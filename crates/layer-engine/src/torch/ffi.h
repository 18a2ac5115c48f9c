// Plain C functions between C++ and Rust. No exception crosses the boundary. Each function returns
// null on success, else a message that the caller frees with `layer_engine_free`.
#pragma once

#include <cstdint>
#include <exception>
#include <utility>

#include <ATen/core/Tensor.h>

// Returns a message owned by the caller, or null if allocation fails.
char *layer_engine_message(const char *text) noexcept;

// Runs work and converts an exception to a message.
template <typename Work>
char *guarded(Work &&work) noexcept {
    try {
        std::forward<Work>(work)();
        return nullptr;
    } catch (const c10::Error &error) {
        return layer_engine_message(error.what_without_backtrace());
    } catch (const std::exception &error) {
        return layer_engine_message(error.what());
    } catch (...) {
        return layer_engine_message("an unknown C++ exception");
    }
}

// Returns a tensor owned by the caller, as `tch` represents it; null for an undefined tensor.
inline at::Tensor *owned(at::Tensor tensor) {
    return tensor.defined() ? new at::Tensor(std::move(tensor)) : nullptr;
}
