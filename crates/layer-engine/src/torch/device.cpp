// CUDA devices without linking against CUDA. libtorch's CUDA library is opened at run time, streams
// and events use libtorch's device-independent interface, and functions without such an interface
// are looked up by name.
#include "ffi.h"

#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>

#include <dlfcn.h>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace {

void *cuda_library = nullptr;

c10::impl::VirtualGuardImpl cuda() { return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA); }

template <typename Function>
Function *function(const char *name) {
    void *found = cuda_library ? ::dlsym(cuda_library, name) : nullptr;
    if (!found) {
        throw std::runtime_error(std::string("this libtorch has no CUDA function ") + name);
    }
    return reinterpret_cast<Function *>(found);
}

c10::Stream stream_of(int device, int64_t id) {
    return c10::Stream(
        c10::Stream::UNSAFE, c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device)), id);
}

// at::cuda::CUDAGraph, whose header needs CUDA's headers. The names are those of the supported
// version of libtorch. The size is a safe upper bound: the object has about 150 bytes.
class Graph {
  public:
    Graph() { function<void(void *, bool)>("_ZN2at4cuda9CUDAGraphC1Eb")(object, false); }
    ~Graph() {
        try {
            function<void(void *)>("_ZN2at4cuda9CUDAGraphD1Ev")(object);
        } catch (const std::exception &) {
            // The constructor was found in the same library.
        }
    }
    Graph(const Graph &) = delete;
    Graph &operator=(const Graph &) = delete;

    void begin() {
        // Frees the memory of earlier graphs now: during a capture, libtorch does not free memory
        // to satisfy an allocation.
        c10::getDeviceAllocator(c10::DeviceType::CUDA)->emptyCache();
        using Pool = std::pair<unsigned long long, unsigned long long>;
        // Other threads may allocate and free during the capture. With cudaStreamCaptureModeGlobal,
        // PyTorch's default, their calls and the capture would fail.
        constexpr int thread_local_mode = 1; // cudaStreamCaptureModeThreadLocal
        function<void(void *, Pool, int)>(
            "_ZN2at4cuda9CUDAGraph13capture_beginESt4pairIyyE21cudaStreamCaptureMode")(
            object, Pool(0, 0), thread_local_mode);
    }
    void end() { call("_ZN2at4cuda9CUDAGraph11capture_endEv"); }
    void replay() { call("_ZN2at4cuda9CUDAGraph6replayEv"); }

  private:
    void call(const char *name) { function<void(void *)>(name)(object); }

    alignas(std::max_align_t) unsigned char object[4096];
};

} // namespace

// Opens libtorch's CUDA library on the first call and returns the number of devices. Must be called
// before anything asks libtorch for CUDA, because libtorch remembers the first answer.
extern "C" char *layer_engine_cuda_open(int *devices) {
    return guarded([&] {
        static std::mutex opening;
        const std::lock_guard<std::mutex> alone(opening);
        if (!cuda_library) {
            // Next to the library that is already loaded.
            Dl_info here;
            if (!::dladdr(reinterpret_cast<const void *>(&at::get_num_threads), &here)) {
                throw std::runtime_error("libtorch is not a shared library here");
            }
            std::string path(here.dli_fname);
            path.replace(path.find_last_of('/') + 1, std::string::npos, "libtorch_cuda.so");
            void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
            if (!library) {
                const char *problem = ::dlerror();
                throw std::runtime_error(problem ? problem : "libtorch_cuda.so cannot be opened");
            }
            cuda_library = library;
            // No reduced precision in single-precision products, or in the sums of 16-bit products.
            at::globalContext().setAllowTF32CuDNN(false);
            at::globalContext().setAllowTF32CuBLAS(false);
            at::globalContext().setAllowBF16ReductionCuBLAS(false);
        }
        *devices = at::detail::getCUDAHooks().hasCUDA() ? cuda().deviceCount() : 0;
    });
}

