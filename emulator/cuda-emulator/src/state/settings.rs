//! Settings of the driver, its devices and its checks. Durations are in virtual time unless stated
//! otherwise.

use ptx_emulator::Options;
use std::{collections::BTreeMap, env};

/// Variable with the number of devices.
const DEVICES_VARIABLE: &str = "DEEPPOOL_EMULATED_GPUS";

/// Prefix of the variables with a setting's name, as in `CUDA_EMULATOR_RACE_CHECK=1`.
const PREFIX: &str = "CUDA_EMULATOR_";

/// Maximum number of devices.
const MAX_DEVICES: i64 = 8;

/// Named numbers that a test sets by `cuda_emulator_set`, or a user by variables of the
/// environment.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Number of devices. They are identical.
    pub(crate) devices: i64,
    /// Version as returned by `cuDriverGetVersion`: 1000 x major + 10 x minor.
    pub(crate) driver_version: i64,
    /// Duration of a query of a stream or event, in ns.
    pub(crate) query_ns: i64,
    /// Duration of a kernel or graph launch on the host, in ns.
    pub(crate) launch_ns: i64,
    /// Duration of a kernel whose name gives none, in ns.
    pub(crate) kernel_ns: i64,
    /// Memory of a device, in bytes.
    pub(crate) memory_bytes: i64,
    /// Number of multiprocessors of a device.
    pub(crate) multiprocessors: i64,
    /// Greatest priority of streams, which is the lowest number. The lowest priority is 0.
    pub(crate) greatest_priority: i64,
    /// Whether streams can wait for and write values in memory: 0 or 1.
    pub(crate) stream_memory_operations: i64,
    /// Whether memory can be allocated in stream order: 0 or 1.
    pub(crate) memory_pools: i64,
    /// Whether a stream accepts events of another context: 0 or 1.
    pub(crate) cross_context_events: i64,
    /// Whether graphs list their nodes in reverse order of creation: 0 or 1.
    pub(crate) reverse_node_order: i64,
    /// Whether binary images of modules are accepted, which are not executed: 0 or 1.
    pub(crate) binary_images: i64,
    /// Seed for shuffling the blocks and warps of kernels. 0 keeps their order.
    pub(crate) order_seed: i64,
    /// Whether data races on shared memory are errors: 0 or 1.
    pub(crate) race_check: i64,
    /// Whether reads of uninitialised memory are errors: 0 or 1. Does not apply to devices whose
    /// memory is already in use.
    pub(crate) uninitialised_check: i64,
    /// Whether to check that conflicting uses of memory are ordered: 0 or 1. Does not apply to
    /// devices whose memory is already in use.
    pub(crate) order_check: i64,
    /// Number of the `cuStreamWaitEvent` call outside captures that has no effect, counted from 1,
    /// to simulate a forgotten wait. 0 drops none.
    pub(crate) drop_wait: i64,
    /// Maximum number of warp instructions of a block, after which the kernel fails. 0 stands for
    /// the default of the PTX emulator, 2^36.
    pub(crate) watchdog_instructions: i64,
    /// State reported for every NCCL communicator, an `ncclResult_t`. 0 reports the actual state.
    pub(crate) nccl_async_error: i64,
    /// Real time that the abort of a communicator takes after its operations have been removed from
    /// their streams, in ms.
    pub(crate) nccl_abort_ms: i64,
    /// Maximum real time to wait for NCCL ranks of other threads, in ms.
    pub(crate) rank_timeout_ms: i64,
    /// Durations of kernels by name, in ns.
    kernel_times: BTreeMap<String, u64>,
    /// Variables of the environment that are no valid settings, in the form `NAME=value`.
    pub(crate) wrong_variables: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            devices: 1,
            driver_version: 13000,
            query_ns: 1000,
            launch_ns: 0,
            kernel_ns: 10_000,
            memory_bytes: 80 << 30,
            multiprocessors: 132,
            greatest_priority: -5,
            stream_memory_operations: 1,
            memory_pools: 1,
            cross_context_events: 1,
            reverse_node_order: 0,
            binary_images: 0,
            order_seed: 0,
            race_check: 0,
            uninitialised_check: 0,
            order_check: 0,
            drop_wait: 0,
            watchdog_instructions: 0,
            nccl_async_error: 0,
            nccl_abort_ms: 0,
            rank_timeout_ms: 60_000,
            kernel_times: BTreeMap::new(),
            wrong_variables: Vec::new(),
        }
    }
}

