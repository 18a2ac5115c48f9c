//! The experiments: their command, and their figures.

mod command;
mod figures;
mod grid;
mod layers;
mod page;
mod partition;
mod qos;
mod resume;
mod rows;
mod sensitivity;
mod sweep;
