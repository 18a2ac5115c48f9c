#![doc = include_str!("../README.md")]

mod address;
mod buffer;
mod capabilities;
mod capture;
mod context;
mod cublaslt;
mod cudnn;
mod cut;
mod driver;
mod element;
pub mod emulated;
mod error;
mod event;
mod gate;
mod graph;
mod green;
mod handle;
mod host_buffer;
mod intervals;
mod library;
mod memory;
mod merge;
mod module;
pub mod nccl;
mod numerics;
mod nvrtc;
mod rows;
mod stopwatch;
mod stream;
mod symbols;

pub use address::Address;
pub use buffer::Buffer;
pub use capabilities::Capabilities;
pub use context::Context;
pub use cublaslt::{CublasLt, Product, ProductShape};
pub use cudnn::{
    Attention, AttentionPass, AttentionShape, Convolution, ConvolutionShape, Cudnn, CudnnHandle, Determinism,
    DeviceProperties, Direction, Layout, Target,
};
pub use cut::{CutGraph, GraphPiece, OversizedNode};
pub use driver::Driver;
pub use element::Element;
pub use error::{Error, Result};
pub use event::Event;
pub use gate::{GATE, Gate};
pub use graph::{CapturedGraph, Executable};
pub use green::GreenContext;
pub use host_buffer::HostBuffer;
pub use merge::{MergeLimits, MergedGraph};
pub use module::{Argument, Kernel, LaunchShape, MAX_ARGUMENTS, Module};
pub use numerics::Numerics;
pub use nvrtc::Nvrtc;
pub use rows::{RowCopy, Rows};
pub use stopwatch::{Stopwatch, TimingRuns};
pub use stream::{Priority, Stream};

/// Thread-safety guarantees for users. A doc test of `CapturedGraph` checks that it is not `Sync`.
const _: () = {
    const fn moves_between_threads<T: Send>() {}
    const fn is_shared_by_threads<T: Send + Sync>() {}
    moves_between_threads::<CapturedGraph>();
    is_shared_by_threads::<Context>();
    is_shared_by_threads::<Stream>();
    is_shared_by_threads::<Event>();
    is_shared_by_threads::<Kernel>();
    is_shared_by_threads::<Buffer<f32>>();
    is_shared_by_threads::<HostBuffer<f32>>();
    is_shared_by_threads::<Executable>();
    is_shared_by_threads::<GreenContext>();
    is_shared_by_threads::<CublasLt>();
    is_shared_by_threads::<Product>();
    is_shared_by_threads::<Cudnn>();
    is_shared_by_threads::<Attention>();
    is_shared_by_threads::<Convolution>();
    moves_between_threads::<CudnnHandle>();
};
