//! Convolutions by cuDNN.
#![allow(unsafe_code)]

use std::collections::BTreeSet;

use cuda::{
    Address, Buffer, Context, Convolution, ConvolutionShape, Cudnn, CudnnHandle, Determinism,
    DeviceProperties, Direction, Driver, Error, Layout, Numerics, Priority, Result, Stream, Target,
};
use cuda_emulator::{Emulator, Setting};

use super::on_emulated_device;
use super::products::{Number, numbers};

const WORKSPACE: usize = 1 << 24;

const DIRECTIONS: [Direction; 3] = [Direction::Forward, Direction::InputGradient, Direction::WeightGradient];

const SHAPE: ConvolutionShape = ConvolutionShape {
    samples: 2,
    in_channels: 4,
    out_channels: 8,
    groups: 1,
    input: [6, 5],
    kernel: [3, 3],
    stride: [1, 1],
    padding: [1, 1],
    dilation: [1, 1],
    layout: Layout::Nchw,
    direction: Direction::Forward,
};

/// Opens the emulated library.
fn library(context: &Context) -> Result<Cudnn> {
    assert!(context.is_emulated());
    Cudnn::open_first_of(&[Emulator::library().unwrap()])
}

/// Returns the dimensions of input, weights and output.
fn dimensions(shape: &ConvolutionShape) -> [[usize; 4]; 3] {
    let [height, width] = shape.output().unwrap();
    let ConvolutionShape { samples, in_channels, out_channels, groups, input, kernel, .. } = *shape;
    [
        [samples, in_channels, input[0], input[1]],
        [out_channels, in_channels / groups, kernel[0], kernel[1]],
        [samples, out_channels, height, width],
    ]
}

/// Returns the position of an element in memory.
fn position(layout: Layout, [_, c, h, w]: [usize; 4], [n, i, y, x]: [usize; 4]) -> usize {
    match layout {
        Layout::Nchw => ((n * c + i) * h + y) * w + x,
        Layout::Nhwc => ((n * h + y) * w + x) * c + i,
    }
}

/// Returns the result of the shape's direction: sums over all products of an input, a weight and an
/// output, of which two are given. Elements of the result are ignored.
fn expected(shape: &ConvolutionShape, tensors: &[Vec<f32>; 3]) -> Vec<f64> {
    let sizes = dimensions(shape);
    let [input, [_, inner, kernel_height, kernel_width], [_, outer, height, width]] = sizes;
    let result = result(shape.direction);
    let mut sums = vec![0.0; tensors[result].len()];
    for index in 0..shape.samples * outer * height * width {
        let (x, rest) = (index % width, index / width);
        let (y, rest) = (rest % height, rest / height);
        let (o, n) = (rest % outer, rest / outer);
        for index in 0..inner * kernel_height * kernel_width {
            let (kx, rest) = (index % kernel_width, index / kernel_width);
            let (ky, i) = (rest % kernel_height, rest / kernel_height);
            let row = (y * shape.stride[0] + ky * shape.dilation[0]).wrapping_sub(shape.padding[0]);
            let column = (x * shape.stride[1] + kx * shape.dilation[1]).wrapping_sub(shape.padding[1]);
            if row >= input[2] || column >= input[3] {
                continue;
            }
            let channel = o / (outer / shape.groups) * inner + i;
            let places = [[n, channel, row, column], [o, i, ky, kx], [n, o, y, x]];
            let places: Vec<_> =
                (0..3).map(|tensor| position(shape.layout, sizes[tensor], places[tensor])).collect();
            let factors = (0..3).filter(|tensor| *tensor != result);
            let product: f64 = factors.map(|tensor| f64::from(tensors[tensor][places[tensor]])).product();
            sums[places[result]] += product;
        }
    }
    sums
}

/// Returns which of input, weights and output is computed.
fn result(direction: Direction) -> usize {
    match direction {
        Direction::Forward => 2,
        Direction::InputGradient => 0,
        Direction::WeightGradient => 1,
    }
}

