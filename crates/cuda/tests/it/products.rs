//! Products by cuBLASLt.
#![allow(unsafe_code)]

use cuda::{
    Address, Buffer, Context, CublasLt, Driver, Element, Error, Numerics, Priority, Product, ProductShape,
    Result, Stream,
};
use cuda_emulator::{Emulator, Setting};

use super::{on_emulated_device, open};

const WORKSPACE: usize = 1 << 20;

const SHAPE: ProductShape = ProductShape {
    rows: 5,
    columns: 12,
    depth: 40,
    a_transposed: false,
    b_transposed: false,
    batch: 1,
    bias: false,
    single: false,
};

/// Opens the emulated library.
fn library(context: &Context) -> Result<CublasLt> {
    assert!(context.is_emulated());
    CublasLt::open_first_of(&[Emulator::library().unwrap()])
}

/// Returns `len` numbers of at most 1 that a bf16 represents.
pub(crate) fn numbers(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 25) as f32 / 64.0 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// Returns the elements of op(A) op(B) + bias.
fn expected(shape: &ProductShape, a: &[f32], b: &[f32], bias: Option<&[f32]>) -> Vec<f64> {
    let ProductShape { rows, columns, depth, batch, .. } = *shape;
    let mut d = Vec::with_capacity(batch * rows * columns);
    for matrix in 0..batch {
        let (a, b) = (&a[matrix * rows * depth..], &b[matrix * depth * columns..]);
        for row in 0..rows {
            for column in 0..columns {
                let term = |k: usize| {
                    let left = if shape.a_transposed { a[k * rows + row] } else { a[row * depth + k] };
                    let right =
                        if shape.b_transposed { b[column * depth + k] } else { b[k * columns + column] };
                    f64::from(left) * f64::from(right)
                };
                let sum: f64 = (0..depth).map(term).sum();
                d.push(sum + bias.map_or(0.0, |bias| f64::from(bias[column])));
            }
        }
    }
    d
}

/// Elements of a type on the device.
pub(crate) trait Number: Element {
    fn of(value: f32) -> Self;
    fn value(self) -> f64;
}

impl Number for f32 {
    fn of(value: f32) -> Self {
        value
    }
    fn value(self) -> f64 {
        f64::from(self)
    }
}

/// The bits of a bf16.
impl Number for u16 {
    fn of(value: f32) -> Self {
        (value.to_bits() >> 16) as Self
    }
    fn value(self) -> f64 {
        f64::from(f32::from_bits(u32::from(self) << 16))
    }
}

/// Returns pseudorandom numbers, and a buffer with their elements of a type.
fn operand<T: Number>(context: &Context, len: usize, seed: u32) -> Result<(Vec<f32>, Buffer<T>)> {
    let numbers = numbers(len, seed);
    let elements: Vec<T> = numbers.iter().map(|number| T::of(*number)).collect();
    Ok((numbers, Buffer::from_slice(context, &elements)?))
}

/// Computes a product by each algorithm, at once and in a graph, and compares it with the sums in
/// f64. Factors have elements of type `T`, and the result of type `D`. The tolerance is relative to
/// the sum of the terms' magnitudes, at most the depth.
fn check<T: Number, D: Number>(
    context: &Context,
    shape: &ProductShape,
    numerics: Numerics,
    tolerance: f64,
) -> Result<()> {
    let stream = Stream::new(context, Priority::Foreground)?;
    let ProductShape { rows, columns, depth, batch, .. } = *shape;
    let (a_numbers, a) = operand::<T>(context, batch * rows * depth, 1)?;
    let (b_numbers, b) = operand::<T>(context, batch * depth * columns, 2)?;
    let (bias_numbers, bias) = operand::<D>(context, columns, 3)?;
    let expected = expected(shape, &a_numbers, &b_numbers, shape.bias.then_some(&bias_numbers));
    let workspace = Buffer::uninitialized(context, WORKSPACE)?;
    let products = library(context)?.products(context, shape, numerics, WORKSPACE, 8)?;
    assert!(!products.is_empty(), "{shape:?} {numerics:?}");
    for product in products {
        assert!(product.workspace_bytes() <= WORKSPACE && product.name().starts_with("cuBLASLt "));
        let d = Buffer::<D>::zeros(context, batch * rows * columns)?;
        let bias = shape.bias.then(|| Address::from(&bias));
        // SAFETY: the buffers have the elements of the shape, and do not overlap.
        let enqueue = |stream: &Stream| unsafe {
            product.enqueue(stream, [(&a).into(), (&b).into(), (&d).into()], bias, &workspace)
        };
        enqueue(&stream)?;
        let result = d.to_vec(&stream)?;
        for (index, (result, expected)) in result.iter().zip(&expected).enumerate() {
            let error = (result.value() - expected).abs();
            assert!(error <= tolerance * depth as f64, "{product:?} {numerics:?} {index}: {error}");
        }
        let graph = stream.capture(enqueue)?.instantiate()?;
        d.fill_bytes(&stream, 0xff)?;
        graph.launch(&stream)?;
        let replayed = d.to_vec(&stream)?;
        let bits = |elements: Vec<D>| elements.into_iter().map(|number| number.value().to_bits());
        assert!(bits(replayed).eq(bits(result)), "{product:?}");
    }
    Ok(())
}

