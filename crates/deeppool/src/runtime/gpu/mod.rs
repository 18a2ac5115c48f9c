//! Ranks on NVIDIA GPUs. [`gpu_mux::Driver`] launches their steps ahead, as captured CUDA graphs.
//!
//! The operations of a program are grouped into *launch units*, each of which is one tasklet. A
//! *launch table* has the functions that enqueue them. *Emulated GPUs* are those of the emulated
//! CUDA driver, whose time is virtual.

mod addresses;
mod arena;
mod calls;
mod clock;
mod driver;
mod engine;
mod failure;
mod graphs;
mod host;
mod job;
mod launch_table;
mod units;

use collectives::{NcclBuffer, NcclCommunicator, NcclStream};
use layer_engine::{CudaQueue, Engine};

pub use arena::GpuArena;
pub use driver::GpuDriver;
pub use engine::GpuEngine;

use super::{Backend, BatchSource, Observer, TrainingBackend};
use crate::Error;

/// Backend of ranks with one NVIDIA GPU each, connected by NCCL.
#[derive(Debug, Clone, Copy)]
pub struct Gpu;

impl Backend for Gpu {
    type Buffer = NcclBuffer<f32>;
    type Engine = GpuEngine;
    type Communicator = NcclCommunicator;
    type Arena = GpuArena;

    const IS_SYNCHRONOUS: bool = false;

    fn allocate_arena(engine: &GpuEngine, elements: usize) -> Result<Self::Arena, Error> {
        Ok(GpuArena::new(engine.allocate(elements)?))
    }

    fn communication_queue(engine: &GpuEngine) -> Result<NcclStream, Error> {
        Ok(NcclStream::on_device(engine.device())?)
    }

    fn communicate_after(compute: &mut CudaQueue, communication: &mut NcclStream) -> Result<(), Error> {
        engine::order(compute, communication)
    }
}

impl TrainingBackend for Gpu {
    type Driver<'a, S: BatchSource + 'a, O: Observer + 'a> = GpuDriver<'a, S, O>;
}
