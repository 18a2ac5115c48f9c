//! The scheduling policy and its drivers on the virtual device, on the CPU, and on an emulated CUDA
//! driver.
//!
//! Tests that need a real CUDA driver are in the program `cuda_gpu`, because in this process the
//! dynamic loader would return the emulated driver.

mod allocations;
mod cpu;
mod cuda;
mod gang_programs;
mod gang_rule;
mod host;
mod laws;
mod multiplexer;
mod pieces;
mod presets;
mod serial_device;
mod vgg16;
mod virtual_device;
mod virtual_device_oracle;
mod workload;
