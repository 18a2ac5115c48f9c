//! cuBLASLt on an emulated device. Functions are called by name.
#![allow(unsafe_code, non_snake_case)]

mod calls;
mod execution;
mod misuse;
mod products;

use crate::rules::cuda::Cuda;
use cuda_emulator::{Emulator, Setting};
use half::{bf16, f16};
use libloading::Library;
use std::{ffi::CStr, ffi::c_char, ptr};

pub(crate) const COMPUTE_32F: u32 = 68;
pub(crate) const COMPUTE_FAST_BF16: u32 = 75;
pub(crate) const COMPUTE_FAST_TF32: u32 = 77;

/// `CUBLAS_STATUS_INVALID_VALUE`.
const INVALID_VALUE: u32 = 7;

const TRANSA: u32 = 3;
const TRANSB: u32 = 4;
const EPILOGUE: u32 = 7;
const BIAS_POINTER: u32 = 8;
const BIAS_BATCH_STRIDE: u32 = 10;
const ORDER: u32 = 1;
const BATCH_COUNT: u32 = 5;
const BATCH_STRIDE: u32 = 6;
const MAX_WORKSPACE: u32 = 1;

/// Memory layout of `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) algorithm: [u64; 8],
    pub(crate) workspace: usize,
    pub(crate) state: u32,
    pub(crate) waves: f32,
    reserved: [i32; 4],
}

/// A device and the functions of cuBLASLt.
pub(crate) struct Lt {
    pub(crate) cuda: Cuda,
    library: Library,
}

functions! {
    Lt.library:
    cublasLtCreate(handle: *mut usize);
    cublasLtDestroy(handle: usize);
    cublasLtMatmulDescCreate(description: *mut usize, compute: u32, scale: u32);
    cublasLtMatmulDescDestroy(description: usize);
    cublasLtMatmulDescSetAttribute(description: usize, attribute: u32, value: *const u8, bytes: usize);
    cublasLtMatrixLayoutCreate(layout: *mut usize, element: u32, rows: u64, columns: u64, leading: u64);
    cublasLtMatrixLayoutDestroy(layout: usize);
    cublasLtMatrixLayoutSetAttribute(layout: usize, attribute: u32, value: *const u8, bytes: usize);
    cublasLtMatmulPreferenceCreate(preference: *mut usize);
    cublasLtMatmulPreferenceDestroy(preference: usize);
    cublasLtMatmulPreferenceSetAttribute(preference: usize, attribute: u32, value: *const u8, bytes: usize);
    cublasLtMatmulAlgoGetHeuristic(
        handle: usize, description: usize, a: usize, b: usize, c: usize, d: usize, preference: usize,
        count: i32, results: *mut Found, found: *mut i32
    );
    cublasLtMatmulAlgoConfigGetAttribute(
        algorithm: *const [u64; 8], attribute: u32, value: *mut u8, bytes: usize, written: *mut usize
    );
    cublasLtMatmul(
        handle: usize, description: usize, alpha: *const f32, a: u64, a_layout: usize, b: u64,
        b_layout: usize, beta: *const f32, c: u64, c_layout: usize, d: u64, d_layout: usize,
        algorithm: *const [u64; 8], workspace: u64, workspace_bytes: usize, stream: usize
    );
}

impl Lt {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Opens the library with the given settings.
    pub(crate) fn start_with(settings: &[(Setting, i64)]) -> Self {
        // SAFETY: loading the library runs none of its code.
        let library = unsafe { Library::new(Emulator::library().unwrap()) }.unwrap();
        let cuda = Cuda::open();
        for &(setting, value) in settings {
            cuda.emulator.set(setting, value);
        }
        cuda.ok(cuda.cuInit(0));
        let context = cuda.make(|place| cuda.cuDevicePrimaryCtxRetain(place, 0));
        cuda.ok(cuda.cuCtxSetCurrent(context));
        Self { cuda, library }
    }

    pub(crate) fn status_text(&self, status: u32) -> String {
        // SAFETY: the signature is that of cublasLt.h, and the text is static.
        unsafe {
            let function =
                self.library.get::<unsafe extern "C" fn(u32) -> *const c_char>("cublasLtGetStatusString");
            CStr::from_ptr(function.unwrap()(status)).to_str().unwrap().to_owned()
        }
    }

    pub(crate) fn version(&self) -> usize {
        // SAFETY: the signature is that of cublasLt.h.
        unsafe { self.library.get::<unsafe extern "C" fn() -> usize>("cublasLtGetVersion").unwrap()() }
    }

    pub(crate) fn handle(&self) -> usize {
        self.cuda.make(|place| self.cublasLtCreate(place))
    }

    /// Sets an attribute of a product's description.
    pub(crate) fn describe(&self, description: usize, attribute: u32, value: &[u8]) -> u32 {
        self.cublasLtMatmulDescSetAttribute(description, attribute, value.as_ptr(), value.len())
    }