impl Settings {
    /// Reads the settings from the environment: `DEEPPOOL_EMULATED_GPUS`, and `CUDA_EMULATOR_` with
    /// a setting's name.
    pub(crate) fn from_environment() -> Self {
        let mut settings = Self::default();
        for (variable, value) in env::vars_os() {
            let (Some(variable), value) = (variable.to_str(), value.to_string_lossy()) else { continue };
            let name = match variable.strip_prefix(PREFIX) {
                // The path of the library, used by programs that open it.
                Some("LIBRARY") => continue,
                Some(name) => name.to_ascii_lowercase(),
                None if variable == DEVICES_VARIABLE => "devices".to_owned(),
                None => continue,
            };
            if !value.parse().is_ok_and(|value| settings.set(&name, value)) {
                settings.wrong_variables.push(format!("{variable}={value}"));
            }
        }
        settings
    }

    /// Returns the duration of the named kernel in ns: the one set for it, or else the one in its
    /// name (`gemm_20us`), or else the default.
    pub(super) fn kernel_time(&self, name: &str) -> u64 {
        let known = self.kernel_times.get(name).copied();
        known.or_else(|| time_in_name(name)).unwrap_or(self.kernel_ns as u64)
    }

    /// Sets the duration of the named kernel in ns.
    pub(crate) fn set_kernel_time(&mut self, name: &str, nanoseconds: u64) {
        self.kernel_times.insert(name.to_owned(), nanoseconds);
    }

    /// Returns the options with which the PTX emulator executes kernels.
    pub(super) fn launch_options(&self) -> Options {
        let mut options = Options::default();
        options.seed = u64::try_from(self.order_seed).ok().filter(|seed| *seed != 0);
        options.check_races = self.race_check != 0;
        options.check_uninitialised = self.uninitialised_check != 0;
        if self.watchdog_instructions > 0 {
            options.max_instructions = self.watchdog_instructions as u64;
        }
        options
    }

    /// Sets the field called `name`. Returns false, without effect, for an unknown name or a value
    /// out of range.
    pub(crate) fn set(&mut self, name: &str, value: i64) -> bool {
        let min = if name == "greatest_priority" { -100 } else { 0 };
        let max = if name == "devices" { MAX_DEVICES } else { i64::MAX };
        let field = match name {
            "devices" => &mut self.devices,
            "driver_version" => &mut self.driver_version,
            "query_ns" => &mut self.query_ns,
            "launch_ns" => &mut self.launch_ns,
            "kernel_ns" => &mut self.kernel_ns,
            "memory_bytes" => &mut self.memory_bytes,
            "multiprocessors" => &mut self.multiprocessors,
            "greatest_priority" => &mut self.greatest_priority,
            "stream_memory_operations" => &mut self.stream_memory_operations,
            "memory_pools" => &mut self.memory_pools,
            "cross_context_events" => &mut self.cross_context_events,
            "reverse_node_order" => &mut self.reverse_node_order,
            "binary_images" => &mut self.binary_images,
            "order_seed" => &mut self.order_seed,
            "race_check" => &mut self.race_check,
            "uninitialised_check" => &mut self.uninitialised_check,
            "order_check" => &mut self.order_check,
            "drop_wait" => &mut self.drop_wait,
            "watchdog_instructions" => &mut self.watchdog_instructions,
            "nccl_async_error" => &mut self.nccl_async_error,
            "nccl_abort_ms" => &mut self.nccl_abort_ms,
            "rank_timeout_ms" => &mut self.rank_timeout_ms,
            _ => return false,
        };
        let fits = (min..=max).contains(&value);
        if fits {
            *field = value;
        }
        fits
    }
}

/// Returns the duration in a kernel's name: its last part between underscores that is a number
/// followed by `ns`, `us` or `ms`.
fn time_in_name(name: &str) -> Option<u64> {
    name.rsplit('_').find_map(|part| {
        let digits = part.find(|character: char| !character.is_ascii_digit())?;
        let (number, unit) = part.split_at(digits);
        let scale = match unit {
            "ns" => 1,
            "us" => 1000,
            "ms" => 1_000_000,
            _ => return None,
        };
        number.parse::<u64>().ok()?.checked_mul(scale)
    })
}
