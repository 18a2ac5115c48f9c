//! Attention by cuDNN.
#![allow(unsafe_code)]

use cuda::{
    Address, Attention, AttentionPass, AttentionShape, Buffer, Context, Cudnn, CudnnHandle, Determinism,
    DeviceProperties, Error, Priority, Result, Stream, Target,
};
use cuda_emulator::Emulator;

use super::on_emulated_device;
use super::products::{Number, numbers};

const WORKSPACE: usize = 1 << 24;

const SHAPE: AttentionShape = AttentionShape {
    samples: 2,
    positions: 7,
    heads: 3,
    width: 8,
    causal: false,
    pass: AttentionPass::Forward,
};

/// Opens the emulated library.
fn library(context: &Context) -> Result<Cudnn> {
    assert!(context.is_emulated());
    Cudnn::open_first_of(&[Emulator::library().unwrap()])
}

/// Output, statistics and gradient of the input, for each element of the output gradient.
struct Expected {
    output: Vec<f64>,
    statistics: Vec<f64>,
    gradient: Vec<f64>,
}

/// Returns the sums of the definition in f64.
fn expected(shape: &AttentionShape, x: &[f32], dy: &[f32]) -> Expected {
    let AttentionShape { samples, positions, heads, width, causal, .. } = *shape;
    let features = heads * width;
    let mut found = Expected {
        output: vec![0.0; dy.len()],
        statistics: vec![0.0; samples * heads * positions],
        gradient: vec![0.0; x.len()],
    };
    let scale = 1.0 / (width as f64).sqrt();
    for number in 0..samples * heads {
        let (sample, head) = (number / heads, number % heads);
        let packed = |part: usize, position: usize, feature: usize| {
            ((sample * positions + position) * 3 + part) * features + head * width + feature
        };
        let of = |position: usize, feature: usize| {
            (sample * positions + position) * features + head * width + feature
        };
        let x = |part, position, feature| f64::from(x[packed(part, position, feature)]);
        for query in 0..positions {
            let keys = if causal { query + 1 } else { positions };
            let dot = |key| (0..width).map(|i| x(0, query, i) * x(1, key, i)).sum::<f64>() * scale;
            let sum: f64 = (0..keys).map(|key| dot(key).exp()).sum();
            found.statistics[number * positions + query] = sum.ln();
            let weights: Vec<f64> = (0..keys).map(|key| dot(key).exp() / sum).collect();
            for i in 0..width {
                found.output[of(query, i)] = (0..keys).map(|key| weights[key] * x(2, key, i)).sum();
            }
            let dy = |i| f64::from(dy[of(query, i)]);
            let slopes: Vec<f64> =
                (0..keys).map(|key| (0..width).map(|i| dy(i) * x(2, key, i)).sum()).collect();
            let mean: f64 = weights.iter().zip(&slopes).map(|(weight, slope)| weight * slope).sum();
            for key in 0..keys {
                let slope = weights[key] * (slopes[key] - mean) * scale;
                for i in 0..width {
                    found.gradient[packed(0, query, i)] += slope * x(1, key, i);
                    found.gradient[packed(1, key, i)] += slope * x(0, query, i);
                    found.gradient[packed(2, key, i)] += weights[key] * dy(i);
                }
            }
        }
    }
    found
}

/// Operands on a device: input, output, statistics, gradients of output and input.
struct Operands {
    elements: [Buffer<u16>; 4],
    statistics: Buffer<f32>,
    workspace: Buffer<u8>,
}

impl Operands {
    fn new(context: &Context, shape: &AttentionShape, x: &[f32], dy: &[f32]) -> Result<Self> {
        let packed = |numbers: &[f32]| {
            let elements: Vec<u16> = numbers.iter().map(|number| u16::of(*number)).collect();
            Buffer::from_slice(context, &elements)
        };
        let (x, y, dy, dx) =
            (packed(x)?, Buffer::zeros(context, dy.len())?, packed(dy)?, Buffer::zeros(context, x.len())?);
        let rows = shape.samples * shape.heads * shape.positions;
        let statistics = Buffer::zeros(context, rows)?;
        let workspace = Buffer::uninitialized(context, WORKSPACE)?;
        Ok(Self { elements: [x, y, dy, dx], statistics, workspace })
    }

    fn enqueue(&self, handle: &mut CudnnHandle, attention: &Attention) -> Result<()> {
        let [x, y, dy, dx] = self.elements.each_ref().map(Address::from);
        let all = [x, y, Address::from(&self.statistics), dy, dx];
        let count = if attention.shape().pass == AttentionPass::Forward { 3 } else { 5 };
        // SAFETY: the buffers have the elements of the shape, and do not overlap.
        unsafe { attention.enqueue(handle, &all[..count], &self.workspace) }
    }
}

fn values(elements: Vec<u16>) -> Vec<f64> {
    elements.into_iter().map(Number::value).collect()
}

fn check(case: &str, computed: &[f64], expected: &[f64]) {
    let largest = expected.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
    for (computed, expected) in computed.iter().zip(expected) {
        assert!((computed - expected).abs() <= 1e-2 * largest, "{case}: {computed} {expected}");
    }
    assert_eq!(computed.len(), expected.len(), "{case}");
}

