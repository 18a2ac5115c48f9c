//! cuDNN's graph API, called by function names, in the emulated library and in the real one.
#![allow(unsafe_code, non_snake_case)]
#![allow(clippy::cast_possible_wrap, reason = "counts are small numbers")]

mod engines;
mod misuse;
mod node_statuses;
mod real;
mod results;
mod statuses;

use cuda_emulator::Emulator;
use libloading::Library;
use std::{ffi::c_void, ptr};

/// Kinds of descriptors.
pub(crate) const CONVOLUTION: u32 = 1;
pub(crate) const ENGINE: u32 = 2;
pub(crate) const CONFIGURATION: u32 = 3;
pub(crate) const HEURISTIC: u32 = 4;
pub(crate) const PLAN: u32 = 5;
pub(crate) const GRAPH: u32 = 15;
pub(crate) const VARIANT_PACK: u32 = 16;
pub(crate) const TENSOR: u32 = 17;
pub(crate) const DEVICE: u32 = 38;

/// Types of attributes.
pub(crate) const DATA_TYPE: u32 = 1;
pub(crate) const INT64: u32 = 3;
pub(crate) const FLOAT: u32 = 4;
pub(crate) const POINTER: u32 = 6;
pub(crate) const MODE: u32 = 7;
pub(crate) const HEURISTIC_MODE: u32 = 8;
pub(crate) const NOTE: u32 = 11;
pub(crate) const DESCRIPTOR: u32 = 15;
pub(crate) const INT32: u32 = 23;
pub(crate) const CHAR: u32 = 24;

/// Numerical notes.
pub(crate) const TENSOR_CORE: i32 = 0;
pub(crate) const DOWN_CONVERT_INPUTS: i32 = 1;
pub(crate) const NONDETERMINISTIC: i32 = 4;

/// Data types.
pub(crate) const F32: i32 = 0;
pub(crate) const F16: i32 = 2;
pub(crate) const BF16: i32 = 9;

/// The functions of cuDNN.
pub(crate) struct Cudnn(Library);

functions! {
    Cudnn.0:
    cudnnGetVersion();
    cudnnCreate(handle: *mut usize);
    cudnnDestroy(handle: usize);
    cudnnSetStream(handle: usize, stream: usize);
    cudnnGetStream(handle: usize, stream: *mut usize);
    cudnnBackendCreateDescriptor(kind: u32, descriptor: *mut usize);
    cudnnBackendDestroyDescriptor(descriptor: usize);
    cudnnBackendSetAttribute(descriptor: usize, name: u32, kind: u32, count: i64, values: *const c_void);
    cudnnBackendGetAttribute(
        descriptor: usize, name: u32, kind: u32, room: i64, count: *mut i64, values: *mut c_void
    );
    cudnnBackendFinalize(descriptor: usize);
    cudnnBackendExecute(handle: usize, plan: usize, pack: usize);
}

