//! The engine on libtorch, beside the CPU engine.

mod engine;
mod layers;
mod networks;
