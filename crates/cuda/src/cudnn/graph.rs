//! Graphs of operations.

use std::sync::Arc;

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind, cudnnConvolutionMode_t, cudnnDataType_t,
};

use super::descriptor::{Descriptor, Owner};
use super::shape::signed;
use super::tensor::{Place, Tensor};
use super::{ConvolutionShape, Direction};
use crate::{Numerics, Result};

/// Identifiers of input, weights and output, or of their gradients.
pub(super) const IDENTIFIERS: [i64; 3] = [1, 2, 3];

/// Graph of operations, and what it was made from. Fields are dropped in order.
pub(super) struct Graph {
    pub(super) operations: Descriptor,
    /// Those of the device where there is no handle.
    pub(super) properties: Option<Descriptor>,
    _nodes: Vec<Descriptor>,
    _parts: Vec<Descriptor>,
}

impl Graph {
    /// Creates the finalized graph of a convolution of tensors with these dimensions.
    pub(super) fn of_convolution(
        owner: &Arc<Owner>,
        shape: &ConvolutionShape,
        numerics: Numerics,
        tensors: [[i64; 4]; 3],
        properties: Option<Descriptor>,
    ) -> Result<Self> {
        let element = match numerics {
            Numerics::F32 | Numerics::Tf32 => cudnnDataType_t::CUDNN_DATA_FLOAT,
            Numerics::Bf16 => cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        };
        let mut operands = Vec::with_capacity(3);
        for (dimensions, identifier) in tensors.into_iter().zip(IDENTIFIERS) {
            let strides = shape.layout.strides(dimensions);
            let tensor = Tensor { data: element, dimensions, strides, identifier, place: Place::Device };
            operands.push(tensor.descriptor(owner)?);
        }
        let convolution = convolution(owner, shape)?;
        let (kind, [by, x, w, y], [alpha, beta]) = operation(shape.direction);
        let operation = Descriptor::new(owner, kind)?;
        for (name, descriptor) in [by, x, w, y].into_iter().zip([&convolution].into_iter().chain(&operands)) {
            operation.set_descriptors(name, &[descriptor])?;
        }
        operation.set(alpha, Type::CUDNN_TYPE_FLOAT, &[1.0_f32])?;
        operation.set(beta, Type::CUDNN_TYPE_FLOAT, &[0.0_f32])?;
        operation.finalize()?;
        let mut parts = vec![convolution];
        parts.extend(operands);
        Self::new(owner, vec![operation], parts, properties)
    }

    /// Creates the finalized graph of operations, which were made from `parts`.
    pub(super) fn new(
        owner: &Arc<Owner>,
        operations: Vec<Descriptor>,
        parts: Vec<Descriptor>,
        properties: Option<Descriptor>,
    ) -> Result<Self> {
        let graph = Descriptor::new(owner, Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
        let list: Vec<_> = operations.iter().collect();
        graph.set_descriptors(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &list)?;
        if let Some(handle) = &owner.handle {
            graph.set(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, Type::CUDNN_TYPE_HANDLE, &[handle.raw.0])?;
        }
        graph.finalize()?;
        Ok(Self { operations: graph, properties, _nodes: operations, _parts: parts })
    }
}

fn convolution(owner: &Arc<Owner>, shape: &ConvolutionShape) -> Result<Descriptor> {
    let descriptor = Descriptor::new(owner, Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?;
    let element = [cudnnDataType_t::CUDNN_DATA_FLOAT];
    descriptor.set(Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, Type::CUDNN_TYPE_DATA_TYPE, &element)?;
    let mode = [cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION];
    descriptor.set(Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE, Type::CUDNN_TYPE_CONVOLUTION_MODE, &mode)?;
    for (name, values) in [
        (Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, shape.padding),
        (Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, shape.padding),
        (Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, shape.stride),
        (Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, shape.dilation),
    ] {
        descriptor.set(name, Type::CUDNN_TYPE_INT64, &values.map(signed))?;
    }
    descriptor.set(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, Type::CUDNN_TYPE_INT64, &[2_i64])?;
    descriptor.finalize()?;
    Ok(descriptor)
}

/// Returns the kind of the operation, its attributes for the convolution, input, weights and output
/// or their gradients, and those for the factors of the result and of its former value.
fn operation(direction: Direction) -> (Kind, [Name; 4], [Name; 2]) {
    match direction {
        Direction::Forward => (
            Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            [
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
            ],
            [
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
            ],
        ),
        Direction::InputGradient => (
            Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            [
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
            ],
            [
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
            ],
        ),
        Direction::WeightGradient => (
            Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            [
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
            ],
            [
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
            ],
        ),
    }
}
