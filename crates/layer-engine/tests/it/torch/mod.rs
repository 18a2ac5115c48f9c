//! The engine on libtorch, beside the CPU engine.

mod any_engine;
mod engine;
mod layers;
mod networks;
