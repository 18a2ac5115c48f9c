#![doc = include_str!("../README.md")]

mod device;
mod error;
mod files;
mod interpolate;
mod json;
#[cfg(feature = "measure")]
mod profiler;
mod table;
mod time;

pub use device::{
    DataSheet, DeviceModel, FitReport, ModelAccuracy, NetworkErrors, Observations, Pass, SeenErrors,
};
pub use error::ProfileError;
#[cfg(feature = "measure")]
pub use profiler::Profiler;
pub use table::ProfileTable;
pub use time::{BatchTime, LayerProfile, LayerTime, NetworkTime, Origin, Spread};
