//! Chains of elementwise operations, compared with scalar code and with the separate kernels.

use layer_engine::{
    ChainNorm, CudaEngine, CudaKernel, CudaQueue, ElementwiseChain, Engine, EngineError, ImageLayout,
    KernelSpec, Pass, Precision, Rectifier, Role, Shard, Signature, Storage,
};
use layer_graph::{BatchNorm, Layer, LayerKind, Shape};

use super::{ORDERS, on_device};
use crate::any_engine::{CONTEXT, numbers};
use crate::single_layer::layer;

const SAMPLES: usize = 3;

/// Batch normalisations with one and with several slices of a channel's sums, in both orders of the
/// elements of images; with channels last also with several blocks of channels.
fn norms() -> [(Layer, ImageLayout); 5] {
    use ImageLayout::{ChannelsFirst, ChannelsLast};
    [
        (Shape::image(3, 9, 11), ChannelsFirst),
        (Shape::image(2, 23, 24), ChannelsFirst),
        (Shape::image(3, 2, 5), ChannelsLast),
        (Shape::image(2, 23, 24), ChannelsLast),
        (Shape::image(36, 6, 7), ChannelsLast),
    ]
    .map(|(shape, layout)| (layer(BatchNorm::default(), &[shape]), layout))
}

/// Number formats, and precisions with layers whose outputs have them.
const FORMATS: [(Storage, Precision); 2] =
    [(Storage::Scalar, Precision::F32), (Storage::Bf16, Precision::Bf16)];

/// Runs a kernel on operands with these scalars. `written` has the initial scalars of those that
/// are written. Returns their final scalars.
fn run(
    engine: &CudaEngine,
    kernel: &mut CudaKernel,
    reads: &[Vec<f32>],
    written: &[Vec<f32>],
    queue: &mut CudaQueue,
) -> Vec<Vec<f32>> {
    assert_eq!(kernel.launches(), 1);
    let mut operands = |scalars: &[Vec<f32>]| -> Vec<_> {
        let upload = |host: &Vec<f32>| {
            let mut buffer = engine.allocate(host.len()).unwrap();
            engine.upload(host, &mut buffer, queue).unwrap();
            buffer
        };
        scalars.iter().map(upload).collect()
    };
    let (read, mut results) = (operands(reads), operands(written));
    let read: Vec<_> = read.iter().collect();
    let mut writes: Vec<_> = results.iter_mut().collect();
    engine.enqueue(kernel, &read, &mut writes, &CONTEXT, queue).unwrap();
    let download = |(buffer, scalars): (_, &Vec<f32>)| {
        let mut host = vec![0.0; scalars.len()];
        engine.download(buffer, &mut host, queue).unwrap();
        host
    };
    results.iter().zip(written).map(download).collect()
}

/// Returns the bits of scalars, which may be pairs of elements.
fn bits(operands: &[&[Vec<f32>]]) -> Vec<Vec<u32>> {
    let bits = |scalars: &Vec<f32>| scalars.iter().map(|scalar| scalar.to_bits()).collect();
    operands.iter().flat_map(|operands| operands.iter().map(bits)).collect()
}

/// Returns the scalars of pseudorandom elements.
fn scalars(storage: Storage, salt: u64, elements: usize) -> Vec<f32> {
    let values: Vec<f32> = numbers(salt, elements).into_iter().map(|value| value as f32).collect();
    storage.pack(&values).into_owned()
}

/// Returns the scalars of operands of these roles with pseudorandom elements. The sums of squares
/// and the numbers of values of [`Role::Moments`] are possible ones.
fn operands(layer: &Layer, precision: Precision, roles: &[Role]) -> Vec<Vec<f32>> {
    let values = |(salt, role): (u64, &Role)| {
        let mut values = scalars(role.storage(layer, precision), salt, role.elements(layer, SAMPLES));
        if matches!(role, Role::Moments | Role::GradientMoments) {
            let count = (SAMPLES * layer.output_shape().elements() / (values.len() / 2)) as f32;
            values = values.into_iter().map(|value| count * (0.5 + 0.25 * value)).collect();
            values.pop();
            values.push(count);
        }
        values
    };
    (1..).zip(roles).map(values).collect()
}

