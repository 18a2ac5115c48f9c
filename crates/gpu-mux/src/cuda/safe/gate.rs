//! Gates between streams. Functions that return a `Result` also return the error of a failed call
//! of the CUDA driver (a *CUDA error*). A *technique* is a feature that a driver or device may
//! lack.

#![allow(unsafe_code)]

use super::buffer::DeviceBuffer;
use super::context::Context;
use super::stream::Stream;
use crate::cuda::error::{Error, Result};
use crate::cuda::sys::WAIT_EQUAL;

/// Name of the technique *gate* in errors.
pub(in crate::cuda) const TECHNIQUE: &str = "a gate (stream memory operations)";

const OPEN: u32 = 1;
const SHUT: u32 = 0;

/// Word in device memory by which one stream withholds the work of others: it opens and shuts the
/// gate in stream order, and other streams wait until it is open, without the host.
///
/// CUDA does not know about this dependency. A gate that is never opened blocks the waiting
/// streams, and [`Context::synchronize`], forever.
#[derive(Debug)]
pub struct Gate {
    word: DeviceBuffer,
}

impl Gate {
    /// Creates an open gate. The host waits for `stream`, which opens it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the driver or the device has no stream memory operations; CUDA
    /// errors.
    pub fn new(context: &Context, stream: &Stream) -> Result<Self> {
        let capabilities = context.capabilities()?;
        if !capabilities.stream_memory_operations {
            let version = capabilities.driver_version;
            let reason = format!("driver {}.{} does not offer them", version / 1000, version % 1000 / 10);
            return Err(Error::Unsupported { technique: TECHNIQUE, reason });
        }
        let gate = Self { word: DeviceBuffer::new(context, 4)? };
        gate.open(stream)?;
        stream.synchronize()?;
        Ok(gate)
    }

    /// Enqueues into `stream` the opening of the gate. Does not wait.
    pub fn open(&self, stream: &Stream) -> Result<()> {
        self.write(stream, OPEN)
    }

    /// Enqueues into `stream` the shutting of the gate. Does not wait.
    pub fn shut(&self, stream: &Stream) -> Result<()> {
        self.write(stream, SHUT)
    }

    /// Makes later work in `stream` wait until the gate is open. The host does not wait. A gate
    /// that is open only briefly may be missed.
    pub fn wait(&self, stream: &Stream) -> Result<()> {
        stream.context().bind()?;
        // SAFETY: the address is that of a word that outlives the work in the streams.
        unsafe { stream.driver().stream_wait_value(stream.raw(), self.word.address(), OPEN, WAIT_EQUAL) }
            .map_err(|error| error.unsupported_as(TECHNIQUE))
    }

    /// Opens the gate with a memory fill, for use after a failed stream memory operation.
    pub(in crate::cuda) fn force_open(&self, stream: &Stream) -> Result<()> {
        self.word.fill(stream, OPEN)
    }

    fn write(&self, stream: &Stream, value: u32) -> Result<()> {
        stream.context().bind()?;
        // SAFETY: the address is that of a word that outlives the work in the streams.
        unsafe { stream.driver().stream_write_value(stream.raw(), self.word.address(), value, 0) }
            .map_err(|error| error.unsupported_as(TECHNIQUE))
    }
}
