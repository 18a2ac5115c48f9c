//! Prepared kernels: launches of GPU functions over *operands*, the buffers that are read or
//! written. Operands that are read and operands that are written are counted separately from 0, in
//! the order in which the caller of `Engine::enqueue` passes them.
#![allow(unsafe_code)]

use std::borrow::Borrow;
use std::sync::Arc;

use cuda::{Address, Buffer, LaunchShape, MAX_ARGUMENTS};

use super::operand::Operand;
use super::tensors::TensorTable;
use super::{CudaQueue, NAME};
use crate::{EngineError, KernelPart};

/// Number of 32-bit fields that [`Argument::Struct`] holds: those of the largest struct parameter,
/// `Geometry` in `kernels/convolution.cu`.
const STRUCT_FIELDS: usize = 15;

/// Value of one parameter of a GPU function, or the rule by which a launch finds it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Argument {
    /// Address in an operand that is read: index of the operand, and index of the element in it.
    Read(usize, usize),
    /// Address in an operand that is written: index of the operand, and index of the element in it.
    Write(usize, usize),
    /// Address in the kernel's workspace: index of the buffer, and index of the word of 32 bits in
    /// it.
    Workspace(usize, usize),
    /// Address of the seed, iteration and learning rate in the queue's memory.
    Context,
    /// The launch's table of tensors.
    Tensors,
    /// A 32-bit integer.
    U32(u32),
    /// A 64-bit integer.
    U64(u64),
    /// A single-precision number.
    F32(f32),
    /// A double-precision number.
    F64(f64),
    /// Fields of a struct of 32-bit integers, in order. The function reads as many as its struct
    /// has; the others are unused.
    Struct([u32; STRUCT_FIELDS]),
}

impl Argument {
    /// Null pointer, for an operand that the pass does not have.
    pub(super) const NONE: Self = Self::U64(0);

    /// Returns a struct with these fields, at most [`STRUCT_FIELDS`].
    pub(super) fn fields(numbers: impl IntoIterator<Item = usize>) -> Self {
        let mut fields = [0; STRUCT_FIELDS];
        fields.iter_mut().zip(numbers).for_each(|(field, number)| *field = number as u32);
        Self::Struct(fields)
    }

    /// Returns the address `element` elements further in the same operand, or words in the same
    /// workspace. Other arguments are returned unchanged.
    pub(super) fn offset(self, element: usize) -> Self {
        match self {
            Self::Read(operand, first) => Self::Read(operand, first + element),
            Self::Write(operand, first) => Self::Write(operand, first + element),
            Self::Workspace(buffer, first) => Self::Workspace(buffer, first + element),
            other => other,
        }
    }
}

/// One launch of a GPU function.
#[derive(Debug)]
pub(super) struct GpuLaunch {
    /// Function that is launched, with blocks of `THREADS` threads.
    pub(super) function: cuda::Kernel,
    /// Name of the function in its `.cu` file.
    pub(super) name: &'static str,
    /// Number of blocks along x and y.
    pub(super) grid: [u32; 2],
    /// Arguments in the order of the function's parameters, at most [`MAX_ARGUMENTS`].
    pub(super) arguments: Vec<Argument>,
    /// Table for [`Argument::Tensors`], if the function has one.
    pub(super) tensors: Option<TensorTable>,
}

/// Maximum number of operands of a call of a library: those of the gradient of attention.
pub(super) const LIBRARY_OPERANDS: usize = 5;

/// One call of a vendor's library, which enqueues the work that computes a part of a kernel. The
/// library's workspace is that of the queue.
#[derive(Debug)]
pub(super) struct LibraryLaunch {
    /// The call: an algorithm of the library for fixed shapes.
    pub(super) call: LibraryCall,
    /// Name of the algorithm, such as `cuDNN engine 1`.
    pub(super) name: Arc<str>,
    /// Operands in the order of the call's parameters; [`Argument::NONE`] for those that it lacks.
    pub(super) operands: [Argument; LIBRARY_OPERANDS],
}

/// Algorithm of a vendor's library.
#[derive(Debug)]
pub(super) enum LibraryCall {
    /// Matrix product of cuBLASLt: both factors, the result, and the bias if there is one.
    Product(cuda::Product),
    /// Convolution of cuDNN: operands input, weights and output, or their gradients.
    Convolution(cuda::Convolution),
    /// Attention of cuDNN: operands input, output, statistics, and the gradients of output and
    /// input if it is a backward pass.
    Attention(cuda::Attention),
}