/// Returns the result of a chain: of the first `terms` operands the sum, by elements, rectified.
/// The next operand is the output of the rectifier's forward pass.
pub(super) fn chained(operands: &[Vec<f32>], terms: usize, rectifier: Option<Rectifier>) -> Vec<f32> {
    let value = |i: usize| {
        let sum = operands[1..terms].iter().fold(operands[0][i], |sum, term| sum + term[i]);
        let passes = match rectifier {
            None => true,
            Some(Rectifier::Forward) => sum >= 0.0,
            Some(Rectifier::Backward) => operands[terms][i] > 0.0,
        };
        if passes { sum } else { 0.0 }
    };
    (0..operands[0].len()).map(value).collect()
}

#[test]
fn chains_match_scalar_code() {
    let elements = 700;
    on_device(ORDERS[0], |engine| {
        let mut queue = engine.queue().unwrap();
        for terms in 1..=4 {
            for rectifier in [None, Some(Rectifier::Forward), Some(Rectifier::Backward)] {
                for copies in [1, 4] {
                    let storage = Storage::Scalar;
                    let given: Vec<_> = (0..5).map(|salt| scalars(storage, salt, elements)).collect();
                    let expected = chained(&given, terms, rectifier);
                    let chain = ElementwiseChain { elements, storage, terms, rectifier, copies, norm: None };
                    let mut kernel = engine.prepare_chain(&chain).unwrap();
                    let reads = terms + usize::from(rectifier == Some(Rectifier::Backward));
                    let got = run(
                        engine,
                        &mut kernel,
                        &given[..reads],
                        &vec![vec![0.0; elements]; copies],
                        &mut queue,
                    );
                    assert!(got.iter().all(|written| *written == expected), "{chain:?}");
                }
            }
        }
    });
}

/// A normalisation with the sum and the rectifier after it has the bits of three kernels.
#[test]
fn chains_after_a_normalisation_match_separate_kernels() {
    let passes = [Pass::Forward, Pass::Recompute];
    let of_layer =
        |layer| passes.into_iter().flat_map(move |pass| FORMATS.map(|format| (layer, pass, format)));
    for ((layer, layout), pass, (storage, precision)) in norms().iter().flat_map(of_layer) {
        let signature = Signature::of(layer, pass).unwrap();
        let [reads, written] =
            [&signature.reads, &signature.writes].map(|roles| operands(layer, precision, roles));
        let elements = Role::Output.elements(layer, SAMPLES);
        let other = scalars(storage, 70, elements);
        on_device(ORDERS[1], |engine| {
            let engine = &engine.clone().with_image_layout(*layout);
            let mut queue = engine.queue().unwrap();
            let spec = KernelSpec::Layer { layer, pass, shard: Shard::whole(SAMPLES) };
            let mut kernel = engine.prepare(&spec, precision).unwrap();
            let normalised = run(engine, &mut kernel, &reads, &written, &mut queue);
            for (terms, rectifier) in
                [(0, Some(Rectifier::Forward)), (1, None), (1, Some(Rectifier::Forward))]
            {
                let added = vec![other.clone(); terms];
                let norm = None;
                let chain =
                    ElementwiseChain { elements, storage, terms: terms + 1, rectifier, copies: 1, norm };
                let mut kernel = engine.prepare_chain(&chain).unwrap();
                let inputs = [&normalised[..1], &added].concat();
                let expected = run(engine, &mut kernel, &inputs, &written[..1], &mut queue);

                let norm = Some(ChainNorm { layer, pass, samples: SAMPLES });
                let chain = ElementwiseChain { terms, norm, ..chain };
                let mut kernel = engine.prepare_chain(&chain).unwrap();
                let inputs = [&reads[..], &added].concat();
                let outputs = [&written[1..], &written[..1]].concat();
                let got = run(engine, &mut kernel, &inputs, &outputs, &mut queue);
                assert_eq!(bits(&[&got]), bits(&[&normalised[1..], &expected]), "{chain:?}");
            }
        });
    }
}

