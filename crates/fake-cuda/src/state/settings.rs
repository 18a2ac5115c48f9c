//! What kind of driver and device this is.

/// Named numbers, as `fake_cuda_set` takes them.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How many devices there are; each is like the others, and only the first one runs kernels in a clock of its own.
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
        }
    }
}

impl Settings {
    /// Sets the number called `name`; false if there is none, or for a number below its least.
    pub(crate) fn set(&mut self, name: &str, value: i64) -> bool {
        let least = if name == "greatest_priority" { -100 } else { 0 };
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
            _ => return false,
        };
        let fits = value >= least;
        if fits {
            *place = value;
        }
        fits
    }
}
