//! Description of this machine.

use std::thread;

use crate::coll::Machine;

/// Describes this machine. The processor's name is from Linux's `/proc/cpuinfo`; on other systems
/// it is the architecture.
pub(crate) fn describe() -> Machine {
    let table = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut fields = table.lines().filter_map(|line| line.split_once(':'));
    let model = fields.find(|(name, _)| name.trim() == "model name").map(|(_, value)| value.trim());
    Machine {
        processor: model.unwrap_or(std::env::consts::ARCH).to_owned(),
        cores: thread::available_parallelism().map_or(1, usize::from),
    }
}
