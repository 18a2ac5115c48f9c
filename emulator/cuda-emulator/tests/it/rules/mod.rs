//! The rules that the driver checks.

mod captures;
mod clock;
mod contexts;
pub(crate) mod cuda;
mod events;
mod graphs;
mod green;
mod handles;
mod injection;
mod memory;
mod names;
mod order;
