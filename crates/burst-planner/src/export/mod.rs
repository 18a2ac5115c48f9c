//! Plans for other programs to show: as a graph for Graphviz, and as a timeline for Perfetto.
//!
//! All of them take a choice of options and the schedule that it runs under, as in [`Plan::choice`](crate::Plan::choice),
//! and the same input gives the same bytes.

mod chrome_trace;
mod dot;
mod timeline;

pub use chrome_trace::chrome_trace;
pub use dot::dot;
pub use timeline::{Span, Work, timeline};
