//! Gradients reduced in buckets, while the backward pass goes on.
//!
//! [`bucketing`] decides which gradients go together and in which order; [`all_reduce`] carries it out.

mod all_reduce;
mod bucketing;

pub use all_reduce::{BucketedAllReduce, Gradient, GradientFault};
pub use bucketing::{Bucket, Bucketing};
