//! The scheduling policy and its drivers: on the virtual device, on the CPU, and on an emulated CUDA driver.
//!
//! What needs CUDA's own libraries is the program `cuda_gpu`: here they would find the emulated driver, which the process has
//! open.

mod allocations;
mod cpu;
mod cuda;
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
