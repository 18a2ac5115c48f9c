//! Integration tests: building, reading and writing networks.

mod graph;
mod hf;
mod json;
mod losses;
mod sequences;
mod split;
mod zoo;

#[cfg(feature = "onnx")]
mod onnx;
