#include "ffi.h"

#include <cstdlib>
#include <cstring>

char *layer_engine_message(const char *text) noexcept { return ::strdup(text); }

extern "C" void layer_engine_free(char *message) { std::free(message); }
