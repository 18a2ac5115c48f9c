//! The experiments: their command, and their figures.

mod command;
mod layers;
mod rows;
mod sweep;
