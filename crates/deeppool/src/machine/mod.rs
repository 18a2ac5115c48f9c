//! Times of ranks that are cores of one machine, as training runs measure them.
//!
//! A *step* is one of a rank's program. A *transfer* is the part of a collective after its last
//! rank has arrived.

mod calibration;
mod difference;
mod measure;
mod observed;

pub use calibration::{Calibration, CalibrationErrors, CalibrationRun, CostRatios};
pub use difference::{DifferenceRow, IterationPart, difference};
pub use measure::{MachineProfile, MeasureOptions, measure_machine};
pub use observed::{ObservedCollective, ObservedTimes, Phase};
