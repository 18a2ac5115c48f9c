//! Ranks on NVIDIA GPUs. [`gpu_mux::Driver`] launches their steps ahead, as captured CUDA graphs.
//!
//! The operations of a program are grouped into *launch units*, each of which is one tasklet. A
//! *launch table* has the functions that enqueue them. *Emulated GPUs* are those of the emulated
//! CUDA driver, whose time is virtual.

mod calls;
mod chains;
mod clock;
mod driver;
mod engine;
mod failure;
mod graphs;
mod host;
mod image_order;
mod job;
#[cfg(test)]
mod launch_counts;
mod launch_table;
#[cfg(test)]
mod launch_table_tests;
mod units;

use collectives::NcclCommunicator;
use cuda::{Buffer, Priority, Stream};
use layer_engine::{CudaQueue, Engine, ImageLayout};
use layer_graph::LayerGraph;

pub use driver::GpuDriver;
pub use engine::{GpuEngine, cuda_engine};
pub use image_order::fastest_image_order;

use super::{Backend, BatchSource, ImageOrder, Observer, TrainingBackend};
use crate::Error;
use crate::program::Program;

/// Backend of ranks with one NVIDIA GPU each, connected by NCCL.
#[derive(Debug, Clone, Copy)]
pub struct Gpu;

impl Backend for Gpu {
    type Buffer = Buffer<f32>;
    type Engine = GpuEngine;
    type Communicator = NcclCommunicator;
    type Arena = Buffer<f32>;

    const IS_SYNCHRONOUS: bool = false;

    fn allocate_arena(engine: &GpuEngine, elements: usize) -> Result<Buffer<f32>, Error> {
        Ok(engine.allocate(elements)?)
    }

    fn communication_queue(engine: &GpuEngine) -> Result<Stream, Error> {
        Ok(Stream::new(engine.context(), Priority::Background)?)
    }

    /// The wait is on the device.
    fn communicate_after(compute: &mut CudaQueue, communication: &mut Stream) -> Result<(), Error> {
        Ok(communication.wait_for_stream(compute.stream())?)
    }
}

impl TrainingBackend for Gpu {
    type Driver<'a, S: BatchSource + 'a, O: Observer + 'a> = GpuDriver<'a, S, O>;

    const HAS_IMAGE_LAYOUTS: bool = true;

    fn with_image_layout(engine: GpuEngine, layout: ImageLayout) -> GpuEngine {
        engine.with_image_layout(layout)
    }

    fn fastest_image_order(
        engine: &GpuEngine,
        network: &LayerGraph,
        training: &[Program],
        evaluation: &[&Program],
    ) -> Result<ImageOrder, Error> {
        fastest_image_order(engine.cuda(), network, training, evaluation)
    }
}
