//! From the description of a kernel to the operation that does it.

use layer_graph::{Layer, LayerKind};

use super::avg_pool::AvgPool;
use super::batch_norm::{NormPass, Normalisation};
use super::concat::{Join, Part};
use super::conv::{ConvPass, Convolution};
use super::dropout::{DropoutBackward, DropoutForward};
use super::elementwise::{Copies, GeluBackward, GeluForward, ReluBackward, ReluForward, SumOf};
use super::im2col::Geometry;
use super::linear::{LinearLayer, LinearPass};
use super::loss::{CrossEntropy, LossPass};
use super::max_pool::{MaxPool, MaxPoolPass};
use super::operation::{CpuKernel, Operation, mismatch};
use super::optimizer::{SgdStep, SquaredNorm};
use super::workers::Workers;
use super::{NAME, Real};
use crate::{EngineError, KernelSpec, Pass, Role, Shard, Signature};

/// The kernel of this description, with its workspace.
pub(super) fn kernel<T: Real>(spec: &KernelSpec<'_>, workers: &Workers) -> Result<CpuKernel<T>, EngineError> {
    match spec {
        KernelSpec::Layer { layer, pass, shard } => {
            let unsupported = || EngineError::Unsupported {
                engine: NAME,
                layer: layer.name().into(),
                kind: layer.kind().label(),
                pass: *pass,
            };
            let signature = Signature::of(layer, *pass).ok_or_else(unsupported)?;
            let operation = operation(layer, *pass, *shard, workers).ok_or_else(unsupported)?;
            let lengths =
                |roles: &[Role]| roles.iter().map(|role| role.elements(layer, shard.samples)).collect();
            let name = format!("{} {pass:?}", layer.name());
            Ok(CpuKernel::new(name, lengths(&signature.reads), lengths(&signature.writes), operation))
        }
        &KernelSpec::Sum { terms, elements } => {
            if terms == 0 {
                return Err(mismatch("Sum", "reads", 1, 0));
            }
            let operation = Box::new(SumOf(workers.clone()));
            Ok(CpuKernel::new("Sum".into(), vec![elements; terms], vec![elements], operation))
        }
        KernelSpec::SquaredNorm { elements } => {
            Ok(CpuKernel::new("SquaredNorm".into(), elements.clone(), vec![1], Box::new(SquaredNorm)))
        }
        &KernelSpec::Sgd { elements, rule } => {
            let reads = std::iter::once(elements).chain(rule.clip_norm.map(|_| 1)).collect();
            let operation = Box::new(SgdStep { rule, workers: workers.clone() });
            Ok(CpuKernel::new("Sgd".into(), reads, vec![elements; 2], operation))
        }
    }
}

/// What a layer's pass does; `None` where there is no such pass.
fn operation<T: Real>(
    layer: &Layer,
    pass: Pass,
    shard: Shard,
    workers: &Workers,
) -> Option<Box<dyn Operation<T>>> {
    let samples = shard.samples;
    let backward = pass == Pass::Backward;
    let workers_of = || workers.clone();
    let parts = || layer.input_shapes().iter().map(layer_graph::Shape::elements).collect();
    Some(match layer.kind() {
        LayerKind::Conv2d(conv) => {
            let pass = match pass {
                Pass::Backward => ConvPass::Backward,
                Pass::BackwardParameters => ConvPass::BackwardParameters,
                _ => ConvPass::Forward,
            };
            Box::new(Convolution::new(Geometry::new(layer, conv)?, conv.bias, samples, pass, workers))
        }
        LayerKind::Linear(linear) => {
            let pass = match pass {
                Pass::Backward => LinearPass::Backward,
                Pass::BackwardParameters => LinearPass::BackwardParameters,
                _ => LinearPass::Forward,
            };
            let inputs = layer.input_shapes().first()?.elements();
            let outputs = linear.out_features;
            Box::new(LinearLayer { inputs, outputs, samples, pass, workers: workers_of() })
        }
        LayerKind::BatchNorm(rule) => {
            let pass = match pass {
                Pass::ForwardMoments => NormPass::ForwardMoments,
                Pass::Forward => NormPass::Forward,
                Pass::Infer => NormPass::Infer,
                Pass::BackwardMoments => NormPass::BackwardMoments,
                Pass::Backward => NormPass::Backward,
                Pass::BackwardParameters => return None,
            };
            Box::new(Normalisation::new(layer, rule, samples, pass, workers)?)
        }
        LayerKind::Relu if backward => Box::new(ReluBackward(workers_of())),
        LayerKind::Relu => Box::new(ReluForward(workers_of())),
        LayerKind::GeluTanh if backward => Box::new(GeluBackward(workers_of())),
        LayerKind::GeluTanh => Box::new(GeluForward(workers_of())),
        LayerKind::MaxPool2d(pool) => {
            let pass = match pass {
                Pass::Backward => MaxPoolPass::Backward,
                Pass::Infer => MaxPoolPass::Infer,
                _ => MaxPoolPass::Forward,
            };
            Box::new(MaxPool::new(layer, pool, samples, pass, workers)?)
        }
        LayerKind::AvgPool2d(pool) => Box::new(AvgPool::fixed(layer, pool, backward, workers)?),
        LayerKind::AdaptiveAvgPool2d(_) => Box::new(AvgPool::adaptive(layer, backward, workers)?),
        LayerKind::Flatten => Box::new(Copies(workers_of())),
        LayerKind::Concat if backward => Box::new(Part { parts: parts() }),
        LayerKind::Concat => Box::new(Join { parts: parts() }),
        LayerKind::Add if backward => Box::new(Copies(workers_of())),
        LayerKind::Add => Box::new(SumOf(workers_of())),
        LayerKind::Dropout(_) if backward => Box::new(DropoutBackward),
        LayerKind::Dropout(_) if pass == Pass::Infer => Box::new(Copies(workers_of())),
        LayerKind::Dropout(dropout) => Box::new(DropoutForward {
            layer: layer.name().into(),
            probability: dropout.probability,
            shard,
            elements: layer.output_shape().elements(),
            workers: workers_of(),
        }),
        LayerKind::SoftmaxCrossEntropy => {
            let pass = match pass {
                Pass::Backward => LossPass::Backward,
                Pass::Infer => LossPass::Infer,
                _ => LossPass::Forward,
            };
            let classes = layer.input_shapes().first()?.elements();
            Box::new(CrossEntropy { layer: layer.name().into(), classes, pass })
        }
        _ => return None,
    })
}
