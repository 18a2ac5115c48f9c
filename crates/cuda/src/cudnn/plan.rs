//! Plans: engines with their settings, ready to be executed.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind,
};

use super::descriptor::Descriptor;
use super::graph::Graph;
use super::{CudnnHandle, dnn};
use crate::memory::{check_not_captured_elsewhere, keep_while_captured};
use crate::numerics::check_address;
use crate::{Address, Error, Result, Stream};

/// Finalized execution plan. It keeps the handle that it was made with. A clone shares it.
#[derive(Clone)]
pub(super) struct Plan {
    /// Number of the engine.
    pub(super) engine: i64,
    /// Position among the configurations of the engine, from 1.
    pub(super) ordinal: usize,
    /// Size of the workspace, in bytes.
    pub(super) workspace_bytes: usize,
    /// Executed by one thread at a time: not all engines permit more.
    pub(super) parts: Arc<Mutex<Parts>>,
}

/// Plan, and the descriptors that it was made from. Fields are dropped in order.
pub(super) struct Parts {
    pub(super) plan: Descriptor,
    pub(super) _configuration: Descriptor,
    pub(super) _graph: Arc<Graph>,
}

impl Plan {
    /// Returns the name, which identifies the plan among those of a graph on one version of the
    /// library: the engine, and the position among its configurations.
    pub(super) fn name(&self) -> String {
        match self.ordinal {
            1 => format!("cuDNN engine {}", self.engine),
            ordinal => format!("cuDNN engine {}, configuration {ordinal}", self.engine),
        }
    }

    /// Checks that the plan can be executed with a handle, which may be another one of the same
    /// device than that it was made with, and that the operands can be used in its stream. `what`
    /// is what the plan computes.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub(super) fn check<'h>(
        &self,
        what: &str,
        handle: &'h CudnnHandle,
        operands: &[(&str, Address<'_>)],
    ) -> Result<&'h Stream> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(made_with) = &parts.plan.owner().handle else {
            return Err(Error::Invalid(format!("{what} searched for properties of a device was executed")));
        };
        let stream = handle.stream();
        stream.context().check_same(made_with.stream.context(), what)?;
        check_not_captured_elsewhere(stream)?;
        for (name, address) in operands {
            check_address(name, address.value())?;
            address.use_in(stream)?;
        }
        Ok(stream)
    }

    /// Enqueues the plan into the handle's stream. Tensors, by their identifiers, are at these
    /// addresses. A captured graph keeps the plan and the handle.
    ///
    /// # Errors
    /// [`Error::Library`].
    ///
    /// # Safety
    /// The plan was [checked](Self::check). The addresses are those of the tensors' memory: on the
    /// host for those given by value, else on the device. At `workspace` is memory of the
    /// workspace's size.
    pub(super) unsafe fn enqueue(
        &self,
        handle: &mut CudnnHandle,
        identifiers: &[i64],
        addresses: &[*mut c_void],
        workspace: u64,
    ) -> Result<()> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = parts.plan.owner();
        handle.stream().context().bind()?;
        let pack = Descriptor::new(owner, Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
        let workspace = [workspace as *mut c_void];
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, Type::CUDNN_TYPE_INT64, identifiers)?;
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, Type::CUDNN_TYPE_VOID_PTR, addresses)?;
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, Type::CUDNN_TYPE_VOID_PTR, &workspace)?;
        pack.finalize()?;
        keep_while_captured(&self.parts);
        keep_while_captured(&handle.state);
        let (raw, plan) = (handle.state.raw.0, parts.plan.raw());
        // SAFETY: the handle, the plan and the pack are alive, and this thread has the handle and
        // the plan for itself. The memory is as the caller promises.
        unsafe { dnn!(&owner.functions, cudnnBackendExecute(raw, plan, pack.raw())) }
    }
}
