//! Prepared kernels with their buffers, ready to be timed.

use layer_engine::{Engine, EngineError, LaunchContext, Stopwatch};

use super::sampling;
use super::timing::Timing;

/// Timed part of a training iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Forward passes.
    Forward,
    /// Backward passes, including the sums of gradients where several layers read an output or
    /// share parameters.
    Backward,
    /// Optimiser steps.
    Update,
}

/// With a learning rate of zero the parameters stay the same, so that all repeats compute the same
/// values.
const CONTEXT: LaunchContext = LaunchContext { seed: 0, iteration: 0, learning_rate: 0.0 };

/// Kernel with the indices of the buffers that it reads and writes.
pub(super) struct Launch<K> {
    /// Kernel to launch.
    pub(super) kernel: K,
    /// Indices in `Workload::buffers` of the buffers that are read, in the order of the kernel's
    /// operands.
    pub(super) reads: Vec<usize>,
    /// Indices in `Workload::buffers` of the buffers that are written, in the order of the kernel's
    /// operands.
    pub(super) writes: Vec<usize>,
}

/// Prepared kernels of each phase of a training iteration, with their buffers.
pub(super) struct Workload<'a, E: Engine> {
    /// Engine that runs the kernels.
    pub(super) engine: &'a E,
    /// Queue in which the kernels are launched.
    pub(super) queue: E::Queue,
    /// All buffers of the kernels; each [`Launch`] refers to them by index.
    pub(super) buffers: Vec<E::Buffer>,
    /// Kernels of each [`Phase`] in launch order, indexed by `phase as usize`.
    pub(super) phases: [Vec<Launch<E::Kernel>>; 3],
}

impl<E: Engine> Workload<'_, E> {
    /// Returns whether a phase has no kernels.
    pub(super) fn is_empty(&self, phase: Phase) -> bool {
        self.phases[phase as usize].is_empty()
    }

    /// Measures a phase alone, launched repeatedly.
    ///
    /// # Errors
    /// Those of the engine.
    pub(super) fn measure(&mut self, phase: Phase, repeats: usize) -> Result<Timing, EngineError> {
        if self.is_empty(phase) {
            return Ok(Timing::EMPTY);
        }
        self.time(phase, |stopwatch| {
            let rounds = sampling::rounds(&mut *stopwatch)?;
            let stable = sampling::warm_up(|| stopwatch(rounds))?;
            let samples = (0..repeats).map(|_| Ok(stopwatch(rounds)? / rounds));
            Ok(Timing::of(&samples.collect::<Result<Vec<_>, EngineError>>()?, stable))
        })
    }

    /// Calls `measure` with a stopwatch, which runs the kernels of a phase the given number of
    /// times and returns their total duration, and returns the result of `measure`.
    ///
    /// # Errors
    /// Those of the engine and of `measure`.
    pub(super) fn time<R: Default>(
        &mut self,
        phase: Phase,
        mut measure: impl FnMut(&mut Stopwatch<'_>) -> Result<R, EngineError>,
    ) -> Result<R, EngineError> {
        let Self { engine, queue, buffers, phases } = self;
        let launches = &mut phases[phase as usize];
        let mut body = |queue: &mut E::Queue| {
            launches.iter_mut().try_for_each(|launch| launch.enqueue(*engine, buffers, queue))
        };
        let mut found = R::default();
        engine.time(queue, &mut body, &mut |stopwatch| {
            found = measure(stopwatch)?;
            Ok(())
        })?;
        Ok(found)
    }
}

impl<K> Launch<K> {
    fn enqueue<E: Engine<Kernel = K>>(
        &mut self,
        engine: &E,
        buffers: &mut [E::Buffer],
        queue: &mut E::Queue,
    ) -> Result<(), EngineError> {
        // Written buffers are moved out of the list, because a kernel borrows some buffers shared
        // and others mutably.
        let lift = |&buffer: &usize| std::mem::take(&mut buffers[buffer]);
        let mut written: Vec<E::Buffer> = self.writes.iter().map(lift).collect();
        let reads: Vec<&E::Buffer> = self.reads.iter().map(|&buffer| &buffers[buffer]).collect();
        let mut writes: Vec<&mut E::Buffer> = written.iter_mut().collect();
        let launched = engine.enqueue(&mut self.kernel, &reads, &mut writes, &CONTEXT, queue);
        for (&index, buffer) in self.writes.iter().zip(written) {
            buffers[index] = buffer;
        }
        launched
    }
}
