//! Convolutions by one engine.

use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind,
};

use super::descriptor::Descriptor;
use super::graph::{Graph, IDENTIFIERS};
use super::{ConvolutionShape, CudnnHandle, dnn};
use crate::memory::{check_not_captured_elsewhere, keep_while_captured};
use crate::numerics::{check_address, use_workspace};
use crate::{Address, Buffer, Error, Result};

/// Convolution, or one of its gradients, by one configuration of an engine of cuDNN: a finalized
/// execution plan, created by [`Cudnn::convolutions`](super::Cudnn::convolutions). It keeps the
/// handle that it was made with. A clone shares the plan.
#[derive(Clone)]
pub struct Convolution {
    shape: ConvolutionShape,
    engine: i64,
    /// Position among the configurations of the engine, from 1.
    ordinal: usize,
    workspace_bytes: usize,
    /// Executed by one thread at a time: not all engines permit more.
    parts: Arc<Mutex<Parts>>,
}

/// Plan, and the descriptors that it was made from. Fields are dropped in order.
pub(super) struct Parts {
    pub(super) plan: Descriptor,
    pub(super) _configuration: Descriptor,
    pub(super) _graph: Arc<Graph>,
}

impl Convolution {
    pub(super) fn new(
        shape: ConvolutionShape,
        parts: Parts,
        engine: i64,
        ordinal: usize,
        workspace_bytes: usize,
    ) -> Self {
        Self { shape, engine, ordinal, workspace_bytes, parts: Arc::new(Mutex::new(parts)) }
    }

    /// Returns the engine's number.
    #[must_use]
    pub fn engine(&self) -> i64 {
        self.engine
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
        match self.ordinal {
            1 => format!("cuDNN engine {}", self.engine),
            ordinal => format!("cuDNN engine {}, configuration {ordinal}", self.engine),
        }
    }

    /// Returns the size of the workspace that [`enqueue`](Self::enqueue) needs, in bytes.
    #[must_use]
    pub fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
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
    /// [`Error::Invalid`] for an address that is not aligned, a workspace that is too small, a
    /// handle of another device, and a convolution that was searched for a device's properties;
    /// [`Error::Library`].
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
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = parts.plan.owner();
        let Some(made_with) = &owner.handle else {
            return Err(Error::Invalid(
                "a convolution searched for properties of a device was executed".to_owned(),
            ));
        };
        let stream = handle.stream();
        stream.context().check_same(made_with.stream.context(), "a convolution")?;
        check_not_captured_elsewhere(stream)?;
        for (name, address) in ["the input", "the weights", "the output"].into_iter().zip(operands) {
            check_address(name, address.value())?;
            address.use_in(stream)?;
        }
        let workspace = use_workspace(workspace, self.workspace_bytes, stream)?;
        stream.context().bind()?;
        let pack = Descriptor::new(owner, Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
        let pointers = operands.map(|address| address.value() as *mut c_void);
        let workspace = [workspace as *mut c_void];
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, Type::CUDNN_TYPE_INT64, &IDENTIFIERS)?;
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, Type::CUDNN_TYPE_VOID_PTR, &pointers)?;
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, Type::CUDNN_TYPE_VOID_PTR, &workspace)?;
        pack.finalize()?;
        keep_while_captured(&self.parts);
        keep_while_captured(&handle.state);
        let (raw, plan) = (handle.state.raw.0, parts.plan.raw());
        // SAFETY: the handle, the plan and the pack are alive, and this thread has the handle and
        // the plan for itself. The operands are as the caller promises.
        unsafe { dnn!(&owner.functions, cudnnBackendExecute(raw, plan, pack.raw())) }
    }
}

impl fmt::Debug for Convolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {:?}", self.name(), self.shape)
    }
}
