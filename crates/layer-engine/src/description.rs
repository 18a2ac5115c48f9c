use std::collections::BTreeMap;

/// Description of the device that an engine runs on. A recorded measurement includes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceDescription {
    /// Name of the device, such as `NVIDIA H200`, or of the processor.
    pub name: String,
    /// Versions of the libraries that the engine uses, by name.
    pub libraries: BTreeMap<String, String>,
    /// Clock rate in MHz, if the system reports it.
    pub clock_mhz: Option<u32>,
}
