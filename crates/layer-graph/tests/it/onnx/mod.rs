//! Networks from ONNX files: published ones, files with one operator each, and files that are wrong.

mod bad_files;
mod file;
mod operators;
mod published;
mod windows;
