//! The memory of each GPU that a plan may use.

use layer_profile::DataSheet;

use crate::Error;

/// Units of sizes. `B` is last, since all others end in it.
const UNITS: [(&str, f64); 7] = [
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("B", 1.0),
];

/// Memory of a device, of which a plan may use all but a reserved part. As text: `40GB`, `24 GiB`,
/// a number of bytes, or `unlimited`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    /// A limited number of bytes.
    Bytes {
        /// Memory of the device, bytes.
        memory: u64,
        /// The part of `memory` that a plan may not use, bytes.
        reserved: u64,
    },
    /// No limit on the memory of a plan.
    Unlimited,
}

impl Capacity {
    /// Returns the capacity of a device with the given name: the memory in `asked`, or, if it is
    /// `None`, that of the device's data sheet. A known GPU reserves 1 GB for the CUDA context and
    /// workspaces, other devices reserve nothing. A device without a data sheet is unlimited if
    /// `asked` is `None`.
    #[must_use]
    pub fn of(asked: Option<Self>, device: &str) -> Self {
        let sheet = DataSheet::of_device(device);
        let reserved = if sheet.is_some() { DataSheet::RESERVED_BYTES } else { 0 };
        match (asked, sheet) {
            (Some(Self::Unlimited), _) | (None, None) => Self::Unlimited,
            (Some(Self::Bytes { memory, .. }), _) => Self::Bytes { memory, reserved },
            (None, Some(sheet)) => Self::Bytes { memory: sheet.memory_bytes, reserved },
        }
    }

    /// Returns the number of bytes that a plan may use; `None` is no limit.
    ///
    /// # Errors
    /// [`Error::Setting`] if the memory is not larger than its reserved part.
    pub fn limit_bytes(self) -> Result<Option<u64>, Error> {
        match self {
            Self::Bytes { memory, reserved } => match memory.checked_sub(reserved) {
                None | Some(0) => Err(Error::Setting {
                    setting: "the memory of each GPU",
                    expected: "more than the 1 GB that is reserved for the CUDA context and the \
                               workspaces of its libraries, or `unlimited`",
                    got: format!("{memory} bytes"),
                }),
                usable => Ok(usable),
            },
            Self::Unlimited => Ok(None),
        }
    }
}

impl std::str::FromStr for Capacity {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text == "unlimited" {
            return Ok(Self::Unlimited);
        }
        let in_unit = |(unit, bytes): &(&str, f64)| {
            Some(text.strip_suffix(unit)?.trim_end().parse::<f64>().ok()? * bytes)
        };
        let parsed = text.parse().ok().or_else(|| UNITS.iter().find_map(in_unit));
        let is_size = |bytes: &f64| *bytes >= 1.0 && *bytes < 1e18;
        let memory = parsed.filter(is_size).map(|bytes| bytes as u64);
        let expected = || Error::Setting {
            setting: "the memory of each GPU",
            expected: "a number of bytes such as 40GB, 24GiB or 42949672960, or `unlimited`",
            got: format!("`{text}`"),
        };
        memory.map(|memory| Self::Bytes { memory, reserved: 0 }).ok_or_else(expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let memory = |text: &str| match text.parse() {
            Ok(Capacity::Bytes { memory, .. }) => Some(memory),
            Ok(Capacity::Unlimited) | Err(_) => None,
        };
        for (text, bytes) in [
            ("40GB", 40_000_000_000),
            ("1.5 GiB", 1_610_612_736),
            ("2kB", 2_000),
            ("4KiB", 4_096),
            ("12B", 12),
            ("12", 12),
        ] {
            assert_eq!(memory(text), Some(bytes), "{text}");
        }
        for text in ["", "GB", "-1GB", "0", "1e30", "NaN", "40 apples"] {
            assert!(text.parse::<Capacity>().is_err(), "{text}");
        }
    }

    #[test]
    fn known_gpus_have_their_data_sheets_memory() {
        let limit = |asked: Option<&str>, device| {
            Capacity::of(asked.map(|asked| asked.parse().unwrap()), device).limit_bytes().unwrap()
        };
        assert_eq!(limit(None, "a100"), Some(39_000_000_000));
        assert_eq!(limit(None, "NVIDIA A100-SXM4-80GB"), Some(79_000_000_000));
        assert_eq!(limit(Some("24GB"), "a100"), Some(23_000_000_000));
        assert_eq!(limit(Some("unlimited"), "a100"), None);
        assert_eq!(limit(None, "cpu-core"), None);
        assert_eq!(limit(Some("2GB"), "cpu-core"), Some(2_000_000_000));
    }
}
