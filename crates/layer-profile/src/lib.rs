#![doc = include_str!("../README.md")]

mod accuracy;
mod contended;
mod device;
mod error;
mod gpu;
mod interpolate;
mod json;
mod kineto;
mod measurement;
#[cfg(feature = "measure")]
mod profiler;
mod published;
mod rows;
mod structure;
mod table;
mod time;
mod unique_fields;

pub use accuracy::{ErrorSummary, HeldOutErrors, ModelAccuracy, NetworkFamily, PredictionRange};
pub use contended::ContendedTimes;
pub use device::{DeviceModel, Direction, FitReport, Iteration, NetworkErrors, Observations, Optimizer};
pub use error::ProfileError;
pub use gpu::{DataSheet, Gpu, NumberFormat};
pub use kineto::{KinetoTrace, TraceTimes};
pub use measurement::MeasurementConditions;
#[cfg(feature = "measure")]
pub use profiler::{KernelTime, ProfileRun, Profiler};
pub use published::{ImportedProfile, PublishedProfile};
pub use table::ProfileTable;
pub use time::{BatchSpread, BatchTime, LayerProfile, LayerTime, NetworkSpread, NetworkTime, Origin, Spread};
