//! Settings of the library, and what it reports.

use std::{ffi::CStr, time::Duration};

/// Properties of the driver and its device. In brackets, the defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Setting {
    /// How many devices there are, at most 8; with none, `cuInit` returns `CUDA_ERROR_NO_DEVICE` (1).
    Devices,
    /// As `cuDriverGetVersion` gives it. Functions that a version does not have return `CUDA_ERROR_NOT_SUPPORTED` (13000).
    DriverVersion,
    /// By how many ns a query of a stream or an event advances the clock (1000).
    QueryNs,
    /// How many ns a launch takes on the host (0).
    LaunchNs,
    /// How many ns a kernel takes that is not in the table of times and has no time in its name (10000).
    KernelNs,
    /// Memory of the device, in bytes (80 GiB).
    MemoryBytes,
    /// Multiprocessors of the device (132).
    Multiprocessors,
    /// The highest priority, which is the lowest number (-5).
    GreatestPriority,
    /// Whether streams can wait for values in memory and write them, 0 or 1 (1).
    StreamMemoryOperations,
    /// Whether memory can be allocated in the order of a stream, 0 or 1 (1).
    MemoryPools,
    /// Whether the streams of green contexts take events of the primary context, 0 or 1 (1): the manual asks for events of
    /// the stream's own context, and does not specify whether these are.
    EventsOfOtherContexts,
    /// Whether graphs list their nodes with the last one first, 0 or 1 (0): the manual promises no order.
    NodesFromTheLast,
    /// Whether binary images are taken, 0 or 1 (0): every name is found in them, and their kernels take time and do nothing.
    BinaryImages,
    /// Shuffles the order of the blocks and warps of kernels; 0 for the order of their numbers (0).
    OrderSeed,
    /// Whether races on shared memory are errors, 0 or 1 (0).
    RaceCheck,
    /// Whether reads of shared and device memory that was not written are errors, 0 or 1 (0). To be set before memory is allocated.
    UninitialisedCheck,
    /// Whether work of different streams that uses the same memory has to be ordered by events, or whatever else orders streams, 0 or 1 (0):
    /// see [`Emulator::conflicts`](super::Emulator::conflicts). To be set before memory is allocated.
    OrderCheck,
    /// Which call of `cuStreamWaitEvent` puts no wait into its stream, counted from 1, as if it were forgotten; 0 for none (0). Calls in captures
    /// do not count. See [`Emulator::dropped_wait_orders`](super::Emulator::dropped_wait_orders).
    DropWait,
    /// The most instructions of the warps of a block together, after which a kernel counts as hanging (2^36).
    WatchdogInstructions,
    /// What every NCCL communicator's state is, an `ncclResult_t`; 0 for what it really is (0).
    NcclAsyncError,
    /// How many ms of real time an abort of a communicator takes once its operations have left their streams (0).
    NcclAbortMs,
    /// How many ms of real time a wait lasts for NCCL's ranks in other threads, before it is an error (60000).
    PatienceMs,
}

impl Setting {
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
            Setting::EventsOfOtherContexts => c"events_of_other_contexts",
            Setting::NodesFromTheLast => c"nodes_from_the_last",
            Setting::BinaryImages => c"binary_images",
            Setting::OrderSeed => c"order_seed",
            Setting::RaceCheck => c"race_check",
            Setting::UninitialisedCheck => c"uninitialised_check",
            Setting::OrderCheck => c"order_check",
            Setting::DropWait => c"drop_wait",
            Setting::WatchdogInstructions => c"watchdog_instructions",
            Setting::NcclAsyncError => c"nccl_async_error",
            Setting::NcclAbortMs => c"nccl_abort_ms",
            Setting::PatienceMs => c"patience_ms",
        }
    }
}

/// A kernel that has run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelRun {
    /// When it began, since the test began.
    pub started: Duration,
    /// When it ended.
    pub ended: Duration,
    /// When it, or its graph, was put into its stream, since the test began.
    pub enqueued: Duration,
    /// The device, from 0.
    pub device: usize,
    /// The priority with which it was chosen: its stream's, or that of its node in a graph that has such. The lowest number is the highest
    /// priority.
    pub priority: i32,
    /// Whether it is a node of a graph.
    pub in_graph: bool,
    /// The stream, such as `stream-2`: streams are counted from 1 in the order of their creation.
    pub stream: String,
    /// The kernel's name.
    pub name: String,
}

impl KernelRun {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut parts = line.splitn(8, ' ');
        let mut time = || Some(Duration::from_nanos(parts.next()?.parse().ok()?));
        let (started, ended, enqueued) = (time()?, time()?, time()?);
        Some(Self {
            started,
            ended,
            enqueued,
            device: parts.next()?.parse().ok()?,
            priority: parts.next()?.parse().ok()?,
            in_graph: parts.next()? == "1",
            stream: parts.next()?.to_owned(),
            name: parts.next()?.to_owned(),
        })
    }
}
