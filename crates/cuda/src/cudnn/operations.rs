//! Graphs under construction.

use std::sync::Arc;

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind, cudnnDataType_t as Data, cudnnPointwiseMode_t,
    cudnnReduceTensorOp_t,
};

use super::descriptor::{Descriptor, Owner};
use super::graph::Graph;
use super::tensor::{Place, Tensor};
use crate::Result;

/// First identifier of virtual tensors.
const FIRST_VIRTUAL: i64 = 1000;

/// Tensor of a graph under construction: its position among the parts.
#[derive(Clone, Copy)]
pub(super) struct Part(usize);

/// Operations of a graph under construction, and what they are made from. Each function adds an
/// operation and returns its result, `to`.
pub(super) struct Operations<'o> {
    owner: &'o Arc<Owner>,
    nodes: Vec<Descriptor>,
    parts: Vec<Descriptor>,
}

impl<'o> Operations<'o> {
    /// Creates a graph without operations.
    pub(super) fn new(owner: &'o Arc<Owner>) -> Self {
        Self { owner, nodes: Vec::new(), parts: Vec::new() }
    }

    /// Adds a tensor.
    pub(super) fn tensor(&mut self, tensor: &Tensor) -> Result<Part> {
        self.parts.push(tensor.descriptor(self.owner)?);
        Ok(Part(self.parts.len() - 1))
    }

    /// Adds a virtual tensor with these dimensions and strides.
    pub(super) fn virtual_tensor(&mut self, data: Data, layout: ([i64; 4], [i64; 4])) -> Result<Part> {
        let (dimensions, strides) = layout;
        let identifier = FIRST_VIRTUAL + (self.parts.len() as u64).cast_signed();
        self.tensor(&Tensor { data, dimensions, strides, identifier, place: Place::Virtual })
    }

    /// Adds the products of matrices in the last two dimensions, with sums in f32.
    pub(super) fn product(&mut self, [a, b]: [Part; 2], to: Part) -> Result<Part> {
        let rule = Descriptor::new(self.owner, Kind::CUDNN_BACKEND_MATMUL_DESCRIPTOR)?;
        let element = [Data::CUDNN_DATA_FLOAT];
        rule.set(Name::CUDNN_ATTR_MATMUL_COMP_TYPE, Type::CUDNN_TYPE_DATA_TYPE, &element)?;
        rule.finalize()?;
        let tensors = [
            (Name::CUDNN_ATTR_OPERATION_MATMUL_ADESC, a),
            (Name::CUDNN_ATTR_OPERATION_MATMUL_BDESC, b),
            (Name::CUDNN_ATTR_OPERATION_MATMUL_CDESC, to),
        ];
        let rule = Some((Name::CUDNN_ATTR_OPERATION_MATMUL_DESC, rule));
        self.add(Kind::CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, rule, &tensors).map(|()| to)
    }

    /// Adds a function of up to three tensors, element by element, computed as `data`. An input
    /// with a dimension of 1 is repeated along it.
    pub(super) fn pointwise(
        &mut self,
        mode: cudnnPointwiseMode_t,
        data: Data,
        inputs: &[Part],
        to: Part,
    ) -> Result<Part> {
        self.pointwise_along(None, mode, data, inputs, to)
    }

    /// Adds the index of each element of a tensor along an axis.
    pub(super) fn index(&mut self, axis: i64, of: Part, to: Part) -> Result<Part> {
        let mode = cudnnPointwiseMode_t::CUDNN_POINTWISE_GEN_INDEX;
        self.pointwise_along(Some(axis), mode, Data::CUDNN_DATA_INT32, &[of], to)
    }

    fn pointwise_along(
        &mut self,
        axis: Option<i64>,
        mode: cudnnPointwiseMode_t,
        data: Data,
        inputs: &[Part],
        to: Part,
    ) -> Result<Part> {
        let rule = Descriptor::new(self.owner, Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?;
        rule.set(Name::CUDNN_ATTR_POINTWISE_MODE, Type::CUDNN_TYPE_POINTWISE_MODE, &[mode])?;
        rule.set(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, Type::CUDNN_TYPE_DATA_TYPE, &[data])?;
        if let Some(axis) = axis {
            rule.set(Name::CUDNN_ATTR_POINTWISE_AXIS, Type::CUDNN_TYPE_INT64, &[axis])?;
        }
        rule.finalize()?;
        let names = [
            Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
            Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
            Name::CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
        ];
        let mut tensors: Vec<_> = names.into_iter().zip(inputs.iter().copied()).collect();
        tensors.push((Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to));
        let rule = Some((Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, rule));
        self.add(Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, rule, &tensors).map(|()| to)
    }

    /// Adds a reduction in f32 along the dimensions that are 1 in the result.
    pub(super) fn reduction(&mut self, by: cudnnReduceTensorOp_t, x: Part, to: Part) -> Result<Part> {
        let rule = Descriptor::new(self.owner, Kind::CUDNN_BACKEND_REDUCTION_DESCRIPTOR)?;
        rule.set(Name::CUDNN_ATTR_REDUCTION_OPERATOR, Type::CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, &[by])?;
        let element = [Data::CUDNN_DATA_FLOAT];
        rule.set(Name::CUDNN_ATTR_REDUCTION_COMP_TYPE, Type::CUDNN_TYPE_DATA_TYPE, &element)?;
        rule.finalize()?;
        let tensors = [
            (Name::CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x),
            (Name::CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to),
        ];
        let rule = Some((Name::CUDNN_ATTR_OPERATION_REDUCTION_DESC, rule));
        self.add(Kind::CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, rule, &tensors).map(|()| to)
    }

    /// Adds a view of a tensor with the dimensions and strides of the result.
    pub(super) fn reshape(&mut self, x: Part, to: Part) -> Result<Part> {
        let tensors =
            [(Name::CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x), (Name::CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to)];
        self.add(Kind::CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, None, &tensors).map(|()| to)
    }

    /// Adds an operation, with the descriptor of its rule and its tensors.
    fn add(&mut self, kind: Kind, rule: Option<(Name, Descriptor)>, tensors: &[(Name, Part)]) -> Result<()> {
        let operation = Descriptor::new(self.owner, kind)?;
        for (name, tensor) in tensors {
            operation.set_descriptors(*name, &[&self.parts[tensor.0]])?;
        }
        if let Some((name, rule)) = rule {
            operation.set_descriptors(name, &[&rule])?;
            self.parts.push(rule);
        }
        operation.finalize()?;
        self.nodes.push(operation);
        Ok(())
    }

    /// Returns the finalized graph. `properties` are those of the device where there is no handle.
    pub(super) fn finish(self, properties: Option<Descriptor>) -> Result<Graph> {
        Graph::new(self.owner, self.nodes, self.parts, properties)
    }
}
