//! GPUs that device models are made for: a data sheet and a number format.

use super::{DataSheet, NumberFormat};
use crate::ProfileError;

/// GPU that multiplies matrices in one number format.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gpu {
    /// Peak rates and sizes.
    pub sheet: DataSheet,
    /// Format of the matrix products.
    pub format: NumberFormat,
}

impl Gpu {
    /// Returns the GPU with the name of a built-in device model, such as `a100-bf16`. Without a
    /// format, it is the [default](DataSheet::default_format) of the data sheet.
    ///
    /// # Errors
    /// [`ProfileError::UnknownDevice`], which lists the known names, if there is none.
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        let unknown = || ProfileError::UnknownDevice { name: name.into(), known: DataSheet::names() };
        let sheet = DataSheet::named(name).map_err(|_| unknown())?;
        let (_, format) = NumberFormat::split(name);
        let format = format.unwrap_or_else(|| sheet.default_format());
        sheet.peak_flops_per_s(format).map(|_| Self { sheet, format }).ok_or_else(unknown)
    }

    /// Returns the names of all GPUs with a data sheet, each in its default format and in the
    /// others that it supports.
    #[must_use]
    pub fn names() -> Vec<String> {
        let formats = |name: &str| {
            let others: &[&str] = if name.starts_with("v100") { &["-fp16"] } else { &["-fp32", "-bf16"] };
            let others = others.iter().map(move |suffix| format!("{name}{suffix}"));
            [name.to_owned()].into_iter().chain(others).collect::<Vec<_>>()
        };
        DataSheet::names().into_iter().flat_map(formats).collect()
    }
}
