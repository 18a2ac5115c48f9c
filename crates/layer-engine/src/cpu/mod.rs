//! CPU engine. All kernels are in Rust. Convolutions and linear layers use the vector kernels of
//! [`simd`]; attention uses the matrix product of `gemm-f32` or `gemm-f64`.
//!
//! An *operation* is the computation of one kernel. A pass *saves* values by writing them to its
//! operand of `Role::Saved`, for the backward pass.

mod activation;
mod additive_attention;
mod attention;
mod avg_pool;
mod batch_norm;
mod concat;
mod conv;
mod dropout;
mod elementwise;
mod elementwise_loss;
mod embedding;
mod experts;
mod functions;
mod gemm;
mod group_norm;
mod layer_norm;
mod linear;
mod local_response_norm;
mod loss;
mod max_pool;
mod operation;
mod optimizer;
mod packed;
mod prepare;
pub(crate) mod processor;
mod product;
mod real;
mod rearrange;
mod recurrence;
mod rms_norm;
mod rotation;
mod row_norm;
mod scalars;
mod scaling;
mod sequence;
mod simd;
mod softmax;
mod sums;
mod workers;

use std::marker::PhantomData;
use std::ops::DerefMut;

use crate::{DeviceDescription, Engine, EngineError, KernelSpec, LaunchContext, Precision};
pub use operation::CpuKernel;
use operation::mismatch;
pub use real::Real;
pub use workers::ThreadPool;
use workers::Workers;

/// Name of the engine in error messages.
const NAME: &str = "the CPU engine";

/// Engine that runs layers on the CPU in the precision of its scalar: `CpuEngine<f32>` for
/// training, `CpuEngine<f64>` for checking.
///
/// `CpuEngine<f32>` also computes in [`Precision::Bf16`]: a kernel unpacks its operands of 16 bits
/// to single precision, computes as in single precision, and rounds its results. All kernels of an
/// engine and its clones share one workspace for these values, as large as the largest needs.
///
/// Its buffers are of type `B`: `Vec`s, or another owner of a slice that can be converted from and
/// to a `Vec`. Its queue runs work immediately, so `synchronize` does not wait. Buffers must have
/// exactly the length that the kernel's operand requires.
///
/// Results are bitwise the same for every number of threads: the parts into which a sum is divided
/// depend only on the shapes and the number of samples. Products use the widest vectors of the
/// processor (AVX-512, AVX2, or vectors that the compiler derives from plain loops). Processors
/// with fused multiply-add give the same bits; other processors round differently.
///
/// On one thread, launching a kernel allocates nothing, with one exception: the products of
/// attention pack their operands into memory that the crates `gemm-*` allocate.
///
/// A clone shares the threads of the original, as do the kernels.
#[derive(Debug, Clone)]
pub struct CpuEngine<T, B = Vec<T>> {
    workers: Workers,
    buffers: PhantomData<fn() -> (T, B)>,
}

impl<T: Real, B> CpuEngine<T, B> {
    /// Creates an engine that computes on the calling thread.
    #[must_use]
    pub fn new() -> Self {
        Self { workers: Workers::single(), buffers: PhantomData }
    }

    /// Creates an engine with its own pool of `threads` threads. With one thread it computes on the
    /// calling thread.
    ///
    /// # Errors
    /// [`EngineError::Threads`] if `threads` is 0 or the operating system cannot start them.
    pub fn with_threads(threads: usize) -> Result<Self, EngineError> {
        Ok(Self { workers: Workers::pool(threads)?, buffers: PhantomData })
    }

    /// Creates an engine that computes on the threads of a pool and divides its work among
    /// `threads` of them, or among all if the pool has fewer. If `threads` is 0 or 1, it computes
    /// on the calling thread and does not use the pool.
    ///
    /// A thread that launches a kernel blocks while the pool works. Engines that share a pool
    /// therefore use at most as many threads at once as the pool has.
    #[must_use]
    pub fn sharing(pool: &ThreadPool, threads: usize) -> Self {
        Self { workers: Workers::from_pool(pool, threads), buffers: PhantomData }
    }
}

impl<T: Real, B> Default for CpuEngine<T, B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Real, B> Engine for CpuEngine<T, B>
where
    B: Default + From<Vec<T>> + Into<Vec<T>> + DerefMut<Target = [T]>,
{
    type Scalar = T;
    type Buffer = B;
    type Queue = ();
    type Kernel = CpuKernel<T>;

    fn describe(&self) -> DeviceDescription {
        let mut description = processor::describe(self.workers.threads());
        let instructions = T::kernels()[0].name().to_owned();
        description.libraries.insert("vector instructions".to_owned(), instructions);
        description
    }

    fn allocate(&self, elements: usize) -> Result<Self::Buffer, EngineError> {
        let mut buffer = Vec::new();
        buffer
            .try_reserve_exact(elements)
            .map_err(|_| EngineError::OutOfMemory { engine: NAME, elements })?;
        buffer.resize(elements, T::zero());
        Ok(buffer.into())
    }

    fn queue(&self) -> Result<Self::Queue, EngineError> {
        Ok(())
    }

    fn upload(&self, host: &[T], buffer: &mut B, (): &mut ()) -> Result<(), EngineError> {
        let got = buffer.len();
        let target = buffer.get_mut(..host.len());
        target.ok_or_else(|| mismatch("upload", "buffer", host.len(), got))?.copy_from_slice(host);
        Ok(())
    }

    fn download(&self, buffer: &B, host: &mut [T], (): &mut ()) -> Result<(), EngineError> {
        let source = buffer.get(..host.len());
        host.copy_from_slice(source.ok_or_else(|| mismatch("download", "buffer", host.len(), buffer.len()))?);
        Ok(())
    }

    fn prepare(&self, spec: &KernelSpec<'_>, precision: Precision) -> Result<Self::Kernel, EngineError> {
        T::prepare(spec, precision, &self.workers)
    }

    fn enqueue(
        &self,
        kernel: &mut Self::Kernel,
        reads: &[&B],
        writes: &mut [&mut B],
        context: &LaunchContext,
        (): &mut (),
    ) -> Result<(), EngineError> {
        kernel.launch(reads, writes, context)
    }

    fn synchronize(&self, (): &mut ()) -> Result<(), EngineError> {
        Ok(())
    }
}
