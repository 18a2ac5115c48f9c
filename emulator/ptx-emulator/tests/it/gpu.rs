//! A module with its memory, and arguments for its kernels.

use ptx_emulator::{Dimensions, LaunchError, Memory, Module, Options};
use std::fmt::Debug;

pub(crate) struct Gpu {
    pub(crate) memory: Memory,
    pub(crate) module: Module,
    pub(crate) options: Options,
}

/// Value of an argument or in memory.
pub(crate) trait Value: Copy {
    fn bytes(self) -> Vec<u8>;
    fn from_bytes(bytes: &[u8]) -> Self;
}

macro_rules! values {
    ($($number:ty)*) => {$(
        impl Value for $number {
            fn bytes(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }

            fn from_bytes(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().unwrap())
            }
        }
    )*};
}

values!(u8 u16 i16 u32 i32 u64 i64 f32 f64);

/// Builds the arguments of a launch.
macro_rules! arguments {
    ($($argument:expr),* $(,)?) => { [$($crate::gpu::Value::bytes($argument)),*] };
}
pub(crate) use arguments;

impl Gpu {
    /// Creates a device whose memory tracks writes, so that all checks are possible.
    pub(crate) fn new(ptx: &str) -> Self {
        Self::with(ptx, Memory::with_write_tracking())
    }

    /// Creates a device that checks only bounds, which uses the fast path of accesses.
    pub(crate) fn plain(ptx: &str) -> Self {
        Self::with(ptx, Memory::new())
    }

    fn with(ptx: &str, mut memory: Memory) -> Self {
        let module = Module::load(ptx, &mut memory).unwrap_or_else(|error| panic!("{error}"));
        Self { memory, module, options: Options::default() }
    }

    pub(crate) fn allocate(&mut self, bytes: usize) -> u64 {
        self.memory.allocate(bytes as u64).unwrap()
    }

    pub(crate) fn upload<T: Value>(&mut self, values: &[T]) -> u64 {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.bytes()).collect();
        let address = self.allocate(bytes.len());
        self.memory.write(address, &bytes).unwrap();
        address
    }

    pub(crate) fn zeros<T: Value + Default>(&mut self, count: usize) -> u64 {
        self.upload(&vec![T::default(); count])
    }

    pub(crate) fn download<T: Value>(&self, address: u64, count: usize) -> Vec<T> {
        let mut bytes = vec![0; count * size_of::<T>()];
        self.memory.read(address, &mut bytes).unwrap();
        bytes.chunks(size_of::<T>()).map(T::from_bytes).collect()
    }

    pub(crate) fn launch(
        &self,
        kernel: &str,
        dimensions: Dimensions,
        arguments: &[Vec<u8>],
    ) -> Result<u64, LaunchError> {
        let arguments: Vec<_> = arguments.iter().map(Vec::as_slice).collect();
        self.module.launch(&self.memory, kernel, dimensions, &arguments, &self.options)
    }

    pub(crate) fn run(&self, kernel: &str, dimensions: Dimensions, arguments: &[Vec<u8>]) {
        self.launch(kernel, dimensions, arguments).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Returns pseudo-random numbers between -1 and 1.
pub(crate) fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// Describes the first number that differs from the expected one by more than `tolerance`, relative
/// to the maximum of the expected numbers.
pub(crate) fn difference(found: &[f32], expected: &[f64], tolerance: f64) -> Option<String> {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(1e-30_f64, |largest, value| largest.max(value.abs()));
    found.iter().zip(expected).enumerate().find_map(|(index, (found, expected))| {
        let distance = (f64::from(*found) - expected).abs() / largest;
        (!(distance <= tolerance))
            .then(|| format!("at {index}: {found} where {expected} is expected, {distance:.2e} off"))
    })
}

#[track_caller]
pub(crate) fn assert_close(found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(difference(found, expected, tolerance), None);
}

#[track_caller]
pub(crate) fn assert_all<T: PartialEq + Debug>(found: &[T], expected: &[T]) {
    assert_eq!(found.len(), expected.len());
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(found == expected, "at {index}: {found:?} where {expected:?} is expected");
    }
}
