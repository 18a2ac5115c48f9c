//! Integration tests: building, reading and writing networks.

mod graph;
mod json;
mod sequences;
mod zoo;

#[cfg(feature = "onnx")]
mod onnx;
