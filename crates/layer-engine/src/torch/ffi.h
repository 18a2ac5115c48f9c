// What crosses between C++ and Rust: plain C functions. No exception does. Each function returns null when it has done
// its work, or else a message that the caller gives back to `layer_engine_free`.
#pragma once

#include <cstdint>
#include <exception>
#include <utility>

#include <ATen/core/Tensor.h>

// A message of the caller's, or null when there is no memory for one.
char *layer_engine_message(const char *text) noexcept;

// Runs work, and turns what it throws into a message.
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

// A tensor of the caller's, as `tch` holds it; null for none.
inline at::Tensor *owned(at::Tensor tensor) {
    return tensor.defined() ? new at::Tensor(std::move(tensor)) : nullptr;
}
