//! Description of a device, for the record of a measurement.

use std::collections::BTreeMap;

/// Description of the device that an engine runs on. A recorded measurement includes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceDescription {
    /// Name of the device, such as `NVIDIA H200`, or of the processor and its number of threads.
    pub name: String,
    /// Version of each library that the engine uses, by the name of the library. An entry can also
    /// describe the instruction set, such as `vector instructions` by `AVX2`.
    pub libraries: BTreeMap<String, String>,
    /// Clock rate in MHz, or `None` if the system does not report it.
    pub clock_mhz: Option<u32>,
}
