//! All-reduces that hide behind the backward pass.
//!
//! The model is defined at [`TimeModel::Overlap`](crate::TimeModel::Overlap).

mod evaluate;
mod search;
mod sweep;

pub use evaluate::evaluate_overlap;
pub(crate) use search::fastest;