impl LibraryCall {
    /// Returns the size of the workspace that the call needs, in bytes.
    pub(super) fn workspace_bytes(&self) -> usize {
        match self {
            Self::Product(product) => product.workspace_bytes(),
            Self::Convolution(convolution) => convolution.workspace_bytes(),
            Self::Attention(attention) => attention.workspace_bytes(),
        }
    }
}

/// One launch of a kernel.
#[derive(Debug)]
pub(super) enum Launch {
    /// Of a function of this crate.
    Function(GpuLaunch),
    /// By a vendor's library.
    Library(Box<LibraryLaunch>),
}

impl Launch {
    /// Returns the size of the workspace that the launch needs of its queue, in bytes.
    pub(super) fn workspace_bytes(&self) -> usize {
        match self {
            Self::Function(_) => 0,
            Self::Library(library) => library.call.workspace_bytes(),
        }
    }
}

/// Number of threads of every block, as in `kernels/basics.cuh`.
pub(super) const THREADS: u32 = 256;

/// A prepared kernel of a [`CudaEngine`](crate::CudaEngine) with its workspace: one or several
/// launches with fixed parameters.
///
/// A kernel can be sent to another thread.
#[derive(Debug)]
pub struct CudaKernel {
    /// Name in error messages: the layer and the pass, or the kind of a kernel that belongs to no
    /// layer.
    pub(super) name: Arc<str>,
    /// Operands that are read.
    pub(super) reads: Vec<Operand>,
    /// Operands that are written.
    pub(super) writes: Vec<Operand>,
    /// Launches in the order in which they are enqueued.
    pub(super) launches: Vec<Launch>,
    /// Workspace and tables in device memory.
    pub(super) workspace: Vec<Buffer<u32>>,
    /// The parts for which there was a choice of candidates.
    pub(super) parts: Vec<KernelPart>,
}

impl CudaKernel {
    /// Returns whether the kernel reads the [`LaunchContext`](crate::LaunchContext). Other kernels
    /// do the same work in every iteration.
    #[must_use]
    pub fn reads_context(&self) -> bool {
        let reads = |launch: &Launch| match launch {
            Launch::Function(function) => {
                function.arguments.iter().any(|argument| matches!(argument, Argument::Context))
            }
            Launch::Library(_) => false,
        };
        self.launches.iter().any(reads)
    }

    /// Returns the number of launches of GPU functions and calls of libraries that the kernel
    /// consists of.
    #[must_use]
    pub fn launches(&self) -> usize {
        self.launches.len()
    }

    /// Returns an upper bound of the bytes that the launches read and write: of each launch, its
    /// operands and workspaces from the given address on, and twice those that an optimiser step
    /// updates. What libraries write to their own workspace does not count, and sums that blocks of
    /// the same launch pass on (a few kilobytes) count once.
    #[must_use]
    pub fn traffic_bytes(&self) -> u64 {
        let from = |operand: &Operand, first| operand.offset(operand.elements.saturating_sub(first));
        let of_argument = |argument: &Argument| match *argument {
            Argument::Read(operand, first) => from(&self.reads[operand], first),
            Argument::Write(operand, first) => from(&self.writes[operand], first),
            Argument::Workspace(buffer, first) => 4 * self.workspace[buffer].len().saturating_sub(first),
            _ => 0,
        };
        let bytes = |launch: &Launch| -> usize {
            match launch {
                Launch::Function(function) => {
                    let of_tensors = function.tensors.as_ref().map_or(0, TensorTable::traffic_bytes);
                    of_tensors + function.arguments.iter().map(of_argument).sum::<usize>()
                }
                Launch::Library(library) => library.operands.iter().map(of_argument).sum(),
            }
        };
        self.launches.iter().map(|launch| bytes(launch) as u64).sum()
    }

    /// Returns the parts that a vendor's library or functions of this crate may compute, and which
    /// do.
    #[must_use]
    pub fn parts(&self) -> &[KernelPart] {
        &self.parts
    }

    /// Returns what the kernel needs of its queue: the size of the libraries' workspace in bytes,
    /// and whether there is a handle of cuDNN.
    fn library_needs(&self) -> (usize, bool) {
        let libraries = self.launches.iter().filter_map(|launch| match launch {
            Launch::Function(_) => None,
            Launch::Library(library) => Some(&library.call),
        });
        libraries.fold((0, false), |(bytes, uses_cudnn), call| {
            let is_of_cudnn = matches!(call, LibraryCall::Convolution(_) | LibraryCall::Attention(_));
            (bytes.max(call.workspace_bytes()), uses_cudnn || is_of_cudnn)
        })
    }