/// Computes a convolution by each engine, at once and in a graph, and compares it with the sums in
/// f64. The tolerance is relative to the largest sum.
fn check<T: Number>(
    context: &Context,
    shape: &ConvolutionShape,
    numerics: Numerics,
    tolerance: f64,
) -> Result<()> {
    let stream = Stream::new(context, Priority::Foreground)?;
    let cudnn = library(context)?;
    let mut handle = CudnnHandle::new(&cudnn, &stream)?;
    let target = Target::Device(&handle);
    let found = cudnn.convolutions(target, shape, numerics, Determinism::Deterministic, WORKSPACE)?;
    assert!(!found.is_empty(), "{shape:?} {numerics:?}");
    let sizes = dimensions(shape).map(|sizes| sizes.iter().product());
    let tensors = [0, 1, 2].map(|tensor| numbers(sizes[tensor], tensor as u32));
    let expected = expected(shape, &tensors);
    let largest = expected.iter().fold(0.0, |largest: f64, sum| largest.max(sum.abs()));
    let mut buffers = Vec::new();
    for numbers in &tensors {
        let elements: Vec<T> = numbers.iter().map(|number| T::of(*number)).collect();
        buffers.push(Buffer::from_slice(context, &elements)?);
    }
    let workspace = Buffer::uninitialized(context, WORKSPACE)?;
    let mut seen = BTreeSet::new();
    for convolution in found {
        assert!(convolution.workspace_bytes() <= WORKSPACE && convolution.shape() == shape);
        if !seen.insert(convolution.engine()) {
            continue;
        }
        let to = &buffers[result(shape.direction)];
        let operands = [0, 1, 2].map(|tensor| Address::from(&buffers[tensor]));
        to.fill_bytes(&stream, 0xff)?;
        // SAFETY: the buffers have the elements of the shape, and do not overlap.
        let mut enqueue = || unsafe { convolution.enqueue(&mut handle, operands, &workspace) };
        enqueue()?;
        let computed = to.to_vec(&stream)?;
        for (index, (computed, expected)) in computed.iter().zip(&expected).enumerate() {
            let error = (computed.value() - expected).abs();
            assert!(error <= tolerance * largest, "{convolution:?} {numerics:?} {index}: {error}");
        }
        let graph = stream.capture(|_| enqueue())?.instantiate()?;
        to.fill_bytes(&stream, 0xff)?;
        graph.launch(&stream)?;
        let bits = |elements: Vec<T>| elements.into_iter().map(|number| number.value().to_bits());
        assert!(bits(to.to_vec(&stream)?).eq(bits(computed)), "{convolution:?}");
    }
    Ok(())
}

#[test]
fn convolutions_match_sums_in_f64_at_once_and_in_graphs() {
    on_emulated_device(|_, context| {
        for direction in DIRECTIONS {
            for layout in [Layout::Nchw, Layout::Nhwc] {
                for shape in [
                    SHAPE,
                    ConvolutionShape { stride: [2, 1], padding: [0, 2], dilation: [1, 2], ..SHAPE },
                    ConvolutionShape { groups: 4, kernel: [1, 3], padding: [0, 1], ..SHAPE },
                    ConvolutionShape { groups: 4, out_channels: 4, ..SHAPE },
                    ConvolutionShape { kernel: [1, 1], padding: [0, 0], stride: [2, 2], ..SHAPE },
                ] {
                    let shape = ConvolutionShape { layout, direction, ..shape };
                    check::<f32>(context, &shape, Numerics::F32, 1e-5)?;
                    check::<f32>(context, &shape, Numerics::Tf32, 2e-3)?;
                    check::<u16>(context, &shape, Numerics::Bf16, 1e-2)?;
                }
            }
        }
        Ok(())
    });
}

/// The first deterministic engine of a convolution, and its operands.
pub(crate) struct Prepared {
    convolution: Convolution,
    buffers: [Buffer<f32>; 3],
    workspace: Buffer<u8>,
}

