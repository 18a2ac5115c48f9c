//! Convolutions by one engine.

use std::ffi::c_void;
use std::fmt;

use super::graph::IDENTIFIERS;
use super::plan::Plan;
use super::{ConvolutionShape, CudnnHandle};
use crate::numerics::use_workspace;
use crate::{Address, Buffer, Result};

/// Convolution, or one of its gradients, by one configuration of an engine of cuDNN: a finalized
/// execution plan, created by [`Cudnn::convolutions`](super::Cudnn::convolutions). It keeps the
/// handle that it was made with. A clone shares the plan.
#[derive(Clone)]
pub struct Convolution {
    pub(super) shape: ConvolutionShape,
    pub(super) plan: Plan,
}

impl Convolution {
    /// Returns the engine's number.
    #[must_use]
    pub fn engine(&self) -> i64 {
        self.plan.engine
    }

    /// Returns the shape.
    #[must_use]
    pub fn shape(&self) -> &ConvolutionShape {
        &self.shape
    }

    /// Returns the name of the configuration, which identifies it among those of a shape on one
    /// version of the library: the engine, and the position among its configurations.
    #[must_use]
    pub fn name(&self) -> String {
        self.plan.name()
    }

    /// Returns the size of the workspace that [`enqueue`](Self::enqueue) needs, in bytes.
    #[must_use]
    pub fn workspace_bytes(&self) -> usize {
        self.plan.workspace_bytes
    }

    /// Enqueues the convolution into the handle's stream. Does not wait. The handle may be another
    /// one of the same device than that of the search. The operands are input, weights and output:
    ///
    /// | direction | input | weights | output |
    /// |---|---|---|---|
    /// | `Forward` | read | read | written |
    /// | `InputGradient` | gradient, written | read | gradient, read |
    /// | `WeightGradient` | read | gradient, written | gradient, read |
    ///
    /// `workspace` has at least [`workspace_bytes`](Self::workspace_bytes) bytes; its content is
    /// overwritten. All addresses are multiples of 16. Execute a convolution once before it is
    /// captured: its first execution may load kernels. A captured graph keeps the plan and the
    /// buffers.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for an address that is not aligned, a workspace
    /// that is too small, a handle of another device, and a convolution that was searched for a
    /// device's properties; [`Error::Library`](crate::Error::Library).
    ///
    /// # Safety
    /// From their addresses on, the operands have the elements of the shape. The result and the
    /// workspace overlap neither each other nor another operand.
    pub unsafe fn enqueue(
        &self,
        handle: &mut CudnnHandle,
        operands: [Address<'_>; 3],
        workspace: &Buffer<u8>,
    ) -> Result<()> {
        let [x, weights, y] = operands;
        let named = [("the input", x), ("the weights", weights), ("the output", y)];
        let stream = self.plan.check("a convolution", handle, &named)?;
        let workspace = use_workspace(workspace, self.plan.workspace_bytes, stream)?;
        let addresses = operands.map(|address| address.value() as *mut c_void);
        // SAFETY: as the caller promises.
        unsafe { self.plan.enqueue(handle, &IDENTIFIERS, &addresses, workspace) }
    }
}

impl fmt::Debug for Convolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {:?}", self.name(), self.shape)
    }
}
