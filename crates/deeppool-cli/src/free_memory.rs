//! Check of the free memory of this machine.

use anyhow::bail;

use super::output::byte_size;

/// Checks that `needed_bytes` of memory are free on this machine. Systems on which the free memory
/// is unknown pass.
///
/// # Errors
/// If less is free.
pub(crate) fn check_free_memory(needed_bytes: u64) -> anyhow::Result<()> {
    match free_bytes() {
        Some(free) if needed_bytes > free => bail!(
            "this takes at least {} of memory, and {} is free: give fewer samples a batch, or a smaller \
             network",
            byte_size(needed_bytes),
            byte_size(free)
        ),
        _ => Ok(()),
    }
}

/// Returns the memory that this process can allocate: the available memory, or less if its address
/// space is limited (`ulimit -v`). `None` on systems other than Linux.
fn free_bytes() -> Option<u64> {
    let kilobytes = |text: &str| Some(1024 * text.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?);
    let memory = std::fs::read_to_string("/proc/meminfo").ok()?;
    let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")).and_then(kilobytes)?;
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max address space"));
    let limit = limit.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let used = status.lines().find_map(|line| line.strip_prefix("VmSize:")).and_then(kilobytes).unwrap_or(0);
    Some(limit.map_or(available, |limit| available.min(limit.saturating_sub(used))))
}
