//! Formatting and parsing of sizes in bytes.

const UNITS: [(&str, u64); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];

/// Parses a number of bytes such as `4KiB` or `65536`.
///
/// # Errors
/// If the text is no number with an optional unit, if the number is 0, or if it overflows.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let (number, unit) =
        UNITS.iter().find_map(|(name, bytes)| Some((text.strip_suffix(name)?, *bytes))).unwrap_or((text, 1));
    let bytes = number.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes
        .filter(|&bytes| bytes > 0)
        .ok_or_else(|| "expected bytes above 0 such as 4KiB, 64MiB or 65536".to_owned())
}

/// Formats a number of bytes in the largest unit that divides it, such as `4 KiB`.
pub(crate) fn format(bytes: u64) -> String {
    let unit = UNITS[..3].iter().rev().find(|(_, unit)| bytes >= *unit && bytes % unit == 0);
    unit.map_or_else(|| format!("{bytes} B"), |(name, unit)| format!("{} {name}", bytes / unit))
}
