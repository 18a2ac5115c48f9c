use std::collections::BTreeMap;

/// What an engine runs on: what has to be known to repeat a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceDescription {
    /// The device's own name, such as `NVIDIA H200` or the processor's.
    pub name: String,
    /// The libraries that do the work, by name, with their versions.
    pub libraries: BTreeMap<String, String>,
    /// The clock in MHz, where the system tells it.
    pub clock_mhz: Option<u32>,
}
