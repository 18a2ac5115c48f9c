//! Tests of the ONNX importer: published networks, single operators and invalid files.

mod bad_files;
mod computed_shapes;
mod differences;
mod file;
mod operators;
mod pt2;
mod published;
mod transformers;
mod windows;
