//! The rules that the driver keeps, each by what a program is told that breaks it.

mod captures;
mod clock;
mod contexts;
mod cuda;
mod events;
mod graphs;
mod green;
mod handles;
mod injection;
mod memory;
mod names;
mod order;