/// The moments of a gradient with the sum, the rectifier and the copies before them have the bits
/// of separate kernels, in any order of the blocks. A second run finds the counters of slices as
/// the first one.
#[test]
fn chains_before_moments_match_separate_kernels() {
    let pass = Pass::BackwardMoments;
    let of_layer =
        |layer| ORDERS.into_iter().flat_map(move |order| FORMATS.map(|format| (layer, order, format)));
    for ((layer, layout), order, (storage, precision)) in norms().iter().flat_map(of_layer) {
        let norm = ChainNorm { layer, pass, samples: SAMPLES };
        let [all, others] = [Signature::of(layer, pass).unwrap(), norm.signature().unwrap()];
        let [reads, written] = [&others.reads, &others.writes].map(|roles| operands(layer, precision, roles));
        let elements = Role::Output.elements(layer, SAMPLES);
        assert_eq!(all.reads[..2], others.reads);
        on_device(order, |engine| {
            let engine = &engine.clone().with_image_layout(*layout);
            let mut queue = engine.queue().unwrap();
            for (terms, rectifier, copies) in
                [(1, Some(Rectifier::Backward), 1), (2, Some(Rectifier::Backward), 2), (4, None, 4)]
            {
                let given: Vec<_> = (80..85).map(|salt| scalars(storage, salt, elements)).collect();
                let given = &given[..terms + usize::from(rectifier.is_some())];
                let empty = vec![vec![0.0; storage.scalars(elements)]; copies];
                let chain = ElementwiseChain { elements, storage, terms, rectifier, copies, norm: None };
                let mut kernel = engine.prepare_chain(&chain).unwrap();
                let gradients = run(engine, &mut kernel, given, &empty, &mut queue);
                let spec = KernelSpec::Layer { layer, pass, shard: Shard::whole(SAMPLES) };
                let mut kernel = engine.prepare(&spec, precision).unwrap();
                let inputs = [&reads[..], &gradients[..1]].concat();
                let moments = run(engine, &mut kernel, &inputs, &written, &mut queue);

                let chain = ElementwiseChain { norm: Some(norm), ..chain };
                let mut kernel = engine.prepare_chain(&chain).unwrap();
                let (inputs, outputs) = ([&reads[..], given].concat(), [&written[..], &empty].concat());
                for _ in 0..2 {
                    let got = run(engine, &mut kernel, &inputs, &outputs, &mut queue);
                    assert_eq!(bits(&[&got]), bits(&[&moments, &gradients]), "{chain:?}");
                }
            }
        });
    }
}

#[test]
fn impossible_chains_are_errors() {
    on_device(ORDERS[0], |engine| {
        let ([(batch_norm, _), ..], storage) = (norms(), Storage::Scalar);
        let elements = SAMPLES * batch_norm.output_shape().elements();
        let rectifier = layer(LayerKind::Relu, &[Shape::image(3, 9, 11)]);
        let norm = |layer, pass| Some(ChainNorm { layer, pass, samples: SAMPLES });
        let (forward, moments) = (norm(&batch_norm, Pass::Forward), norm(&batch_norm, Pass::BackwardMoments));
        for (elements, terms, copies, norm) in [
            (elements, 0, 1, None),
            (elements, 5, 1, None),
            (elements, 1, 0, None),
            (elements, 1, 5, None),
            (elements, 2, 1, forward),
            (elements, 1, 2, forward),
            (elements, 0, 1, moments),
            (elements, 1, 5, moments),
            (elements + 1, 1, 1, moments),
        ] {
            let chain = ElementwiseChain { elements, storage, terms, rectifier: None, copies, norm };
            assert!(matches!(engine.prepare_chain(&chain), Err(EngineError::Library { .. })), "{chain:?}");
        }
        let chain =
            |norm, rectifier| ElementwiseChain { elements, storage, terms: 1, rectifier, copies: 1, norm };
        let back = Some(Rectifier::Backward);
        assert!(matches!(engine.prepare_chain(&chain(forward, back)), Err(EngineError::Library { .. })));
        for unfit in [norm(&batch_norm, Pass::Backward), norm(&rectifier, Pass::Forward)] {
            let result = engine.prepare_chain(&chain(unfit, None));
            assert!(matches!(result, Err(EngineError::Unsupported { .. })), "{unfit:?}");
        }
    });
}
