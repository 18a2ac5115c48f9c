//! The experiments: their command, and their figures.

mod command;
mod rows;
mod sweep;