#[test]
fn attention_matches_sums_in_f64_at_once_and_in_graphs() {
    on_emulated_device(|_, context| {
        let stream = Stream::new(context, Priority::Foreground)?;
        let cudnn = library(context)?;
        for causal in [false, true] {
            for (positions, heads, width) in [(7, 3, 8), (65, 1, 24), (2, 2, 136)] {
                let shape = AttentionShape { positions, heads, width, causal, ..SHAPE };
                let outputs = shape.samples * positions * heads * width;
                let (x, dy) = (numbers(3 * outputs, 1), numbers(outputs, 2));
                let expected = expected(&shape, &x, &dy);
                let operands = Operands::new(context, &shape, &x, &dy)?;
                for pass in [AttentionPass::Forward, AttentionPass::Backward] {
                    let shape = AttentionShape { pass, ..shape };
                    let mut handle = CudnnHandle::new(&cudnn, &stream)?;
                    let target = Target::Device(&handle);
                    let found = cudnn.attentions(target, &shape, Determinism::Any, WORKSPACE)?;
                    assert!(found.len() > 1, "{shape:?} {found:?}");
                    for attention in found {
                        let case = format!("{attention:?}");
                        operands.enqueue(&mut handle, &attention)?;
                        let [_, y, _, dx] = &operands.elements;
                        if pass == AttentionPass::Forward {
                            check(&case, &values(y.to_vec(&stream)?), &expected.output);
                            let saved = operands.statistics.to_vec(&stream)?;
                            let saved: Vec<_> = saved.into_iter().map(f64::from).collect();
                            check(&case, &saved, &expected.statistics);
                        } else {
                            check(&case, &values(dx.to_vec(&stream)?), &expected.gradient);
                        }
                        let to = if pass == AttentionPass::Forward { y } else { dx };
                        let computed = to.to_vec(&stream)?;
                        let enqueue = |_: &_| operands.enqueue(&mut handle, &attention);
                        let graph = stream.capture(enqueue)?.instantiate()?;
                        to.fill_bytes(&stream, 0xff)?;
                        graph.launch(&stream)?;
                        let again = to.to_vec(&stream)?;
                        if attention.name().ends_with("with atomic sums") {
                            assert!(computed != again, "{case}");
                            check(&case, &values(again), &expected.gradient);
                        } else {
                            assert!(computed == again, "{case}");
                        }
                    }
                }
            }
        }
        Ok(())
    });
}

#[test]
fn deterministic_searches_have_no_atomic_sums_and_limits_are_kept() {
    on_emulated_device(|_, context| {
        let (cudnn, h100) = (library(context)?, DeviceProperties::h100());
        let shape = AttentionShape { positions: 200, pass: AttentionPass::Backward, ..SHAPE };
        let search = |determinism, limit| {
            cudnn.attentions(Target::Properties(&h100), &shape, determinism, limit).map(|found| {
                found.iter().map(|found| (found.name(), found.workspace_bytes())).collect::<Vec<_>>()
            })
        };
        let (ordered, any) =
            (search(Determinism::Deterministic, WORKSPACE)?, search(Determinism::Any, WORKSPACE)?);
        let atomic =
            |found: &[(String, usize)]| found.iter().filter(|(name, _)| name.contains("atomic")).count();
        assert_eq!((atomic(&ordered), ordered.len(), atomic(&any), any.len()), (0, 2, 2, 4), "{any:?}");
        for (_, bytes) in &any {
            let within = any.iter().filter(|(_, other)| other <= bytes).count();
            assert_eq!(search(Determinism::Any, *bytes)?.len(), within, "{any:?}");
            assert!(search(Determinism::Any, bytes - 1)?.len() < within, "{any:?}");
        }
        Ok(())
    });
}

#[test]
fn unsupported_shapes_have_no_engines_and_misuse_is_an_error() {
    on_emulated_device(|_, context| {
        let cudnn = library(context)?;
        let stream = Stream::new(context, Priority::Foreground)?;
        let mut handle = CudnnHandle::new(&cudnn, &stream)?;
        let h100 = DeviceProperties::h100();
        let search = |target: Target<'_>, shape: &AttentionShape| {
            cudnn.attentions(target, shape, Determinism::Deterministic, WORKSPACE)
        };
        for shape in [
            AttentionShape { width: 20, ..SHAPE },
            AttentionShape { width: 264, pass: AttentionPass::Backward, ..SHAPE },
            AttentionShape { positions: 1, ..SHAPE },
        ] {
            assert!(search(Target::Properties(&h100), &shape)?.is_empty(), "{shape:?}");
        }
        let large = i32::MAX as usize;
        for (part, shape) in [
            ("samples", AttentionShape { samples: 0, ..SHAPE }),
            ("heads", AttentionShape { heads: 0, ..SHAPE }),
            ("positions", AttentionShape { positions: large + 1, ..SHAPE }),
            ("any memory", AttentionShape { samples: large, positions: large, heads: large, ..SHAPE }),
        ] {
            let Err(Error::Invalid(message)) = search(Target::Properties(&h100), &shape) else {
                panic!("{shape:?}")
            };
            assert!(message.contains(part) && message.lines().count() == 1, "{message}");
        }
        let sizes = SHAPE.samples * SHAPE.positions * SHAPE.heads * SHAPE.width;
        let operands = Operands::new(context, &SHAPE, &numbers(3 * sizes, 1), &numbers(sizes, 2))?;
        let mut refused = |attention: &Attention, operands: &Operands, part: &str| {
            let Err(Error::Invalid(message)) = operands.enqueue(&mut handle, attention) else {
                panic!("{part}")
            };
            assert!(message.contains(part) && message.lines().count() == 1, "{message}");
        };
        refused(&search(Target::Properties(&h100), &SHAPE)?[0], &operands, "properties of a device");
        let handle = CudnnHandle::new(&cudnn, &stream)?;
        let attention = &search(Target::Device(&handle), &SHAPE)?[0];
        let small = Operands { workspace: Buffer::default(), ..operands };
        refused(attention, &small, "the workspace has 0 bytes and 256 are needed");
        Ok(())
    });
}