    pub(crate) fn lay_out(&self, layout: usize, attribute: u32, value: &[u8]) -> u32 {
        self.cublasLtMatrixLayoutSetAttribute(layout, attribute, value.as_ptr(), value.len())
    }

    pub(crate) fn prefer(&self, preference: usize, attribute: u32, value: &[u8]) -> u32 {
        self.cublasLtMatmulPreferenceSetAttribute(preference, attribute, value.as_ptr(), value.len())
    }

    /// Allocates memory with the given bytes.
    pub(crate) fn upload(&self, bytes: &[u8]) -> u64 {
        let address = self.cuda.make(|place| self.cuda.cuMemAlloc_v2(place, bytes.len()));
        self.cuda.ok(self.cuda.cuMemcpyHtoDAsync_v2(address, bytes.as_ptr(), bytes.len(), 0));
        self.cuda.ok(self.cuda.cuCtxSynchronize());
        address
    }

    pub(crate) fn download(&self, address: u64, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        self.cuda.ok(self.cuda.cuMemcpyDtoHAsync_v2(read.as_mut_ptr(), address, bytes, 0));
        read
    }
}

/// Checks that a call returned a status and reported `why`.
#[track_caller]
fn refuses(lt: &Lt, status: u32, expected: u32, why: &str) {
    let misuse = lt.cuda.emulator.misuse();
    let last = misuse.last().map_or("", String::as_str);
    assert!(last.contains(why), "{last:?} instead of {why:?}");
    assert_eq!(status, expected, "{last}");
}

/// Element type of a matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Element {
    F32,
    F16,
    Bf16,
}

impl Element {
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 2,
            Self::Bf16 => 14,
        }
    }

    pub(crate) fn bytes(self) -> usize {
        if self == Self::F32 { 4 } else { 2 }
    }

    pub(crate) fn encode(self, values: &[f32]) -> Vec<u8> {
        match self {
            Self::F32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Self::F16 => values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect(),
            Self::Bf16 => values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect(),
        }
    }

    pub(crate) fn decode(self, bytes: &[u8]) -> Vec<f32> {
        let halves = || bytes.chunks(2).map(|pair| [pair[0], pair[1]]);
        match self {
            Self::F32 => bytes.chunks(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect(),
            Self::F16 => halves().map(|pair| f16::from_le_bytes(pair).to_f32()).collect(),
            Self::Bf16 => halves().map(|pair| bf16::from_le_bytes(pair).to_f32()).collect(),
        }
    }
}

/// Batch of matrices on the device, with gaps after each run of elements and each matrix.
pub(crate) struct Matrices {
    pub(crate) element: Element,
    pub(crate) by_rows: bool,
    leading: usize,
    stride: usize,
    /// All elements, including the gaps.
    pub(crate) values: Vec<f32>,
    pub(crate) address: u64,
    pub(crate) layout: usize,
}

/// Shape of a batch of matrices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) batches: usize,
    pub(crate) by_rows: bool,
    /// Elements between the runs of a matrix.
    pub(crate) gap: usize,
}

impl Shape {
    pub(crate) fn dense(rows: usize, columns: usize) -> Self {
        Self { rows, columns, batches: 1, by_rows: false, gap: 0 }
    }
}

/// Returns `count` values between -1 and 1, by a linear congruential generator.
pub(crate) fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

impl Matrices {
    /// Creates matrices of values between -1 and 1, as far as their type can represent them.
    pub(crate) fn new(lt: &Lt, element: Element, shape: Shape, seed: u64) -> Self {
        let Shape { rows, columns, batches, by_rows, gap } = shape;
        let (inner, outer) = if by_rows { (columns, rows) } else { (rows, columns) };
        let leading = inner + gap;
        let stride = leading * outer + gap;
        let bytes = element.encode(&noise(stride * batches, seed));
        let values = element.decode(&bytes);
        let address = lt.upload(&bytes);
        let layout = lt.cuda.make(|place| {
            lt.cublasLtMatrixLayoutCreate(place, element.code(), rows as u64, columns as u64, leading as u64)
        });
        if by_rows {
            lt.cuda.ok(lt.lay_out(layout, ORDER, &1_u32.to_le_bytes()));
        }
        if batches > 1 {
            lt.cuda.ok(lt.lay_out(layout, BATCH_COUNT, &(batches as u32).to_le_bytes()));
            lt.cuda.ok(lt.lay_out(layout, BATCH_STRIDE, &stride.to_le_bytes()));
        }
        Self { element, by_rows, leading, stride, values, address, layout }
    }

    /// Returns the index of an element in `values`.
    pub(crate) fn index(&self, batch: usize, row: usize, column: usize) -> usize {
        let (run, place) = if self.by_rows { (row, column) } else { (column, row) };
        batch * self.stride + run * self.leading + place
    }

    /// Returns an element of the matrix, or of its transpose.
    pub(crate) fn at(&self, transposed: bool, batch: usize, row: usize, column: usize) -> f64 {
        let (row, column) = if transposed { (column, row) } else { (row, column) };
        f64::from(self.values[self.index(batch, row, column)])
    }

