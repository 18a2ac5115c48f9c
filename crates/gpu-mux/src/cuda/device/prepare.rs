use std::num::NonZeroUsize;

use super::{CudaDevice, Prepared, Work};
use crate::cuda::{CapturedGraph, Error, OverLong, Priority, Result, Stopwatch, Stream};
use crate::{JobId, Lane};

/// A round of a background job's work, as the policy wants it launched.
#[derive(Debug, Clone)]
pub struct PreparedBackground {
    /// The tasklets of a round, in order.
    pub pieces: Vec<Prepared>,
    /// Nodes that could not be cut and take longer than [`Policy::background_piece`](crate::Policy::background_piece).
    pub over_long: Vec<OverLong>,
}

impl CudaDevice {
    /// Makes foreground work launchable, as a graph where the policy has [captured
    /// graphs](crate::Policy::captured_graphs), and times it. It is run `runs` + 1 times, and waited for.
    ///
    /// # Errors
    /// What `enqueue` returns; what CUDA says.
    pub fn prepare_foreground(
        &mut self,
        lane: Lane,
        runs: NonZeroUsize,
        enqueue: impl Fn(&Stream) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Prepared> {
        let place = self.queue(JobId::FOREGROUND, lane)?;
        let stream = &self.queues[place].stream;
        let work = if self.policy.captured_graphs {
            let graph = self.captured(stream, Priority::Foreground, enqueue)?;
            Work::Graph(graph.instantiate()?.into())
        } else {
            Work::enqueue(enqueue)
        };
        let estimate = Stopwatch::new(stream)?.median(runs, |stream| work.launch(stream))?;
        Ok(Prepared { work, estimate })
    }

    /// Makes a round of a background job's work launchable, in pieces where the policy [bounds](crate::Policy::background_piece) them,
    /// and times it. It is run 2 * (`runs` + 1) times, and waited for.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the policy bounds pieces and has no captured graphs: only graphs can be cut here. What
    /// [`CapturedGraph::cut`] says; what `enqueue` returns; what CUDA says.
    pub fn prepare_background(
        &mut self,
        job: JobId,
        runs: NonZeroUsize,
        enqueue: impl Fn(&Stream) -> Result<()> + Send + Sync + 'static,
    ) -> Result<PreparedBackground> {
        let place = self.queue(job, Lane::Compute)?;
        let stream = &self.queues[place].stream;
        match (self.policy.background_piece, self.policy.captured_graphs) {
            (Some(budget), true) => {
                let cut = self.captured(stream, Priority::Background, enqueue)?.cut(stream, budget, runs)?;
                let pieces = cut.pieces.iter().map(Prepared::from).collect();
                Ok(PreparedBackground { pieces, over_long: cut.over_long })
            }
            (Some(_), false) => Err(Error::Invalid(
                "background pieces are bounded by cutting graphs: switch captured_graphs on, or background_piece off"
                    .to_owned(),
            )),
            (None, captured) => {
                let work = if captured {
                    let graph = self.captured(stream, Priority::Background, enqueue)?;
                    Work::Graph(graph.instantiate()?.into())
                } else {
                    Work::enqueue(enqueue)
                };
                let estimate = Stopwatch::new(stream)?.median(runs, |stream| work.launch(stream))?;
                Ok(PreparedBackground { pieces: vec![Prepared { work, estimate }], over_long: Vec::new() })
            }
        }
    }

    fn captured(
        &self,
        stream: &Stream,
        priority: Priority,
        enqueue: impl FnOnce(&Stream) -> Result<()>,
    ) -> Result<CapturedGraph> {
        let graph = stream.capture(enqueue)?;
        if self.policy.stream_priority {
            graph.set_priority(priority)?;
        }
        Ok(graph)
    }
}
