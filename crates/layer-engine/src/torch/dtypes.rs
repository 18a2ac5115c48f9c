//! Data types of a kernel. With `Precision::Bf16` the factors of products have 16 bits and the
//! buffers 32. Functions fail with the error of libtorch if a conversion fails.

use tch::{Device, Kind, Tensor};

use super::Failure;

/// Data types of a kernel's tensors, and their device.
#[derive(Debug, Clone, Copy)]
pub(super) struct DTypes {
    /// Type of the buffers.
    pub(super) kind: Kind,
    /// Type of the factors of products.
    pub(super) compute: Kind,
    /// Device of all tensors of the kernel.
    pub(super) device: Device,
}

impl DTypes {
    /// Returns whether products use another type than the buffers.
    pub(super) fn converts(self) -> bool {
        self.kind != self.compute
    }

    /// Converts a tensor to the type of the factors of products. Without a copy if it already has
    /// this type.
    pub(super) fn narrow(self, tensor: &Tensor) -> Result<Tensor, Failure> {
        Ok(tensor.f_to_kind(self.compute)?)
    }

    /// Converts the result of a product to the type of the buffers. Without a copy if it already
    /// has this type.
    pub(super) fn widen(self, tensor: &Tensor) -> Result<Tensor, Failure> {
        Ok(tensor.f_to_kind(self.kind)?)
    }
}