impl Prepared {
    /// Prepares a convolution whose handle is that of the search, of ones.
    pub(crate) fn new(context: &Context, handle: &CudnnHandle) -> Result<Self> {
        let target = Target::Device(handle);
        let found = library(context)?.convolutions(
            target,
            &SHAPE,
            Numerics::F32,
            Determinism::Deterministic,
            WORKSPACE,
        )?;
        let [x, w, y] = dimensions(&SHAPE).map(|sizes| vec![1.0; sizes.iter().product()]);
        Ok(Self {
            convolution: found.into_iter().next().expect("there is an engine"),
            buffers: [
                Buffer::from_slice(context, &x)?,
                Buffer::from_slice(context, &w)?,
                Buffer::from_slice(context, &y)?,
            ],
            workspace: Buffer::uninitialized(context, WORKSPACE)?,
        })
    }

    /// Enqueues the convolution.
    pub(crate) fn enqueue(&self, handle: &mut CudnnHandle) -> Result<()> {
        let operands = [0, 1, 2].map(|tensor| Address::from(&self.buffers[tensor]));
        // SAFETY: the buffers have the elements of the shape, and do not overlap.
        unsafe { self.convolution.enqueue(handle, operands, &self.workspace) }
    }

    /// Returns the sum of the output's first channel's inner element: 4 channels of 3 x 3 ones.
    pub(crate) fn inner(&self, stream: &Stream) -> Result<f32> {
        Ok(self.buffers[2].to_vec(stream)?[SHAPE.input[1] + 1])
    }
}

/// Opens the emulated library and creates a handle for a new stream.
pub(crate) fn handle(context: &Context) -> Result<CudnnHandle> {
    CudnnHandle::new(&library(context)?, &Stream::new(context, Priority::Foreground)?)
}

/// A plan is executed with another handle than that of the search, and a graph keeps the plan, both
/// handles and all buffers.
#[test]
fn a_graph_outlives_its_convolution_and_handles() {
    on_emulated_device(|_, context| {
        let made_with = handle(context)?;
        let prepared = Prepared::new(context, &made_with)?;
        drop(made_with);
        let mut other = handle(context)?;
        let stream = other.stream().clone();
        prepared.enqueue(&mut other)?;
        let graph = stream.capture(|_| prepared.enqueue(&mut other))?.instantiate()?;
        let output = Buffer::<f32>::uninitialized(context, prepared.buffers[2].len())?;
        prepared.buffers[2].fill_bytes(&stream, 0)?;
        // SAFETY: the stream orders the accesses.
        let kept = unsafe { prepared.buffers[2].alias(0..output.len()) }?;
        drop((prepared, other));
        graph.launch(&stream)?;
        output.enqueue_copy(&stream, 0, &kept, 0..output.len())?;
        assert_eq!(output.to_vec(&stream)?[SHAPE.input[1] + 1].to_bits(), 36.0_f32.to_bits());
        Ok(())
    });
}

#[test]
fn determinism_and_workspace_limits_select_engines() {
    on_emulated_device(|_, context| {
        let handle = handle(context)?;
        let shape = ConvolutionShape { direction: Direction::InputGradient, ..SHAPE };
        let search = |determinism, limit| {
            library(context)?.convolutions(Target::Device(&handle), &shape, Numerics::F32, determinism, limit)
        };
        let (all, deterministic) =
            (search(Determinism::Any, usize::MAX)?, search(Determinism::Deterministic, usize::MAX)?);
        assert!(all.len() > deterministic.len() && !deterministic.is_empty());
        let names: BTreeSet<_> = all.iter().map(Convolution::name).collect();
        assert_eq!(names.len(), all.len());
        assert!(search(Determinism::Any, 0)?.iter().all(|found| found.workspace_bytes() == 0));
        let properties = DeviceProperties::h100();
        let target = Target::Properties(&properties);
        let without_device =
            library(context)?.convolutions(target, &shape, Numerics::F32, Determinism::Any, usize::MAX)?;
        assert!(without_device.iter().all(|found| names.contains(&found.name())));
        assert_eq!(without_device.len(), all.len());
        Ok(())
    });
}

