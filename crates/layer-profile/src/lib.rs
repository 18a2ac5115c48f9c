//! How long each layer of a network takes at a batch size: measured tables, interpolation, device models.

mod error;
mod interpolate;
mod json;
mod table;
mod time;

pub use error::ProfileError;
pub use table::ProfileTable;
pub use time::{BatchTime, LayerProfile, LayerTime, NetworkTime, Origin, Spread};