    /// Checks the operands and enqueues all launches of the kernel, with the launch context of the
    /// queue.
    ///
    /// # Errors
    /// See [`CudaQueue::launch`].
    pub(super) fn launch<'a>(
        &self,
        reads: &(impl ExactSizeIterator<Item = &'a Buffer<f32>> + Clone),
        writes: &(impl ExactSizeIterator<Item = &'a Buffer<f32>> + Clone),
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        self.check("reads", &self.reads, reads.clone())?;
        self.check("writes", &self.writes, writes.clone())?;
        if queue.context().is_none() && self.reads_context() {
            let problem = format!("`{}` reads the launch context of the queue, which was not set", self.name);
            return Err(EngineError::Library { engine: NAME, problem });
        }
        queue.prepare_for([self])?;
        for launch in &self.launches {
            let (name, launched): (&str, _) = match launch {
                Launch::Function(function) => {
                    (function.name, self.launch_function(function, reads, writes, queue))
                }
                Launch::Library(library) => (&library.name, self.call_library(library, reads, writes, queue)),
            };
            launched.map_err(|source| EngineError::Cuda {
                action: format!("`{}` ({name})", self.name),
                source: source.into(),
            })?;
        }
        queue.record_kernel(&self.name);
        Ok(())
    }

    fn launch_function<'a>(
        &self,
        launch: &GpuLaunch,
        reads: &(impl ExactSizeIterator<Item = &'a Buffer<f32>> + Clone),
        writes: &(impl ExactSizeIterator<Item = &'a Buffer<f32>> + Clone),
        queue: &CudaQueue,
    ) -> cuda::Result<()> {
        let GpuLaunch { function, grid: [x, y], arguments, tensors, .. } = launch;
        // Only optimiser steps have a table. It takes some kilobytes, so others do not fill one.
        let mut table;
        let words: &[u32] = match tensors {
            Some(tensors) => {
                table = [0; TensorTable::WORDS];
                tensors.write(reads.clone(), writes.clone(), queue.stream(), &mut table)?;
                &table
            }
            None => &[],
        };
        let mut values = [cuda::Argument::from(0_u64); MAX_ARGUMENTS];
        for (value, argument) in values.iter_mut().zip(arguments) {
            *value = match argument {
                Argument::Tensors => cuda::Argument::words(words),
                argument => self.value(argument, reads, writes, queue),
            };
        }
        let shape = LaunchShape { blocks: [*x, *y, 1], ..LaunchShape::linear(1, THREADS) };
        let values = &values[..arguments.len()];
        // SAFETY: the arguments were added for this function, and the operands have the lengths
        // that the kernel was prepared for. Buffers are freed when all work is complete.
        unsafe { function.launch(queue.stream(), shape, values) }
    }

    fn call_library<'a>(
        &self,
        launch: &LibraryLaunch,
        reads: &(impl ExactSizeIterator<Item = &'a Buffer<f32>> + Clone),
        writes: &(impl ExactSizeIterator<Item = &'a Buffer<f32>> + Clone),
        queue: &mut CudaQueue,
    ) -> cuda::Result<()> {
        let stream = queue.stream().clone();
        let address = |operand: &Argument| match *operand {
            Argument::Read(operand, index) => {
                Some(Address::byte(reads.clone().nth(operand)?, self.reads[operand].offset(index)))
            }
            Argument::Write(operand, index) => {
                Some(Address::byte(writes.clone().nth(operand)?, self.writes[operand].offset(index)))
            }
            Argument::Workspace(buffer, word) => Some(Address::element(&self.workspace[buffer], word)),
            _ => None,
        };
        let operands = launch.operands.each_ref().map(address);
        let [a, b, c, bias, _] = operands;
        let (workspace, cudnn) = queue.libraries();
        let missing = || cuda::Error::Invalid("the call lacks an operand or a handle".to_owned());
        // SAFETY: the operands were added for this call and have the lengths that the kernel was
        // prepared for; the workspace is only used in this queue. Buffers are freed when all work
        // is complete.
        unsafe {
            match (&launch.call, [a, b, c], cudnn) {
                (LibraryCall::Product(product), [Some(a), Some(b), Some(d)], _) => {
                    product.enqueue(&stream, [a, b, d], bias, workspace)
                }
                (LibraryCall::Convolution(convolution), [Some(x), Some(w), Some(y)], Some(handle)) => {
                    convolution.enqueue(handle, [x, w, y], workspace)
                }
                (LibraryCall::Attention(attention), _, Some(handle)) => {
                    let operands: Vec<_> = operands.into_iter().flatten().collect();
                    attention.enqueue(handle, &operands, workspace)
                }
                _ => Err(missing()),
            }
        }
    }

    /// Returns the value of an argument for a launch.
    fn value<'v, 'a: 'v>(
        &'v self,
        argument: &'v Argument,
        reads: &(impl ExactSizeIterator<Item = &'a Buffer<f32>> + Clone),
        writes: &(impl ExactSizeIterator<Item = &'a Buffer<f32>> + Clone),
        queue: &'v CudaQueue,
    ) -> cuda::Argument<'v> {
        let element = |buffer: Option<&'a Buffer<f32>>, operand: &Operand, index| {
            let address = |buffer| cuda::Argument::byte(buffer, operand.offset(index));
            buffer.map_or_else(|| 0_u64.into(), address)
        };
        match argument {
            Argument::Read(operand, index) => {
                element(reads.clone().nth(*operand), &self.reads[*operand], *index)
            }
            Argument::Write(operand, index) => {
                element(writes.clone().nth(*operand), &self.writes[*operand], *index)
            }
            Argument::Workspace(buffer, word) => cuda::Argument::element(&self.workspace[*buffer], *word),
            Argument::Context => queue.context_memory().into(),
            // It is written at the launch.
            Argument::Tensors => 0_u64.into(),
            Argument::U32(value) => (*value).into(),
            Argument::U64(value) => (*value).into(),
            Argument::F32(value) => (*value).into(),
            Argument::F64(value) => (*value).into(),
            Argument::Struct(fields) => cuda::Argument::words(fields),
        }
    }

    fn check<'a>(
        &self,
        side: &str,
        expected: &[Operand],
        mut got: impl ExactSizeIterator<Item = &'a Buffer<f32>>,
    ) -> Result<(), EngineError> {
        let mismatch = |operand: String, expected, got| {
            Err(EngineError::Operand { kernel: self.name.as_ref().into(), operand, expected, got })
        };
        if got.len() != expected.len() {
            return mismatch(side.into(), expected.len(), got.len());
        }
        let mut operands = got.by_ref().zip(expected).enumerate();
        let unfit = operands.find(|(_, (got, expected))| got.len() != expected.scalars());
        match unfit {
            Some((index, (got, expected))) => {
                mismatch(format!("{side}[{index}]"), expected.scalars(), got.len())
            }
            None => Ok(()),
        }
    }
}

impl CudaQueue {
    /// Allocates what these kernels need of a queue: the workspace of libraries, and a handle of
    /// cuDNN. Otherwise the first launch of a kernel does, which may wait for the queue.
    ///
    /// # Errors
    /// [`EngineError::Library`] if the queue is being captured; [`EngineError::OutOfMemory`];
    /// [`EngineError::Cuda`].
    pub fn prepare_for<'k>(
        &mut self,
        kernels: impl IntoIterator<Item = &'k CudaKernel>,
    ) -> Result<(), EngineError> {
        let (mut bytes, mut uses_cudnn) = (0, false);
        for kernel in kernels {
            let needs = kernel.library_needs();
            (bytes, uses_cudnn) = (bytes.max(needs.0), uses_cudnn || needs.1);
        }
        self.prepare_libraries(bytes, uses_cudnn)
    }

    /// Enqueues a kernel with the launch context that was [set](Self::set_context) last. Allocates
    /// nothing.
    ///
    /// The operands are those of [`Engine::enqueue`](crate::Engine::enqueue). For a correct result,
    /// written memory overlaps no other operand, other streams do not access it during the work,
    /// and the kernel does not run in two streams at once, because it has one workspace.
    ///
    /// # Errors
    /// [`EngineError::Operand`] if the operands do not match the kernel in number or length;
    /// [`EngineError::Library`] if the kernel reads the launch context and none was set;
    /// [`EngineError::Cuda`] if a launch fails.
    pub fn launch<R: Borrow<Buffer<f32>>, W: Borrow<Buffer<f32>>>(
        &mut self,
        kernel: &CudaKernel,
        reads: &[R],
        writes: &[W],
    ) -> Result<(), EngineError> {
        kernel.launch(&reads.iter().map(Borrow::borrow), &writes.iter().map(Borrow::borrow), self)
    }
}