#[test]
fn unusable_operands_are_errors_before_the_library_is_called() {
    on_emulated_device(|emulator, context| {
        let mut handle = handle(context)?;
        let prepared = Prepared::new(context, &handle)?;
        let properties = DeviceProperties::h100();
        let (target, any) = (Target::Properties(&properties), Determinism::Any);
        let searched = library(context)?.convolutions(target, &SHAPE, Numerics::F32, any, WORKSPACE)?;
        let memory = Buffer::<f32>::zeros(context, 2000)?;
        let workspace = Buffer::uninitialized(context, WORKSPACE)?;
        let [x, w, y] = [0, 400, 800].map(|first| Address::element(&memory, first));
        let calls = emulator.calls();
        for (part, convolution, operands) in [
            ("the output at ", &prepared.convolution, [x, w, Address::element(&memory, 801)]),
            ("the weights at 0x0", &prepared.convolution, [x, Address::from(&Buffer::<f32>::default()), y]),
            ("searched for properties of a device", &searched[0], [x, w, y]),
        ] {
            // SAFETY: the memory has the elements of the shape.
            let error = unsafe { convolution.enqueue(&mut handle, operands, &workspace) }.unwrap_err();
            let Error::Invalid(message) = &error else { panic!("{error:?}") };
            assert!(message.contains(part), "{part}: {message}");
        }
        let log = emulator.log().split_off(usize::try_from(calls).unwrap());
        assert!(log.iter().all(|call| !call.contains("cudnn")), "{log:?}");
        let shape = ConvolutionShape { groups: 3, ..SHAPE };
        let (target, any) = (Target::Device(&handle), Determinism::Any);
        let impossible = library(context)?.convolutions(target, &shape, Numerics::F32, any, 0).unwrap_err();
        assert!(
            matches!(&impossible, Error::Invalid(message) if message.contains("3 groups")),
            "{impossible}"
        );
        Ok(())
    });
}

#[test]
fn a_handle_during_a_capture_and_of_another_device_is_an_error() {
    let emulator = Emulator::new().unwrap();
    emulator.set(Setting::Devices, 2);
    let driver = Driver::open_first_of(&[Emulator::library().unwrap()]).unwrap();
    let [first, second] = [0, 1].map(|ordinal| driver.context(ordinal).unwrap());
    let made_with = handle(&first).unwrap();
    let prepared = Prepared::new(&first, &made_with).unwrap();
    let mut other = handle(&second).unwrap();
    let error = prepared.enqueue(&mut other).unwrap_err().to_string();
    assert_eq!(error, "a convolution of device 0 was used in a stream of device 1");
    let stream = Stream::new(&first, Priority::Foreground).unwrap();
    let error = stream.capture(|_| handle(&first).map(drop)).unwrap_err().to_string();
    assert_eq!(error, "a handle of cuDNN cannot be created while a stream is being captured");
    drop((prepared, made_with, other, stream));
    first.close().and(second.close()).unwrap();
    super::assert_no_misuse_or_leaks(&emulator);
}

#[test]
fn a_file_that_is_not_cudnn_is_a_one_line_error_with_the_missing_functions() {
    let error = Cudnn::open_first_of(&["libc.so.6".into()]).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::Unavailable { library: "cuDNN", .. }), "{error:?}");
    assert!(message.contains("cudnnCreate") && message.contains("cudnnBackendExecute"), "{message}");
    let message = Cudnn::open_first_of(&["/nowhere/libcudnn.so.9".into()]).unwrap_err().to_string();
    assert!(message.contains("CUDNN_LIBRARY") && message.lines().count() == 1, "{message}");
}
