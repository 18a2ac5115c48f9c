//! Networks as graphs, as their users build, read and write them.

mod graph;
mod json;
mod sequences;
mod zoo;

#[cfg(feature = "onnx")]
mod onnx;
