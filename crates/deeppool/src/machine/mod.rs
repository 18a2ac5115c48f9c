//! Times of ranks that are cores of one machine, as training runs measure them.
//!
//! A *step* is one of a rank's program. A *transfer* is the part of a collective after its last
//! rank has arrived.

mod measure;
mod observed;

pub use measure::{MachineProfile, MeasureOptions, measure_machine};
pub use observed::{ObservedCollective, ObservedTimes, Phase};
