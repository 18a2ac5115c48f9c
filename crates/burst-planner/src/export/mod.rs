//! Plans for other programs to show: as a graph for Graphviz, and as a timeline for Perfetto.
//!
//! The same plan gives the same bytes.

mod chrome_trace;
mod dot;
mod timeline;

pub use chrome_trace::chrome_trace;
pub use dot::dot;
pub use timeline::{Span, SpanWork, timeline};
