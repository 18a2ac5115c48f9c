//! Engine with deterministic virtual time that can be made to fail.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use layer_engine::{
    DeviceDescription, Engine, EngineError, KernelSpec, LaunchContext, Pass, Precision, Stopwatch,
};

/// Engine that counts its calls. A queue holds the accumulated virtual time of its work.
pub(crate) struct VirtualEngine {
    pub(crate) description: DeviceDescription,
    /// Number of prepared kernels.
    pub(crate) prepared: Cell<usize>,
    /// Number of timed samples.
    pub(crate) timed: Cell<usize>,
    /// Number of samples that may be timed before the engine fails.
    pub(crate) max_samples: Cell<usize>,
    /// Extra time of the n-th timed sample, counted from 1.
    pub(crate) noise: fn(usize) -> Duration,
}

impl VirtualEngine {
    pub(crate) fn new() -> Self {
        let libraries = BTreeMap::from([("virtual".to_owned(), "1.0.0".to_owned())]);
        Self {
            description: DeviceDescription {
                name: "virtual device".into(),
                libraries,
                clock_mhz: Some(1000),
            },
            prepared: Cell::new(0),
            timed: Cell::new(0),
            max_samples: Cell::new(usize::MAX),
            noise: |_| Duration::ZERO,
        }
    }

    /// Creates an engine that fails after timing the given number of samples.
    pub(crate) fn failing_after(samples: usize) -> Self {
        let engine = Self::new();
        engine.max_samples.set(samples);
        engine
    }
}

impl Engine for VirtualEngine {
    type Scalar = f32;
    type Buffer = Vec<f32>;
    type Queue = Duration;
    /// Duration of a launch.
    type Kernel = Duration;

    fn describe(&self) -> DeviceDescription {
        self.description.clone()
    }

    fn allocate(&self, elements: usize) -> Result<Vec<f32>, EngineError> {
        Ok(vec![0.0; elements])
    }

    fn queue(&self) -> Result<Duration, EngineError> {
        Ok(Duration::ZERO)
    }

    fn upload(&self, host: &[f32], buffer: &mut Vec<f32>, _: &mut Duration) -> Result<(), EngineError> {
        buffer[..host.len()].copy_from_slice(host);
        Ok(())
    }

    fn download(&self, buffer: &Vec<f32>, host: &mut [f32], _: &mut Duration) -> Result<(), EngineError> {
        host.copy_from_slice(&buffer[..host.len()]);
        Ok(())
    }

    /// Returns a time that depends only on the layer's name, the pass and the number of samples.
    fn prepare(&self, spec: &KernelSpec<'_>, _: Precision) -> Result<Duration, EngineError> {
        self.prepared.set(self.prepared.get() + 1);
        let nanos = match spec {
            KernelSpec::Layer { layer, pass, shard } => {
                let name: usize = layer.name().bytes().map(usize::from).sum();
                let share = if matches!(pass, Pass::Forward | Pass::ForwardMoments) { 1 } else { 2 };
                (name * 101 + 7000 * shard.samples) * share
            }
            KernelSpec::Sum { terms, elements } | KernelSpec::SumParts { terms, elements } => {
                300 * terms + elements
            }
            KernelSpec::Sgd { elements, .. } => 1000 + elements.iter().sum::<usize>(),
            KernelSpec::Add { .. } | KernelSpec::Scale { .. } | KernelSpec::SquaredNorm { .. } => 1000,
        };
        Ok(Duration::from_nanos(nanos as u64))
    }

    fn enqueue(
        &self,
        kernel: &mut Duration,
        _: &[&Vec<f32>],
        _: &mut [&mut Vec<f32>],
        _: &LaunchContext,
        queue: &mut Duration,
    ) -> Result<(), EngineError> {
        *queue += *kernel;
        Ok(())
    }

    fn synchronize(&self, _: &mut Duration) -> Result<(), EngineError> {
        Ok(())
    }

    fn time(
        &self,
        queue: &mut Duration,
        body: &mut dyn FnMut(&mut Duration) -> Result<(), EngineError>,
        measure: &mut dyn FnMut(&mut Stopwatch<'_>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        measure(&mut |rounds| {
            if self.timed.get() == self.max_samples.get() {
                return Err(EngineError::Threads { threads: 1, problem: "the virtual engine failed".into() });
            }
            self.timed.set(self.timed.get() + 1);
            let start = *queue;
            for _ in 0..rounds {
                body(queue)?;
            }
            Ok(queue.abs_diff(start) + (self.noise)(self.timed.get()))
        })
    }
}