#[test]
fn products_match_sums_in_f64_at_once_and_in_graphs() {
    on_emulated_device(|_, context| {
        for (a_transposed, b_transposed) in [(false, false), (false, true), (true, false), (true, true)] {
            for (batch, bias) in [(1, false), (1, true), (3, false)] {
                let shape = ProductShape { a_transposed, b_transposed, batch, bias, ..SHAPE };
                check::<f32, f32>(context, &shape, Numerics::F32, 1e-6)?;
                check::<f32, f32>(context, &shape, Numerics::Tf32, 1e-3)?;
                check::<u16, u16>(context, &shape, Numerics::Bf16, 8e-3)?;
                let shape = ProductShape { single: true, ..shape };
                check::<u16, f32>(context, &shape, Numerics::Bf16, 8e-3)?;
            }
        }
        check::<f32, f32>(
            context,
            &ProductShape { rows: 1, columns: 4, depth: 4, ..SHAPE },
            Numerics::F32,
            1e-6,
        )
    });
}

/// A graph keeps the product, and with it the handle, and all buffers.
#[test]
fn a_graph_outlives_its_product_and_operands() {
    on_emulated_device(|_, context| {
        let stream = Stream::new(context, Priority::Foreground)?;
        let (product, operands) = product(context)?;
        // SAFETY: the stream orders the accesses.
        let d = unsafe { operands.d.alias(0..2 * 5 * 12) }?;
        let graph = stream.capture(|stream| enqueue(&product, stream, &operands))?.instantiate()?;
        drop((product, operands));
        graph.launch(&stream)?;
        assert_eq!(d.to_vec(&stream)?, [80.0; 2 * 5 * 12]);
        Ok(())
    });
}

/// Operands of a product.
pub(crate) struct Operands {
    a: Buffer<f32>,
    b: Buffer<f32>,
    bias: Buffer<f32>,
    d: Buffer<f32>,
    workspace: Buffer<u8>,
}

impl Operands {
    /// Returns the first element of D.
    pub(crate) fn first(&self, stream: &Stream) -> Result<f32> {
        Ok(self.d.to_vec(stream)?[0])
    }
}

/// Returns a product of twos and ones plus a bias of zeros, and its operands.
pub(crate) fn product(context: &Context) -> Result<(Product, Operands)> {
    let shape = ProductShape { bias: true, batch: 2, ..SHAPE };
    let mut products = library(context)?.products(context, &shape, Numerics::F32, WORKSPACE, 1)?;
    let operands = Operands {
        a: Buffer::from_slice(context, &[2.0; 2 * 5 * 40])?,
        b: Buffer::from_slice(context, &[1.0; 2 * 40 * 12])?,
        bias: Buffer::zeros(context, 12)?,
        d: Buffer::zeros(context, 2 * 5 * 12)?,
        workspace: Buffer::uninitialized(context, WORKSPACE)?,
    };
    Ok((products.remove(0), operands))
}

/// Enqueues the product that [`product`] returns.
pub(crate) fn enqueue(product: &Product, stream: &Stream, operands: &Operands) -> Result<()> {
    let Operands { a, b, bias, d, workspace } = operands;
    // SAFETY: the buffers have the elements of the shape, and do not overlap.
    unsafe { product.enqueue(stream, [a.into(), b.into(), d.into()], Some(bias.into()), workspace) }
}