/// Value of an attribute.
#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    Int32(u32, &'a [i32]),
    Int64(&'a [i64]),
    Float(f32),
    Object(usize),
    Objects(&'a [usize]),
    Pointers(&'a [u64]),
    Text(&'a str),
}

impl Cudnn {
    pub(crate) fn emulated() -> Self {
        // SAFETY: loading the library runs none of its code.
        Self(unsafe { Library::new(Emulator::library().unwrap()) }.unwrap())
    }

    pub(crate) fn create(&self, kind: u32) -> usize {
        let mut descriptor = 0;
        assert_eq!(self.cudnnBackendCreateDescriptor(kind, &raw mut descriptor), 0);
        descriptor
    }

    pub(crate) fn set(&self, descriptor: usize, name: u32, value: Value) -> u32 {
        let (kind, count, values): (u32, usize, *const c_void) = match value {
            Value::Int32(kind, values) => (kind, values.len(), values.as_ptr().cast()),
            Value::Int64(values) => (INT64, values.len(), values.as_ptr().cast()),
            Value::Float(ref value) => (FLOAT, 1, ptr::from_ref(value).cast()),
            Value::Object(ref value) => (DESCRIPTOR, 1, ptr::from_ref(value).cast()),
            Value::Objects(values) => (DESCRIPTOR, values.len(), values.as_ptr().cast()),
            Value::Pointers(values) => (POINTER, values.len(), values.as_ptr().cast()),
            Value::Text(text) => (CHAR, text.len(), text.as_ptr().cast()),
        };
        self.cudnnBackendSetAttribute(descriptor, name, kind, count as i64, values)
    }

    /// Creates a descriptor, sets its attributes and finalises it. Returns it and all statuses.
    pub(crate) fn tried(&self, kind: u32, attributes: &[(u32, Value)]) -> (usize, Vec<u32>) {
        let descriptor = self.create(kind);
        let mut statuses: Vec<u32> =
            attributes.iter().map(|(name, value)| self.set(descriptor, *name, *value)).collect();
        statuses.push(self.cudnnBackendFinalize(descriptor));
        (descriptor, statuses)
    }

    /// Returns a finalised descriptor.
    #[track_caller]
    pub(crate) fn made(&self, kind: u32, attributes: &[(u32, Value)]) -> usize {
        let (descriptor, statuses) = self.tried(kind, attributes);
        assert!(statuses.iter().all(|status| *status == 0), "kind {kind}: {statuses:?}");
        descriptor
    }

    /// Returns the values of an attribute of 4 or 8 bytes, at most `N`.
    pub(crate) fn get<T: Copy + Default, const N: usize>(
        &self,
        descriptor: usize,
        name: u32,
        kind: u32,
    ) -> Vec<T> {
        let (mut values, mut count) = ([T::default(); N], 0);
        let place = values.as_mut_ptr().cast();
        let status = self.cudnnBackendGetAttribute(descriptor, name, kind, N as i64, &raw mut count, place);
        assert_eq!(status, 0, "attribute {name}");
        values[..count as usize].to_vec()
    }

    /// Returns the descriptors of an attribute, for each of which one of kind `kind` is created.
    pub(crate) fn objects(&self, descriptor: usize, name: u32, kind: u32) -> Vec<usize> {
        let mut count = 0;
        let (get, null) = (Cudnn::cudnnBackendGetAttribute, ptr::null_mut());
        assert_eq!(get(self, descriptor, name, DESCRIPTOR, 0, &raw mut count, null), 0);
        let mut objects: Vec<usize> = (0..count).map(|_| self.create(kind)).collect();
        let place = objects.as_mut_ptr().cast();
        assert_eq!(get(self, descriptor, name, DESCRIPTOR, count, &raw mut count, place), 0);
        for unused in objects.split_off(count as usize) {
            self.destroy(&[unused]);
        }
        objects
    }

    pub(crate) fn destroy(&self, descriptors: &[usize]) {
        for descriptor in descriptors {
            assert_eq!(self.cudnnBackendDestroyDescriptor(*descriptor), 0);
        }
    }

    /// Returns a descriptor of the properties of an H100.
    pub(crate) fn h100(&self) -> usize {
        self.made(DEVICE, &[(2702, Value::Text(H100))])
    }
}

/// Properties of an H100 as cuDNN's text.
pub(crate) const H100: &str = concat!(
    r#"{"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"#,
    r#""multiProcessorCount":132,"warpSize":32,"maxSharedMemoryPerBlock":49152,"#,
    r#""maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,"#,
    r#""maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"#,
    r#""pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"totalGlobalMem":85899345920,"#,
    r#""smClockRateKHz":1980000,"memClockRateKHz":2619000,"l2CacheSize":52428800,"cudaDeviceId":0,"#,
    r#""deviceVer":900,"driverVer":13000,"deviceName":"NVIDIA H100 80GB HBM3"}"#,
    "\0"
);

/// Passes: the kind of the operation and its attributes for the convolution, input, filter, output,
/// alpha and beta.
pub(crate) const PASSES: [(u32, [u32; 6]); 3] = [
    (10, [702, 704, 703, 705, 700, 701]),
    (12, [708, 710, 709, 711, 706, 707]),
    (11, [714, 716, 715, 717, 712, 713]),
];

/// Index in [`PASSES`] of the tensor that a pass computes, among input, filter and output.
pub(crate) const RESULTS: [usize; 3] = [2, 0, 1];

/// Two-dimensional convolution, for tests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) batch: i64,
    pub(crate) channels: i64,
    pub(crate) image: [i64; 2],
    pub(crate) filters: i64,
    pub(crate) window: [i64; 2],
    pub(crate) stride: i64,
    pub(crate) padding: [i64; 2],
    pub(crate) dilation: i64,
    pub(crate) groups: i64,
    /// Whether the filter is flipped.
    pub(crate) flipped: bool,
}

/// Convolution by windows of 3 x 3 that keeps the size of the image.
pub(crate) const SHAPE: Shape = Shape {
    batch: 2,
    channels: 8,
    image: [6, 6],
    filters: 8,
    window: [3, 3],
    stride: 1,
    padding: [1, 1],
    dilation: 1,
    groups: 1,
    flipped: false,
};

impl Shape {
    /// Returns the dimensions of input, filter and output.
    pub(crate) fn dimensions(&self) -> [[i64; 4]; 3] {
        let out: [i64; 2] = std::array::from_fn(|axis| {
            let window = self.dilation * (self.window[axis] - 1) + 1;
            (self.image[axis] + 2 * self.padding[axis] - window) / self.stride + 1
        });
        [
            [self.batch, self.channels, self.image[0], self.image[1]],
            [self.filters, self.channels / self.groups, self.window[0], self.window[1]],
            [self.batch, self.filters, out[0], out[1]],
        ]
    }
}

/// Returns the strides of a contiguous tensor.
pub(crate) fn strides([_, c, h, w]: [i64; 4], channels_last: bool) -> [i64; 4] {
    if channels_last { [h * w * c, 1, w * c, c] } else { [c * h * w, h * w, w, 1] }
}

impl Cudnn {
    /// Returns a finalised tensor that is aligned to 16 bytes.
    pub(crate) fn tensor(&self, id: i64, data_type: i32, dimensions: [i64; 4], strides: [i64; 4]) -> usize {
        self.made(
            TENSOR,
            &[
                (901, Value::Int32(DATA_TYPE, &[data_type])),
                (902, Value::Int64(&dimensions)),
                (903, Value::Int64(&strides)),
                (906, Value::Int64(&[id])),
                (900, Value::Int64(&[16])),
            ],
        )
    }

    /// Returns finalised parameters of a convolution.
    pub(crate) fn convolution(&self, shape: &Shape) -> usize {
        self.made(
            CONVOLUTION,
            &[
                (100, Value::Int32(DATA_TYPE, &[F32])),
                (101, Value::Int32(MODE, &[i32::from(!shape.flipped)])),
                (106, Value::Int64(&[2])),
                (105, Value::Int64(&shape.padding)),
                (104, Value::Int64(&shape.padding)),
                (103, Value::Int64(&[shape.stride; 2])),
                (102, Value::Int64(&[shape.dilation; 2])),
            ],
        )
    }

    /// Returns the operation graph of a pass with the tensors 1, 2 and 3 of the given strides.
    /// Other descriptors are destroyed.
    pub(crate) fn graph(
        &self,
        shape: &Shape,
        pass: usize,
        data_type: i32,
        strides: [[i64; 4]; 3],
        [alpha, beta]: [f32; 2],
    ) -> usize {
        let dimensions = shape.dimensions();
        let tensors: [usize; 3] = std::array::from_fn(|index| {
            self.tensor(index as i64 + 1, data_type, dimensions[index], strides[index])
        });
        let convolution = self.convolution(shape);
        let (kind, names) = PASSES[pass];
        let objects = [convolution, tensors[0], tensors[1], tensors[2]];
        let mut attributes: Vec<_> =
            names.iter().zip(objects).map(|(name, object)| (*name, Value::Object(object))).collect();
        attributes.extend([(names[4], Value::Float(alpha)), (names[5], Value::Float(beta))]);
        let operation = self.made(kind, &attributes);
        let graph = self.made(GRAPH, &[(801, Value::Objects(&[operation]))]);
        self.destroy(&[&objects[..], &[operation]].concat());
        graph
    }

    /// Returns the engine configurations that a heuristic mode proposes for an H100.
    pub(crate) fn proposed(&self, graph: usize, mode: i32, target: Option<i32>) -> Vec<usize> {
        let device = self.h100();
        let target = target.as_ref().map(std::slice::from_ref);
        let mut attributes = vec![
            (201, Value::Object(graph)),
            (200, Value::Int32(HEURISTIC_MODE, std::slice::from_ref(&mode))),
            (204, Value::Object(device)),
        ];
        attributes.extend(target.map(|target| (203, Value::Int32(INT32, target))));
        let heuristic = self.made(HEURISTIC, &attributes);
        let configurations = self.objects(heuristic, 202, CONFIGURATION);
        self.destroy(&[heuristic, device]);
        configurations
    }

    /// Returns the number and the numerical notes of the engine of a configuration.
    pub(crate) fn described(&self, configuration: usize) -> (i64, Vec<i32>) {
        let engine = self.objects(configuration, 300, ENGINE)[0];
        let index = self.get::<i64, 1>(engine, 1301, INT64)[0];
        let mut notes = self.get::<i32, 16>(engine, 1303, NOTE);
        notes.sort_unstable();
        self.destroy(&[engine]);
        (index, notes)
    }
}
