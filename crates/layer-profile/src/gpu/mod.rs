//! GPUs that device models are made for: a data sheet and a number format.

mod data_sheet;
mod number_format;

use crate::ProfileError;

pub use data_sheet::DataSheet;
pub use number_format::NumberFormat;

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

    /// Returns the name of the built-in device model of a GPU in a number format: `a100` in
    /// [`Half`](NumberFormat::Half) is `a100-bf16`, and `v100` is `v100-fp16`. The name may end in
    /// a format, which must then be this one.
    ///
    /// # Errors
    /// [`ProfileError::UnknownDevice`] if the GPU is unknown; [`ProfileError::NumberFormat`] if it
    /// does not multiply in the format, or its name ends in another one.
    pub fn name_in(name: &str, format: NumberFormat) -> Result<String, ProfileError> {
        DataSheet::named(name)?;
        let (gpu, own) = NumberFormat::split(name);
        let suffixes = [""].iter().chain(Self::suffixes(gpu));
        let mut names = suffixes.map(|suffix| format!("{gpu}{suffix}"));
        names
            .find(|name| Self::named(name).is_ok_and(|gpu| gpu.format == format))
            .filter(|_| own.is_none_or(|own| own == format))
            .ok_or_else(|| ProfileError::NumberFormat { device: name.into(), format: format.label() })
    }

    /// Returns the ends of names of a GPU's formats that are not its default.
    fn suffixes(gpu: &str) -> &'static [&'static str] {
        if gpu.starts_with("v100") { &["-fp16"] } else { &["-fp32", "-bf16"] }
    }

    /// Returns the names of all GPUs with a data sheet, each in its default format and in the
    /// others that it supports.
    #[must_use]
    pub fn names() -> Vec<String> {
        let formats = |name: &str| {
            let others = Self::suffixes(name).iter().map(move |suffix| format!("{name}{suffix}"));
            [name.to_owned()].into_iter().chain(others).collect::<Vec<_>>()
        };
        DataSheet::names().into_iter().flat_map(formats).collect()
    }
}