    /// Returns all elements on the device, including the gaps.
    pub(crate) fn read(&self, lt: &Lt) -> Vec<f32> {
        self.element.decode(&lt.download(self.address, self.values.len() * self.element.bytes()))
    }

    /// Frees the memory and destroys the layout.
    pub(crate) fn end(self, lt: &Lt) {
        lt.cuda.ok(lt.cuda.cuMemFree_v2(self.address));
        lt.cuda.ok(lt.cublasLtMatrixLayoutDestroy(self.layout));
    }
}

/// Product on the device, with everything that a call needs.
pub(crate) struct Product {
    pub(crate) handle: usize,
    pub(crate) description: usize,
    pub(crate) a: Matrices,
    pub(crate) b: Matrices,
    pub(crate) c: Matrices,
    pub(crate) d: Matrices,
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
    /// Address and size in bytes.
    pub(crate) workspace: (u64, usize),
}

impl Product {
    /// Creates a product of column-major f32 matrices of m x k and k x n elements, without C.
    pub(crate) fn plain(lt: &Lt, compute: u32, [m, n, k]: [usize; 3]) -> Self {
        let make = |rows, columns, seed| Matrices::new(lt, Element::F32, Shape::dense(rows, columns), seed);
        Self::new(lt, compute, [make(m, k, 1), make(k, n, 2), make(m, n, 3), make(m, n, 4)])
    }

    pub(crate) fn new(lt: &Lt, compute: u32, [a, b, c, d]: [Matrices; 4]) -> Self {
        let bytes = 1 << 20;
        Self {
            handle: lt.handle(),
            description: lt.cuda.make(|place| lt.cublasLtMatmulDescCreate(place, compute, 0)),
            a,
            b,
            c,
            d,
            alpha: 1.0,
            beta: 0.0,
            workspace: (lt.cuda.make(|place| lt.cuda.cuMemAlloc_v2(place, bytes)), bytes),
        }
    }

    /// Returns the status of the heuristic with the given maximum workspace, and its algorithms.
    pub(crate) fn heuristic(&self, lt: &Lt, max_workspace: usize) -> (u32, Vec<Found>) {
        self.heuristic_with(lt, &[(MAX_WORKSPACE, &max_workspace.to_le_bytes())])
    }

    /// Returns the status of the heuristic with a preference of the given attributes, and its
    /// algorithms.
    pub(crate) fn heuristic_with(&self, lt: &Lt, attributes: &[(u32, &[u8])]) -> (u32, Vec<Found>) {
        let preference = lt.cuda.make(|place| lt.cublasLtMatmulPreferenceCreate(place));
        for (attribute, value) in attributes {
            lt.cuda.ok(lt.prefer(preference, *attribute, value));
        }
        let found = self.find(lt, preference, 16);
        lt.cuda.ok(lt.cublasLtMatmulPreferenceDestroy(preference));
        found
    }

    /// Returns the status of the heuristic with a preference, and at most `room` algorithms.
    pub(crate) fn find(&self, lt: &Lt, preference: usize, room: i32) -> (u32, Vec<Found>) {
        let (mut found, mut count) = ([Found::default(); 16], -1);
        let [a, b, c, d] = [&self.a, &self.b, &self.c, &self.d].map(|matrices| matrices.layout);
        let status = lt.cublasLtMatmulAlgoGetHeuristic(
            self.handle,
            self.description,
            a,
            b,
            c,
            d,
            preference,
            room,
            found.as_mut_ptr(),
            &raw mut count,
        );
        (status, found[..count.max(0) as usize].to_vec())
    }

    /// Returns the algorithms of the heuristic, at least one.
    pub(crate) fn algorithms(&self, lt: &Lt) -> Vec<Found> {
        let (status, found) = self.heuristic(lt, self.workspace.1);
        lt.cuda.ok(status);
        assert!(!found.is_empty());
        found
    }

    /// Enqueues the product and returns the status. `None` stands for no algorithm.
    pub(crate) fn enqueue(&self, lt: &Lt, algorithm: Option<&[u64; 8]>, stream: usize) -> u32 {
        let Self { handle, description, a, b, c, d, alpha, beta, workspace } = self;
        lt.cublasLtMatmul(
            *handle,
            *description,
            alpha,
            a.address,
            a.layout,
            b.address,
            b.layout,
            beta,
            c.address,
            c.layout,
            d.address,
            d.layout,
            algorithm.map_or(ptr::null(), ptr::from_ref),
            workspace.0,
            workspace.1,
            stream,
        )
    }

    pub(crate) fn end(self, lt: &Lt) {
        for matrices in [self.a, self.b, self.c, self.d] {
            matrices.end(lt);
        }
        lt.cuda.ok(lt.cuda.cuMemFree_v2(self.workspace.0));
        lt.cuda.ok(lt.cublasLtMatmulDescDestroy(self.description));
        lt.cuda.ok(lt.cublasLtDestroy(self.handle));
    }
}
