//! Name and clock rate of the processor, as reported by the system.

use std::collections::BTreeMap;

use crate::DeviceDescription;

/// Describes the processor from `/proc/cpuinfo` on Linux; elsewhere, by the architecture alone. The
/// name includes `threads`, the number of threads that an engine uses.
pub(crate) fn describe(threads: usize) -> DeviceDescription {
    let table = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |wanted: &str| {
        let mut fields = table.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(name, _)| name.trim() == wanted).map(|(_, value)| value.trim())
    };
    let name = field("model name").unwrap_or(std::env::consts::ARCH);
    let plural = if threads == 1 { "" } else { "s" };
    let version = env!("CARGO_PKG_VERSION").to_owned();
    DeviceDescription {
        name: format!("{name}, {threads} thread{plural}"),
        libraries: BTreeMap::from([("layer-engine".to_owned(), version)]),
        clock_mhz: field("cpu MHz")
            .and_then(|clock| clock.parse().ok())
            .map(|clock: f64| clock.round() as u32),
    }
}
