//! The experiments: their command, and their figures.

mod command;
mod figures;
mod layers;
mod qos;
mod rows;
mod sensitivity;
mod sweep;
