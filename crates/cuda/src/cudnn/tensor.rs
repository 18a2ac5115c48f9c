//! Tensors of graphs.

use std::sync::Arc;

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind, cudnnDataType_t as Data,
};

use super::descriptor::{Descriptor, Owner};
use crate::Result;
use crate::numerics::ALIGNMENT;

/// Tensor with four dimensions.
#[derive(Clone, Copy)]
pub(super) struct Tensor {
    pub(super) data: Data,
    pub(super) dimensions: [i64; 4],
    /// Distances of neighbors along each dimension, in elements.
    pub(super) strides: [i64; 4],
    pub(super) identifier: i64,
    pub(super) place: Place,
}

/// Place of a tensor's elements.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Place {
    /// Memory of the device.
    Device,
    /// Host memory, which is read when a plan is enqueued.
    Host,
    /// None: the elements are passed from one operation to another.
    Virtual,
}

impl Tensor {
    /// Returns the finalized descriptor of the tensor.
    pub(super) fn descriptor(&self, owner: &Arc<Owner>) -> Result<Descriptor> {
        let tensor = Descriptor::new(owner, Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?;
        tensor.set(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, Type::CUDNN_TYPE_DATA_TYPE, &[self.data])?;
        tensor.set(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, Type::CUDNN_TYPE_INT64, &self.dimensions)?;
        tensor.set(Name::CUDNN_ATTR_TENSOR_STRIDES, Type::CUDNN_TYPE_INT64, &self.strides)?;
        tensor.set(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, Type::CUDNN_TYPE_INT64, &[self.identifier])?;
        let alignment = [if self.place == Place::Host { 4 } else { ALIGNMENT.cast_signed() }];
        tensor.set(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, Type::CUDNN_TYPE_INT64, &alignment)?;
        match self.place {
            Place::Device => {}
            Place::Host => {
                tensor.set(Name::CUDNN_ATTR_TENSOR_IS_BY_VALUE, Type::CUDNN_TYPE_BOOLEAN, &[true])?;
            }
            Place::Virtual => {
                tensor.set(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, Type::CUDNN_TYPE_BOOLEAN, &[true])?;
            }
        }
        tensor.finalize()?;
        Ok(tensor)
    }
}
