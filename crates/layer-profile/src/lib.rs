#![doc = include_str!("../README.md")]

mod device;
mod error;
mod interpolate;
mod json;
mod table;
mod time;

pub use device::DeviceModel;
pub use error::ProfileError;
pub use table::ProfileTable;
pub use time::{BatchTime, LayerProfile, LayerTime, NetworkTime, Origin, Spread};
