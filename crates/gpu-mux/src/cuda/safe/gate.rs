#![allow(unsafe_code)]

use super::buffer::DeviceBuffer;
use super::context::Context;
use super::stream::Stream;
use crate::cuda::error::{Error, Result};
use crate::cuda::sys::WAIT_EQUAL;

pub(in crate::cuda) const TECHNIQUE: &str = "a gate (stream memory operations)";

const OPEN: u32 = 1;
const SHUT: u32 = 0;

/// A gate between streams: one opens and shuts it, in the order of its work, and others wait until it is open. The host is not needed for
/// that.
///
/// CUDA does not see that one stream waits for another: a gate that is never opened blocks the streams that wait for it for ever, and so
/// [`Context::synchronize`].
#[derive(Debug)]
pub struct Gate {
    word: DeviceBuffer,
}

impl Gate {
    /// An open gate. It is opened by way of `stream`, for which the host waits.
    ///
    /// # Errors
    /// [`Error::Lacking`] where driver or device have no stream memory operations; what CUDA reports.
    pub fn new(context: &Context, stream: &Stream) -> Result<Self> {
        let capabilities = context.capabilities()?;
        if !capabilities.stream_memory_operations {
            let version = capabilities.driver_version;
            let reason = format!("driver {}.{} does not offer them", version / 1000, version % 1000 / 10);
            return Err(Error::Lacking { technique: TECHNIQUE, reason });
        }
        let gate = Self { word: DeviceBuffer::new(context, 4)? };
        gate.open(stream)?;
        stream.synchronize()?;
        Ok(gate)
    }

    /// Puts the opening of the gate into `stream`, and returns at once.
    pub fn open(&self, stream: &Stream) -> Result<()> {
        self.write(stream, OPEN)
    }

    /// Puts the shutting of the gate into `stream`, and returns at once.
    pub fn shut(&self, stream: &Stream) -> Result<()> {
        self.write(stream, SHUT)
    }

    /// Work that is put into `stream` from now on waits until the gate is open. The host does not wait. A gate that opens only for a moment
    /// may be missed.
    pub fn wait(&self, stream: &Stream) -> Result<()> {
        stream.context().bind()?;
        // SAFETY: the address is that of a word, which stays until streams are idle.
        unsafe { stream.driver().stream_wait_value(stream.raw(), self.word.address(), OPEN, WAIT_EQUAL) }
            .map_err(|error| error.of(TECHNIQUE))
    }

    /// Opens the gate by another way, for when the first has failed.
    pub(in crate::cuda) fn force_open(&self, stream: &Stream) -> Result<()> {
        self.word.fill(stream, OPEN)
    }

    fn write(&self, stream: &Stream, value: u32) -> Result<()> {
        stream.context().bind()?;
        // SAFETY: the address is that of a word, which stays until streams are idle.
        unsafe { stream.driver().stream_write_value(stream.raw(), self.word.address(), value, 0) }
            .map_err(|error| error.of(TECHNIQUE))
    }
}
