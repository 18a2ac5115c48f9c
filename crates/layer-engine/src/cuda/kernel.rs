//! Prepared kernels: launches of GPU functions over *operands*, the buffers that are read or
//! written. Operands that are read and operands that are written are counted separately from 0, in
//! the order in which the caller of `Engine::enqueue` passes them. All elements are `f32`.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr::from_ref;
use std::sync::Arc;

use super::buffer::DeviceSlice;
use super::device::Function;
use super::driver_error;
use super::memory::DeviceMemory;
use super::queue::CudaQueue;
use crate::{EngineError, LaunchContext};

/// Maximum number of arguments of a kernel.
const MAX_ARGUMENTS: usize = 16;

/// Number of 32-bit fields that [`Argument::Struct`] holds: those of the largest struct parameter,
/// `Geometry` in `kernels/convolution.cu`.
pub(super) const STRUCT_FIELDS: usize = 13;

/// Value of one parameter of a GPU function, or the rule by which a launch finds it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Argument {
    /// Address in an operand that is read: index of the operand, and index of the element in it.
    Read(usize, usize),
    /// Address in an operand that is written: index of the operand, and index of the element in it.
    Write(usize, usize),
    /// A fixed device address, in the kernel's workspace; 0 is a null pointer.
    Address(u64),
    /// Address of the seed, iteration and learning rate in the queue's memory.
    Context,
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
    pub(super) const NONE: Self = Self::Address(0);

    /// Returns the address `element` elements further in the same operand. Other arguments are
    /// returned unchanged.
    pub(super) fn offset(self, element: usize) -> Self {
        match self {
            Self::Read(operand, first) => Self::Read(operand, first + element),
            Self::Write(operand, first) => Self::Write(operand, first + element),
            other => other,
        }
    }
}

/// One launch of a GPU function.
#[derive(Debug)]
pub(super) struct GpuLaunch {
    /// Function that is launched, with blocks of `THREADS` threads.
    pub(super) function: Function,
    /// Number of blocks along x and y.
    pub(super) grid: [u32; 2],
    /// Arguments in the order of the function's parameters, at most 16.
    pub(super) arguments: Vec<Argument>,
}

/// Number of threads of every block, as in `kernels/basics.cuh`.
pub(super) const THREADS: u32 = 256;

/// A prepared kernel of a [`CudaEngine`](crate::CudaEngine) with its workspace: one or several
/// launches with fixed parameters.
///
/// A kernel can be sent to another thread. It must outlive every graph that captured it.
#[derive(Debug)]
pub struct CudaKernel {
    /// Name in error messages: the layer and the pass, or the kind of a kernel that belongs to no
    /// layer.
    pub(super) name: Arc<str>,
    /// Number of elements of each operand that is read.
    pub(super) reads: Vec<usize>,
    /// Number of elements of each operand that is written.
    pub(super) writes: Vec<usize>,
    /// Launches in the order in which they are enqueued.
    pub(super) launches: Vec<GpuLaunch>,
    /// Workspace and tables in device memory. The arguments of the launches contain their
    /// addresses.
    pub(super) _memory: Vec<DeviceMemory>,
}

impl CudaKernel {
    /// Returns whether the kernel reads the [`LaunchContext`]. Other kernels do the same work in
    /// every iteration.
    #[must_use]
    pub fn reads_context(&self) -> bool {
        self.launches
            .iter()
            .flat_map(|step| &step.arguments)
            .any(|argument| matches!(argument, Argument::Context))
    }

    /// Returns the number of launches of GPU functions that the kernel consists of.
    #[must_use]
    pub fn launches(&self) -> usize {
        self.launches.len()
    }

    /// Checks the operands and enqueues all launches of the kernel. `context` is used only if the
    /// kernel reads it.
    ///
    /// # Errors
    /// [`EngineError::Operand`] if the operands do not match in number or length,
    /// [`EngineError::Library`] if a launch fails.
    ///
    /// # Safety
    /// The operands are memory of the queue's device that stays valid until the kernel is complete,
    /// or as long as the graph if the queue is being captured.
    pub(super) unsafe fn launch(
        &self,
        reads: &(impl ExactSizeIterator<Item = DeviceSlice> + Clone),
        writes: &(impl ExactSizeIterator<Item = DeviceSlice> + Clone),
        context: &LaunchContext,
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        self.check("reads", &self.reads, reads.clone())?;
        self.check("writes", &self.writes, writes.clone())?;
        if self.reads_context() {
            queue.set_context(context)?;
        }
        let driver_error =
            |function: &str, error| driver_error(&format!("`{}` ({function})", self.name), error);
        queue.device().bind().map_err(|error| driver_error("select its device", error))?;
        let address = |slice: Option<DeviceSlice>, element: usize| {
            slice.map_or(0, |slice| slice.pointer + (element * size_of::<f32>()) as u64)
        };
        for GpuLaunch { function, grid, arguments } in &self.launches {
            let mut addresses = [0_u64; MAX_ARGUMENTS];
            let mut pointers = [std::ptr::null_mut::<c_void>(); MAX_ARGUMENTS];
            let slots = addresses.iter_mut().zip(&mut pointers);
            for (argument, (place, pointer)) in arguments.iter().zip(slots) {
                match argument {
                    Argument::Read(operand, element) => {
                        *place = address(reads.clone().nth(*operand), *element);
                    }
                    Argument::Write(operand, element) => {
                        *place = address(writes.clone().nth(*operand), *element);
                    }
                    Argument::Address(address) => *place = *address,
                    Argument::Context => *place = queue.context_address(),
                    _ => {}
                }
                *pointer = match argument {
                    Argument::U32(value) => from_ref(value).cast_mut().cast(),
                    Argument::U64(value) => from_ref(value).cast_mut().cast(),
                    Argument::F32(value) => from_ref(value).cast_mut().cast(),
                    Argument::F64(value) => from_ref(value).cast_mut().cast(),
                    Argument::Struct(values) => values.as_ptr().cast_mut().cast(),
                    _ => from_ref(place).cast_mut().cast(),
                };
            }
            let used = &mut pointers[..arguments.len().min(MAX_ARGUMENTS)];
            // SAFETY: the arguments were added for this function; the operands have the lengths
            // that the kernel was prepared for, and the caller guarantees their validity.
            unsafe { function.launch(*grid, THREADS, queue.stream(), used) }
                .map_err(|error| driver_error(function.name, error))?;
        }
        queue.record_kernel(&self.name);
        Ok(())
    }

    fn check(
        &self,
        side: &str,
        expected: &[usize],
        mut got: impl ExactSizeIterator<Item = DeviceSlice>,
    ) -> Result<(), EngineError> {
        let mismatch = |operand: String, expected, got| {
            Err(EngineError::Operand { kernel: self.name.as_ref().into(), operand, expected, got })
        };
        if got.len() != expected.len() {
            return mismatch(side.into(), expected.len(), got.len());
        }
        let unfit =
            got.by_ref().zip(expected).enumerate().find(|(_, (got, expected))| got.elements != **expected);
        match unfit {
            Some((index, (got, &expected))) => mismatch(format!("{side}[{index}]"), expected, got.elements),
            None => Ok(()),
        }
    }
}
