//! Measurement of single kernels.

use std::time::Duration;

use layer_engine::{Engine, EngineError, KernelSpec, Signature, Storage};

use super::Profiler;
use super::initial_data::{InitialData, initial_data};
use super::workload::{Launch, Phase, Workload};
use crate::Spread;

/// Measured time of one kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelTime {
    /// Median of the repeats.
    pub time: Duration,
    /// Spread of the repeats.
    pub spread: Spread,
}

impl<E: Engine<Scalar: From<f32>>> Profiler<'_, E> {
    /// Measures a prepared kernel alone, on synthetic data in buffers of its own.
    ///
    /// `spec` is what the kernel was prepared for, in the precision of the profiler. `reads` and
    /// `writes` are the numbers of scalars of its operands. The batch sizes of the profiler are not
    /// used.
    ///
    /// # Errors
    /// [`EngineError::Operand`] if the operands do not match the kernel in number or length;
    /// [`EngineError::OutOfMemory`] if the device has no memory for them; an error of the device.
    pub fn time_kernel(
        &self,
        kernel: E::Kernel,
        spec: &KernelSpec<'_>,
        reads: &[usize],
        writes: &[usize],
    ) -> Result<KernelTime, EngineError> {
        let (engine, queue) = (self.engine, self.engine.queue()?);
        let mut workload = Workload { engine, queue, buffers: Vec::new(), phases: Default::default() };
        let mut host = Vec::new();
        let [of_reads, of_writes] = self.contents(spec);
        let operands = reads.iter().zip(of_reads.into_iter().chain(std::iter::repeat_with(|| None)));
        let written = writes.iter().zip(of_writes.into_iter().chain(std::iter::repeat_with(|| None)));
        for (&elements, contents) in operands.chain(written) {
            let mut buffer = engine.allocate(elements)?;
            if let Some((contents, storage)) = contents {
                contents.write_to(storage, &mut host);
                engine.upload(&host, &mut buffer, &mut workload.queue)?;
            }
            workload.buffers.push(buffer);
        }
        let (reads, all) = (reads.len(), reads.len() + writes.len());
        let launch = Launch { kernel, reads: (0..reads).collect(), writes: (reads..all).collect() };
        workload.phases[Phase::Forward as usize].push(launch);
        let timing = workload.measure(Phase::Forward, self.repeats)?;
        Ok(KernelTime { time: timing.median, spread: timing.spread })
    }

    /// Returns the initial contents and the number formats of the operands that a kernel reads, and
    /// of those that it writes. Empty for a kernel that belongs to no layer: its operands are
    /// zeros.
    fn contents(&self, spec: &KernelSpec<'_>) -> [Vec<Option<(InitialData, Storage)>>; 2] {
        let KernelSpec::Layer { layer, pass, shard } = spec else { return Default::default() };
        let Some(Signature { reads, writes }) = Signature::of(layer, *pass) else {
            return Default::default();
        };
        let of_role = |role| {
            let storage = self.engine.storage(role, layer, self.precision);
            Some((initial_data(layer, role, shard.samples)?, storage))
        };
        [reads, writes].map(|roles| roles.into_iter().map(of_role).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use layer_engine::{CpuEngine, Pass, Precision, Role, Shard};
    use layer_graph::zoo;

    use super::*;

    #[test]
    fn passes_of_layers_and_sums_are_timed() {
        let network = zoo::model("digits-cnn").unwrap();
        let engine = CpuEngine::<f32>::new();
        let profiler = Profiler::new(&engine).repeats(3);
        for (_, layer) in network.layers() {
            for &pass in Pass::forward(layer).iter().chain(Pass::backward(layer, true)) {
                let spec = KernelSpec::Layer { layer, pass, shard: Shard::whole(2) };
                let Signature { reads, writes } = Signature::of(layer, pass).unwrap();
                let elements = |role: &Role| role.elements(layer, 2);
                let reads: Vec<usize> = reads.iter().map(elements).collect();
                let writes: Vec<usize> = writes.iter().map(elements).collect();
                let kernel = engine.prepare(&spec, Precision::F32).unwrap();
                let timed = profiler.time_kernel(kernel, &spec, &reads, &writes);
                assert!(timed.unwrap().time > Duration::ZERO, "{}: {pass:?}", layer.name());
            }
        }
        let spec = KernelSpec::Sum { terms: 2, elements: 1000 };
        let sum = || engine.prepare(&spec, Precision::F32).unwrap();
        assert!(profiler.time_kernel(sum(), &spec, &[1000; 2], &[1000]).unwrap().time > Duration::ZERO);
        let mismatch = profiler.time_kernel(sum(), &spec, &[1000], &[1000]).unwrap_err();
        assert!(matches!(mismatch, EngineError::Operand { .. }), "{mismatch}");
    }
}
