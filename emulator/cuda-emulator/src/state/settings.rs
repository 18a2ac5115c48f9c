//! What kind of driver and device this is, what is checked, and how long kernels take.

use ptx_emulator::Options;
use std::{collections::BTreeMap, env};

/// The variable that says how many devices there are.
const DEVICES_VARIABLE: &str = "DEEPPOOL_EMULATED_GPUS";

/// How the variables begin that set a number by its name, as `CUDA_EMULATOR_RACE_CHECK=1`.
const PREFIX: &str = "CUDA_EMULATOR_";

/// The most devices.
const MOST_DEVICES: i64 = 8;

/// Named numbers, as `cuda_emulator_set` takes them.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How many devices there are, each like the others.
    pub(crate) devices: i64,
    /// As `cuDriverGetVersion` gives it: 1000 x major + 10 x minor.
    pub(crate) driver_version: i64,
    /// By how much a query lets time pass, in ns.
    pub(crate) query_ns: i64,
    /// How long the host needs for a launch, in ns.
    pub(crate) launch_ns: i64,
    /// How long a kernel takes whose name gives no time, in ns.
    pub(crate) kernel_ns: i64,
    /// Memory of the device.
    pub(crate) memory_bytes: i64,
    pub(crate) multiprocessors: i64,
    /// The lowest number is the highest priority.
    pub(crate) greatest_priority: i64,
    /// Whether streams can wait for values in memory and write them.
    pub(crate) stream_memory_operations: i64,
    pub(crate) memory_pools: i64,
    /// Whether streams of green contexts take events of the primary context.
    pub(crate) events_of_other_contexts: i64,
    /// Whether graphs list their nodes with the last one first.
    pub(crate) nodes_from_the_last: i64,
    /// Whether binary images are taken, of which nothing is executed.
    pub(crate) binary_images: i64,
    /// Shuffles the order of a kernel's blocks and warps; 0 for the order of their numbers.
    pub(crate) order_seed: i64,
    /// Whether races on shared memory are looked for.
    pub(crate) race_check: i64,
    /// Whether reads of memory that was not written are errors. Memory that a device has had before is not checked.
    pub(crate) uninitialised_check: i64,
    /// Whether it is checked that work which uses the same memory is ordered. Memory that a device has had before is not checked.
    pub(crate) order_check: i64,
    /// The call of `cuStreamWaitEvent` that puts no wait into its stream, counted from 1; 0 for none.
    pub(crate) drop_wait: i64,
    /// The most instructions of all warps of a block together; 0 for the emulator's own limit.
    pub(crate) watchdog_instructions: i64,
    /// What every NCCL communicator's state is, an `ncclResult_t`; 0 for what it really is.
    pub(crate) nccl_async_error: i64,
    /// How long an abort of a communicator takes once its operations have left, in ms of real time.
    pub(crate) nccl_abort_ms: i64,
    /// How long a wait lasts for ranks of other threads that do not come, in ms of real time.
    pub(crate) patience_ms: i64,
    /// How long kernels take, by their names, in ns.
    kernel_times: BTreeMap<String, u64>,
    /// Variables of the environment that are no settings.
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
            events_of_other_contexts: 1,
            nodes_from_the_last: 0,
            binary_images: 0,
            order_seed: 0,
            race_check: 0,
            uninitialised_check: 0,
            order_check: 0,
            drop_wait: 0,
            watchdog_instructions: 0,
            nccl_async_error: 0,
            nccl_abort_ms: 0,
            patience_ms: 60_000,
            kernel_times: BTreeMap::new(),
            wrong_variables: Vec::new(),
        }
    }
}

impl Settings {
    /// As the variables of the environment say: `DEEPPOOL_EMULATED_GPUS`, and `CUDA_EMULATOR_` with a setting's name.
    pub(crate) fn from_environment() -> Self {
        let mut settings = Self::default();
        for (variable, value) in env::vars_os() {
            let (Some(variable), value) = (variable.to_str(), value.to_string_lossy()) else { continue };
            let name = match variable.strip_prefix(PREFIX) {
                // Where the library is, which is for those who open it.
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

    /// How long a kernel takes: as the table says, or else its name, or else the default.
    pub(super) fn kernel_time(&self, name: &str) -> u64 {
        let known = self.kernel_times.get(name).copied();
        known.or_else(|| time_in_name(name)).unwrap_or(self.kernel_ns as u64)
    }

    /// Puts a kernel's time into the table.
    pub(crate) fn set_kernel_time(&mut self, name: &str, nanoseconds: u64) {
        self.kernel_times.insert(name.to_owned(), nanoseconds);
    }

    /// How kernels are executed.
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

    /// Sets the number called `name`; false if there is none, or for a number out of its range.
    pub(crate) fn set(&mut self, name: &str, value: i64) -> bool {
        let least = if name == "greatest_priority" { -100 } else { 0 };
        let most = if name == "devices" { MOST_DEVICES } else { i64::MAX };
        let place = match name {
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
            "events_of_other_contexts" => &mut self.events_of_other_contexts,
            "nodes_from_the_last" => &mut self.nodes_from_the_last,
            "binary_images" => &mut self.binary_images,
            "order_seed" => &mut self.order_seed,
            "race_check" => &mut self.race_check,
            "uninitialised_check" => &mut self.uninitialised_check,
            "order_check" => &mut self.order_check,
            "drop_wait" => &mut self.drop_wait,
            "watchdog_instructions" => &mut self.watchdog_instructions,
            "nccl_async_error" => &mut self.nccl_async_error,
            "nccl_abort_ms" => &mut self.nccl_abort_ms,
            "patience_ms" => &mut self.patience_ms,
            _ => return false,
        };
        let fits = (least..=most).contains(&value);
        if fits {
            *place = value;
        }
        fits
    }
}

/// The time in a kernel's name: the last of its parts between underscores that is a number and `ns`, `us` or `ms`.
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
