use tch::{Device, Kind, Tensor};

use super::Failure;

/// Data types of a kernel, and its device.
#[derive(Debug, Clone, Copy)]
pub(super) struct DTypes {
    /// Type of the buffers.
    pub(super) kind: Kind,
    /// Type of the factors of products.
    pub(super) compute: Kind,
    pub(super) device: Device,
}

impl DTypes {
    /// Returns whether products use another type than the buffers.
    pub(super) fn converts(self) -> bool {
        self.kind != self.compute
    }

    /// Converts a tensor to the type of factors.
    pub(super) fn narrow(self, tensor: &Tensor) -> Result<Tensor, Failure> {
        Ok(tensor.f_to_kind(self.compute)?)
    }

    /// Converts a product to the type of the buffers.
    pub(super) fn widen(self, tensor: &Tensor) -> Result<Tensor, Failure> {
        Ok(tensor.f_to_kind(self.kind)?)
    }
}
