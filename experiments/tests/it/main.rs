//! The experiments: their command, and their figures.

mod command;
mod figures;
mod qos;
mod rows;
mod sweep;
