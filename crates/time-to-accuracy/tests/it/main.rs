//! Tests of the public interface.

#![expect(clippy::float_cmp, reason = "points of a curve are exact")]

mod crossovers;
mod curves;
mod interpolated;
mod plans;
mod published;
mod random;
