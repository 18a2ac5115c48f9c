//! Kernels with operands of 16 bits: their operands are unpacked to single precision, the kernel
//! of single precision runs, and its results are rounded.

use std::mem;

use super::operation::{CpuKernel, Operands, Operation};
use super::optimizer::SgdStep;
use super::prepare;
use super::workers::Workers;
use crate::storage::{pack_pairs, unpack_pairs};
use crate::{EngineError, KernelSpec, LaunchContext, Precision, Role, Signature, Storage};

/// Prepares the kernel of a description with operands as [`Role::storage`] defines in
/// [`Precision::Bf16`].
///
/// # Errors
/// As for kernels of single precision.
pub(super) fn kernel(spec: &KernelSpec<'_>, workers: &Workers) -> Result<CpuKernel<f32>, EngineError> {
    let (reads, writes) = match spec {
        KernelSpec::Layer { layer, pass, .. } => {
            let storage = |role: &Role| role.storage(layer, Precision::Bf16);
            let storages = |roles: Vec<Role>| roles.iter().map(storage).collect();
            Signature::of(layer, *pass)
                .map(|signature| (storages(signature.reads), storages(signature.writes)))
                .unwrap_or_default()
        }
        KernelSpec::Sum { terms, .. } => (vec![Storage::Bf16; *terms], vec![Storage::Bf16]),
        KernelSpec::SumParts { .. } => (vec![Storage::Bf16], vec![Storage::Bf16]),
        KernelSpec::Scale { .. } => (Vec::new(), vec![Storage::Bf16]),
        KernelSpec::Sgd { elements, rule } => {
            let [reads, writes] = rule.operands(elements, Precision::Bf16);
            let operation = Box::new(SgdWithMaster(SgdStep { rule: *rule, workers: workers.clone() }));
            return Ok(CpuKernel::new("Sgd".into(), reads, writes, operation));
        }
        // Their operands are gradients of parameters, in single precision.
        KernelSpec::Add { .. } | KernelSpec::SquaredNorm { .. } => {
            return prepare::kernel(spec, Precision::Bf16, workers);
        }
    };
    let kernel = prepare::kernel(spec, Precision::Bf16, workers)?;
    let scalars = |storages: &[Storage], elements: &[usize]| -> Vec<usize> {
        storages.iter().zip(elements).map(|(storage, &elements)| storage.scalars(elements)).collect()
    };
    let unpacked = |storages: &[Storage], elements: &[usize]| -> Vec<Option<usize>> {
        let own = |(storage, &elements): (&Storage, &usize)| (*storage == Storage::Bf16).then_some(elements);
        storages.iter().zip(elements).map(own).collect()
    };
    let packed = Packed {
        reads: unpacked(&reads, &kernel.reads),
        writes: unpacked(&writes, &kernel.writes),
        operation: kernel.operation,
        read_slices: Vec::with_capacity(reads.len()),
        write_slices: Vec::with_capacity(writes.len()),
        workers: workers.clone(),
    };
    // Launches allocate nothing.
    drop(workers.workspace(packed.workspace_elements()));
    let operation = Box::new(packed);
    let (reads, writes) = (scalars(&reads, &kernel.reads), scalars(&writes, &kernel.writes));
    Ok(CpuKernel::new(kernel.name, reads, writes, operation))
}

/// An operation of single precision on operands of which some have 16 bits.
struct Packed {
    operation: Box<dyn Operation<f32>>,
    /// Number of elements of each operand of 16 bits that is read; `None` for other operands.
    reads: Vec<Option<usize>>,
    /// Number of elements of each operand of 16 bits that is written; `None` for other operands.
    writes: Vec<Option<usize>>,
    /// Memory for the operands of a launch, as slices. Empty between launches.
    read_slices: Vec<&'static [f32]>,
    write_slices: Vec<&'static mut [f32]>,
    /// The threads with the workspace for the values of operands of 16 bits: those that are read,
    /// then those that are written.
    workers: Workers,
}

impl Packed {
    /// Returns the number of elements of all operands of 16 bits.
    fn workspace_elements(&self) -> usize {
        self.reads.iter().chain(&self.writes).flatten().sum()
    }
}

impl Operation<f32> for Packed {
    fn run(&mut self, operands: Operands<'_, '_, f32>, context: &LaunchContext) -> Result<(), EngineError> {
        let Operands { kernel, reads, writes } = operands;
        let mut workspace = self.workers.workspace(self.workspace_elements());
        let mut free = &mut workspace[..];
        let mut unpack = |scalars: &[f32], elements| {
            let (values, rest) = mem::take(&mut free).split_at_mut(elements);
            free = rest;
            unpack_pairs(scalars, values);
            values
        };
        let mut read_slices: Vec<&[f32]> = mem::take(&mut self.read_slices);
        let mut write_slices: Vec<&mut [f32]> = mem::take(&mut self.write_slices);
        read_slices.extend(self.reads.iter().zip(reads).map(|(elements, own)| match elements {
            Some(elements) => &*unpack(own, *elements),
            None => own,
        }));
        // Operands that are written may be updated in place.
        write_slices.extend(self.writes.iter().zip(&mut *writes).map(|(elements, own)| match elements {
            Some(elements) => unpack(own, *elements),
            None => &mut **own,
        }));
        let operands = Operands { kernel, reads: &read_slices, writes: &mut write_slices };
        let result = self.operation.run(operands, context);
        // A collection in place: the memory is kept, for slices of another lifetime.
        self.read_slices = read_slices.into_iter().map_while(|_| None).collect();
        self.write_slices = write_slices.into_iter().map_while(|_| None).collect();
        let mut used = &workspace[self.reads.iter().flatten().sum()..];
        for (elements, scalars) in self.writes.iter().zip(writes) {
            if let Some(elements) = elements {
                let (values, rest) = used.split_at(*elements);
                pack_pairs(values, scalars);
                used = rest;
            }
        }
        result
    }
}

/// Update of parameters of 16 bits by stochastic gradient descent: the master parameters are
/// updated, and rounded to the parameters.
struct SgdWithMaster(SgdStep);

impl Operation<f32> for SgdWithMaster {
    fn run(&mut self, operands: Operands<'_, '_, f32>, context: &LaunchContext) -> Result<(), EngineError> {
        let Operands { reads, writes, .. } = operands;
        let scale = self.0.scale(reads);
        for (gradient, updated) in reads.iter().zip(writes.chunks_exact_mut(3)) {
            if let [parameters, master, velocity] = updated {
                self.0.step(gradient, master, velocity, scale, context.learning_rate);
                pack_pairs(master, parameters);
            }
        }
        Ok(())
    }
}
