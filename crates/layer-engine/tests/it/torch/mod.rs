//! libtorch engine, compared with the CPU engine.

mod engine;
mod layers;
mod networks;