// Returns the name of a CUDA device (at most 256 bytes), its clock rate in kHz, and the versions of
// cuDNN, of CUDA and of the driver's CUDA. An unknown version is 0.
extern "C" char *layer_engine_cuda_describe(int device, char *name, int *clock_khz, int64_t *versions) {
    return guarded([&] {
        // The name is the first field of cudaDeviceProp.
        const char *properties = static_cast<const char *>(
            function<void *(c10::DeviceIndex)>("_ZN2at4cuda19getDevicePropertiesEa")(
                static_cast<c10::DeviceIndex>(device)));
        std::string(properties, ::strnlen(properties, 255)).copy(name, 255);
        constexpr int clock_rate = 13; // cudaDevAttrClockRate
        if (function<int(int *, int, int)>("cudaDeviceGetAttribute")(clock_khz, clock_rate, device) != 0) {
            *clock_khz = 0;
        }
        const at::CUDAHooksInterface &hooks = at::detail::getCUDAHooks();
        int driver = 0;
        function<int(int *)>("cudaDriverGetVersion")(&driver);
        versions[0] = hooks.compiledWithCuDNN() ? hooks.versionRuntimeCuDNN() : 0;
        versions[1] = hooks.versionCUDART();
        versions[2] = driver;
    });
}

// Creates a stream of the device. Streams of lower priority numbers run first.
extern "C" char *layer_engine_stream_new(int device, int priority, int64_t *stream) {
    return guarded([&] {
        const c10::Device place(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
        *stream = cuda().getNewStream(place, priority).id();
    });
}

// Makes a stream and its device current for this thread, and returns the previous ones.
extern "C" char *
layer_engine_stream_enter(int device, int64_t stream, int *previous_device, int64_t *previous_stream) {
    return guarded([&] {
        const c10::Stream entered = stream_of(device, stream);
        *previous_device = cuda().exchangeDevice(entered.device()).index();
        *previous_stream = cuda().exchangeStream(entered).id();
    });
}

// Undoes `layer_engine_stream_enter`.
extern "C" char *layer_engine_stream_leave(int device, int previous_device, int64_t previous_stream) {
    return guarded([&] {
        cuda().exchangeStream(stream_of(device, previous_stream));
        cuda().setDevice(c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(previous_device)));
    });
}

extern "C" char *layer_engine_stream_synchronize(int device, int64_t stream) {
    return guarded([&] { cuda().synchronizeStream(stream_of(device, stream)); });
}

extern "C" char *layer_engine_device_synchronize(int device) {
    return guarded([&] { cuda().synchronizeDevice(static_cast<c10::DeviceIndex>(device)); });
}

// Begins to capture the work of the current stream.
extern "C" char *layer_engine_graph_begin(void **graph) {
    return guarded([&] {
        auto captured = std::make_unique<Graph>();
        captured->begin();
        *graph = captured.release();
    });
}

extern "C" char *layer_engine_graph_end(void *graph) {
    return guarded([&] { static_cast<Graph *>(graph)->end(); });
}

extern "C" void layer_engine_graph_free(void *graph) { delete static_cast<Graph *>(graph); }

// Replays a graph `rounds` times on a stream, which must be current, and returns the milliseconds
// between device events before and after.
extern "C" char *
layer_engine_graph_time(void *graph, int device, int64_t stream, uint32_t rounds, double *milliseconds) {
    return guarded([&] {
        const c10::Stream timed = stream_of(device, stream);
        c10::Event before(c10::DeviceType::CUDA, c10::EventFlag::BACKEND_DEFAULT);
        c10::Event after(c10::DeviceType::CUDA, c10::EventFlag::BACKEND_DEFAULT);
        before.record(timed);
        for (uint32_t round = 0; round < rounds; ++round) {
            static_cast<Graph *>(graph)->replay();
        }
        after.record(timed);
        after.synchronize();
        *milliseconds = before.elapsedTime(after);
    });
}
