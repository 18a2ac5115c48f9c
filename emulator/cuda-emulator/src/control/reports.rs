//! Settings and reports of the library.

use std::{ffi::CStr, time::Duration};

/// Property of the emulated driver and its devices. Defaults are in brackets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Setting {
    /// Number of devices, at most 8. With 0, `cuInit` returns `CUDA_ERROR_NO_DEVICE` (1).
    Devices,
    /// Version returned by `cuDriverGetVersion` (13000). Functions added by a later version return
    /// `CUDA_ERROR_NOT_SUPPORTED`.
    DriverVersion,
    /// Virtual duration of a query of a stream or event, in ns (1000).
    QueryNs,
    /// Virtual duration of a kernel or graph launch on the host, in ns (0).
    LaunchNs,
    /// Virtual duration of a kernel, in ns (10000), unless one is set by
    /// [`Emulator::set_kernel_time`](super::Emulator::set_kernel_time) or given by its name.
    KernelNs,
    /// Memory of a device, in bytes (80 GiB).
    MemoryBytes,
    /// Number of multiprocessors of a device (132).
    Multiprocessors,
    /// Greatest stream priority, which is the lowest number (-5). The lowest priority is 0.
    GreatestPriority,
    /// Whether streams can wait for and write values in memory, 0 or 1 (1).
    StreamMemoryOperations,
    /// Whether memory can be allocated in stream order, 0 or 1 (1).
    MemoryPools,
    /// Whether streams of green contexts accept events of the primary context, 0 or 1 (1). The
    /// manual asks for events of the stream's own context and does not specify whether these count.
    CrossContextEvents,
    /// Whether graphs list their nodes in reverse order of creation, 0 or 1 (0). The manual
    /// specifies no order.
    ReverseNodeOrder,
    /// Whether binary images are accepted, 0 or 1 (0). Every function name is found in them, and
    /// their kernels take time but do nothing.
    BinaryImages,
    /// Seed for shuffling the blocks and warps of kernels. 0 keeps their order (0).
    OrderSeed,
    /// Whether data races on shared memory are errors, 0 or 1 (0).
    RaceCheck,
    /// Whether reads of uninitialised shared and device memory are errors, 0 or 1 (0). Set it
    /// before memory is allocated.
    UninitialisedCheck,
    /// Whether work of different streams that uses the same memory must be ordered, 0 or 1 (0). See
    /// [`Emulator::conflicts`](super::Emulator::conflicts). Set it before memory is allocated.
    OrderCheck,
    /// Number of the `cuStreamWaitEvent` call, counted from 1, that has no effect, to simulate a
    /// forgotten wait. 0 drops none (0). Calls in captures are not counted. See
    /// [`Emulator::dropped_wait_is_needed`](super::Emulator::dropped_wait_is_needed).
    DropWait,
    /// Maximum number of warp instructions of a block, after which the kernel counts as hanging. 0
    /// stands for 2^36 (0). An instruction that several threads of a warp execute together counts
    /// once.
    WatchdogInstructions,
    /// State reported for every NCCL communicator, an `ncclResult_t`. 0 reports the actual state
    /// (0).
    NcclAsyncError,
    /// Real time that the abort of a communicator takes after its operations have been removed from
    /// their streams, in ms (0).
    NcclAbortMs,
    /// Maximum real time to wait for NCCL ranks of other threads, in ms (60000).
    RankTimeoutMs,
}

impl Setting {
    /// Returns the name by which the setting is passed to the emulated driver.
    pub(super) fn name(self) -> &'static CStr {
        match self {
            Setting::Devices => c"devices",
            Setting::DriverVersion => c"driver_version",
            Setting::QueryNs => c"query_ns",
            Setting::LaunchNs => c"launch_ns",
            Setting::KernelNs => c"kernel_ns",
            Setting::MemoryBytes => c"memory_bytes",
            Setting::Multiprocessors => c"multiprocessors",
            Setting::GreatestPriority => c"greatest_priority",
            Setting::StreamMemoryOperations => c"stream_memory_operations",
            Setting::MemoryPools => c"memory_pools",
            Setting::CrossContextEvents => c"cross_context_events",
            Setting::ReverseNodeOrder => c"reverse_node_order",
            Setting::BinaryImages => c"binary_images",
            Setting::OrderSeed => c"order_seed",
            Setting::RaceCheck => c"race_check",
            Setting::UninitialisedCheck => c"uninitialised_check",
            Setting::OrderCheck => c"order_check",
            Setting::DropWait => c"drop_wait",
            Setting::WatchdogInstructions => c"watchdog_instructions",
            Setting::NcclAsyncError => c"nccl_async_error",
            Setting::NcclAbortMs => c"nccl_abort_ms",
            Setting::RankTimeoutMs => c"rank_timeout_ms",
        }
    }
}

/// Kernel that has run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelRun {
    /// Virtual time of the start, since the driver was reset.
    pub started: Duration,
    /// Virtual time of the end, since the driver was reset.
    pub ended: Duration,
    /// Virtual time at which the kernel or its graph was enqueued, since the driver was reset.
    pub enqueued: Duration,
    /// Number of the device, from 0.
    pub device: usize,
    /// Priority with which the kernel was scheduled: that of its stream, or of its node if the
    /// graph was instantiated with node priorities. The lowest number is the highest priority.
    pub priority: i32,
    /// Whether the kernel is a node of a graph.
    pub in_graph: bool,
    /// Number of bytes of device memory that the kernel read, each byte counted once. It is counted
    /// only with [`Setting::OrderCheck`], otherwise it is 0.
    pub bytes_read: u64,
    /// Number of bytes of device memory that the kernel wrote or changed by atomic operations,
    /// counted as `bytes_read`.
    pub bytes_written: u64,
    /// Name of the stream, such as `stream-2`. Streams are numbered from 1 in the order of their
    /// creation.
    pub stream: String,
    /// Name of the kernel.
    pub name: String,
}

impl KernelRun {
    /// Parses one line of the driver's timeline. Returns `None` if it is malformed.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut parts = line.splitn(10, ' ');
        let mut time = || Some(Duration::from_nanos(parts.next()?.parse().ok()?));
        let (started, ended, enqueued) = (time()?, time()?, time()?);
        Some(Self {
            started,
            ended,
            enqueued,
            device: parts.next()?.parse().ok()?,
            priority: parts.next()?.parse().ok()?,
            in_graph: parts.next()? == "1",
            bytes_read: parts.next()?.parse().ok()?,
            bytes_written: parts.next()?.parse().ok()?,
            stream: parts.next()?.to_owned(),
            name: parts.next()?.to_owned(),
        })
    }
}
