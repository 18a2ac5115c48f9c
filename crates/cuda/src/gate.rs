//! Gates between streams. Functions that return a `Result` also return the error of a failed call
//! of the CUDA driver (a *CUDA error*). A *technique* is a feature that a driver or device may
//! lack.

#![allow(unsafe_code)]

use cudarc::driver::sys::{self, CUstreamWaitValue_flags};

use crate::driver::cu;
use crate::memory::check_not_captured_elsewhere;
use crate::{Buffer, Context, Error, Result, Stream};

/// Name of the technique *gate* in [`Error::Unsupported`].
pub const GATE: &str = "a gate (stream memory operations)";

const OPEN: u32 = 1;
const SHUT: u32 = 0;

/// Word in device memory with which one stream withholds the work of others: it opens and shuts the
/// gate in stream order, and other streams wait until it is open, without the host.
///
/// CUDA does not know about this dependency. A gate that is never opened blocks the waiting
/// streams, and [`Context::synchronize`], forever.
#[derive(Debug)]
pub struct Gate {
    word: Buffer<u32>,
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
            return Err(Error::Unsupported { technique: GATE, reason });
        }
        let gate = Self { word: Buffer::uninitialized(context, 1)? };
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
        self.prepare(stream)?;
        let equal = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_EQ as u32;
        let (driver, raw, word) = (stream.driver(), stream.raw(), self.word.address());
        // SAFETY: the address is that of a word that outlives the work in the streams.
        stream
            .with_technique(unsafe { cu!(driver, cuStreamWaitValue32_v2(raw, word, OPEN, equal)) })
            .map_err(|error| error.unsupported_as(GATE))
    }

    /// Enqueues the opening of the gate as a memory fill, for use after a failed stream memory
    /// operation.
    pub fn force_open(&self, stream: &Stream) -> Result<()> {
        self.word.fill(stream, OPEN)
    }

    fn write(&self, stream: &Stream, value: u32) -> Result<()> {
        self.prepare(stream)?;
        let (driver, raw, word) = (stream.driver(), stream.raw(), self.word.address());
        // SAFETY: the address is that of a word that outlives the work in the streams.
        unsafe { cu!(driver, cuStreamWriteValue32_v2(raw, word, value, 0)) }
            .map_err(|error| error.unsupported_as(GATE))
    }

    /// Prepares a stream memory operation on the word, which captured graphs keep.
    fn prepare(&self, stream: &Stream) -> Result<()> {
        check_not_captured_elsewhere(stream)?;
        if let Some(memory) = self.word.memory() {
            memory.use_in(stream)?;
        }
        stream.context().bind()
    }
}
