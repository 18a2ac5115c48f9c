//! The experiments: their command, and their figures.

mod command;
mod figures;
mod layers;
mod page;
mod qos;
mod rows;
mod search_time;
mod sensitivity;
mod sweep;
mod validate;
