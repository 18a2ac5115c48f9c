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
        KernelSpec::Scale { .. } => (Vec::new(), vec![Storage::Bf16]),
        KernelSpec::Sgd { elements, rule } => {
            let [reads, writes] = rule.operands(elements, Precision::Bf16);
            let operation = Box::new(SgdWithMaster(SgdStep { rule: *rule, workers: workers.clone() }));
            return Ok(CpuKernel::new("Sgd".into(), reads, writes, operation));
        }
        // Their operands are gradients of parameters, in single precision.
        KernelSpec::Add { .. }
        | KernelSpec::Pack { .. }
        | KernelSpec::Unpack { .. }
        | KernelSpec::SquaredNorm { .. } => return prepare::kernel(spec, Precision::Bf16, workers),
    };
    let kernel = prepare::kernel(spec, Precision::Bf16, workers)?;
    let scalars = |storages: &[Storage], elements: &[usize]| -> Vec<usize> {
        storages.iter().zip(elements).map(|(storage, &elements)| storage.scalars(elements)).collect()
    };
    let workspaces = |storages: &[Storage], elements: &[usize]| -> Vec<Unpacked> {
        let workspace = |(storage, &elements): (&Storage, &usize)| match storage {
            Storage::Scalar => None,
            Storage::Bf16 => Some(vec![0.0; elements]),
        };
        storages.iter().zip(elements).map(workspace).collect()
    };
    let operation = Box::new(Packed {
        reads: workspaces(&reads, &kernel.reads),
        writes: workspaces(&writes, &kernel.writes),
        operation: kernel.operation,
        read_slices: Vec::with_capacity(reads.len()),
        write_slices: Vec::with_capacity(writes.len()),
    });
    let (reads, writes) = (scalars(&reads, &kernel.reads), scalars(&writes, &kernel.writes));
    Ok(CpuKernel::new(kernel.name, reads, writes, operation))
}

/// Values of an operand of 16 bits in single precision; `None` for other operands.
type Unpacked = Option<Vec<f32>>;

/// An operation of single precision on operands of which some have 16 bits.
struct Packed {
    operation: Box<dyn Operation<f32>>,
    /// Workspace of each operand that is read.
    reads: Vec<Unpacked>,
    /// Workspace of each operand that is written.
    writes: Vec<Unpacked>,
    /// Memory for the operands of a launch, as slices. Empty between launches.
    read_slices: Vec<&'static [f32]>,
    write_slices: Vec<&'static mut [f32]>,
}

impl Operation<f32> for Packed {
    fn run(&mut self, operands: Operands<'_, '_, f32>, context: &LaunchContext) -> Result<(), EngineError> {
        let Operands { kernel, reads, writes } = operands;
        let values = self.reads.iter_mut().chain(&mut self.writes);
        // Operands that are written may be updated in place.
        for (values, scalars) in values.zip(reads.iter().copied().chain(writes.iter().map(|own| &**own))) {
            if let Some(values) = values {
                unpack_pairs(scalars, values);
            }
        }
        let mut read_slices: Vec<&[f32]> = mem::take(&mut self.read_slices);
        let mut write_slices: Vec<&mut [f32]> = mem::take(&mut self.write_slices);
        let unpacked = self.reads.iter().zip(reads);
        read_slices.extend(unpacked.map(|(values, own)| values.as_deref().unwrap_or(own)));
        let unpacked = self.writes.iter_mut().zip(&mut *writes);
        write_slices.extend(unpacked.map(|(values, own)| match values {
            Some(values) => &mut values[..],
            None => &mut **own,
        }));
        let operands = Operands { kernel, reads: &read_slices, writes: &mut write_slices };
        let result = self.operation.run(operands, context);
        // A collection in place: the memory is kept, for slices of another lifetime.
        self.read_slices = read_slices.into_iter().map_while(|_| None).collect();
        self.write_slices = write_slices.into_iter().map_while(|_| None).collect();
        for (values, scalars) in self.writes.iter().zip(writes) {
            if let Some(values) = values {
                pack_pairs(values, scalars);
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