#[test]
fn unusable_operands_are_errors_before_the_library_is_called() {
    on_emulated_device(|emulator, context| {
        let stream = Stream::new(context, Priority::Foreground)?;
        let mut products = library(context)?.products(context, &SHAPE, Numerics::F32, WORKSPACE, 8)?;
        let needs_workspace = products.iter().position(|product| product.workspace_bytes() > 0);
        let product = products.swap_remove(needs_workspace.expect("an algorithm has a workspace"));
        let memory = Buffer::<f32>::zeros(context, 1000)?;
        let (workspace, none) = (Buffer::uninitialized(context, WORKSPACE)?, Buffer::default());
        let small = Buffer::uninitialized(context, product.workspace_bytes() - 1)?;
        let [a, b, d] = [0, 200, 700].map(|first| Address::element(&memory, first));
        let unaligned = Address::element(&memory, 701);
        let missing = Buffer::<f32>::default();
        let calls = emulator.calls();
        for (part, operands, bias, workspace) in [
            ("D at ", [a, b, unaligned], None, &workspace),
            ("A at 0x0", [Address::from(&missing), b, d], None, &workspace),
            ("no bias, and one was given", [a, b, d], Some(a), &workspace),
            ("and 1 are needed", [a, b, d], None, &small),
            (" 0 bytes and ", [a, b, d], None, &none),
        ] {
            // SAFETY: the memory has the elements of the shape.
            let error = unsafe { product.enqueue(&stream, operands, bias, workspace) }.unwrap_err();
            let Error::Invalid(message) = &error else { panic!("{error:?}") };
            let part = if part.contains("are needed") {
                &format!("{} are needed", product.workspace_bytes())
            } else {
                part
            };
            assert!(message.contains(part), "{part}: {message}");
        }
        let product_calls = emulator.log().split_off(calls as usize);
        assert!(product_calls.iter().all(|call| !call.contains("cublas")), "{product_calls:?}");
        Ok(())
    });
}

#[test]
fn a_product_of_another_device_or_during_a_capture_is_an_error() {
    let emulator = Emulator::new().unwrap();
    emulator.set(Setting::Devices, 2);
    let driver = Driver::open_first_of(&[Emulator::library().unwrap()]).unwrap();
    let [first, second] = [0, 1].map(|ordinal| driver.context(ordinal).unwrap());
    let (product, operands) = product(&first).unwrap();
    let stream = Stream::new(&second, Priority::Foreground).unwrap();
    let error = enqueue(&product, &stream, &operands).unwrap_err().to_string();
    assert_eq!(error, "a product of device 0 was used in a stream of device 1");
    let error = stream
        .capture(|_| library(&second)?.products(&second, &SHAPE, Numerics::F32, 0, 1).map(drop))
        .unwrap_err()
        .to_string();
    assert_eq!(error, "a handle of cuBLASLt cannot be created while a stream is being captured");
    drop((product, operands, stream));
    first.close().and(second.close()).unwrap();
    super::assert_no_misuse_or_leaks(&emulator);
}

#[test]
fn a_file_that_is_not_cublaslt_is_a_one_line_error_with_the_missing_functions() {
    let error = CublasLt::open_first_of(&["libc.so.6".into()]).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::Unavailable { library: "cuBLASLt", .. }), "{error:?}");
    assert!(message.contains("cublasLtCreate") && message.contains("cublasLtMatmul"), "{message}");
    let message = CublasLt::open_first_of(&["/nowhere/libcublasLt.so".into()]).unwrap_err().to_string();
    assert!(message.contains("CUBLASLT_LIBRARY") && message.lines().count() == 1, "{message}");
}

/// The real library finds no driver that it can use: its error is returned by name.
#[test]
fn the_real_library_without_a_gpu_returns_an_error_that_names_the_function() {
    let Some(file) = std::env::var_os("CUBLASLT_LIBRARY") else {
        println!("SKIPPED: the real cuBLASLt: CUBLASLT_LIBRARY is not set");
        return;
    };
    let library = CublasLt::open_first_of(&[file.into()]).unwrap();
    assert!(library.version() >= 120_000, "{}", library.version());
    // The library may call the emulated driver, which other tests check for misuse meanwhile.
    let _emulator = Emulator::new().unwrap();
    let context = open();
    let error = library.products(&context, &SHAPE, Numerics::F32, 0, 4).unwrap_err();
    let Error::Library { library: "cuBLASLt", call: "cublasLtCreate", code, text } = &error else {
        panic!("{error:?}")
    };
    assert!(*code != 0 && !text.is_empty(), "{error}");
    assert!(error.to_string().starts_with("cuBLASLt: cublasLtCreate: "), "{error}");
    context.close().unwrap();
}
