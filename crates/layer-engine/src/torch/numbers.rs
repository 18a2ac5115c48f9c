use tch::{Device, Kind, Tensor};

use super::Failure;

/// The numbers that a kernel works with, and where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    /// Of the buffers.
    pub(super) kind: Kind,
    /// Of the factors of products.
    pub(super) compute: Kind,
    pub(super) device: Device,
}

impl Numbers {
    /// Whether products are taken of other numbers than the buffers hold.
    pub(super) fn converts(self) -> bool {
        self.kind != self.compute
    }

    /// A tensor as a factor.
    pub(super) fn narrow(self, tensor: &Tensor) -> Result<Tensor, Failure> {
        Ok(tensor.f_to_kind(self.compute)?)
    }

    /// A product as the buffers hold it.
    pub(super) fn widen(self, tensor: &Tensor) -> Result<Tensor, Failure> {
        Ok(tensor.f_to_kind(self.kind)?)
    }
}
