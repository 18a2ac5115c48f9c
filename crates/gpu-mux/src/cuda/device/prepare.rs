//! Preparation of work for launching: capture, cutting and timing. *CUDA errors* are failed calls
//! of the CUDA driver.

use std::sync::Arc;

use ::cuda::{CapturedGraph, Error, OversizedNode, Priority, Result, Stopwatch, Stream, TimingRuns};

use super::{CudaDevice, Prepared, Work};
use crate::{JobId, Lane};

/// One iteration of a background job's work, cut as the policy requires.
#[derive(Debug, Clone)]
pub struct PreparedBackground {
    /// Pieces of an iteration, in order. Each is launched as one tasklet.
    pub pieces: Vec<Prepared>,
    /// Nodes that could not be cut and take longer than
    /// [`Policy::background_piece`](crate::Policy::background_piece).
    pub oversized: Vec<OversizedNode>,
}

impl CudaDevice {
    /// Prepares foreground work for launching, as a graph if the policy has [captured
    /// graphs](crate::Policy::captured_graphs), and times it by executing it `runs` + 1 times; see
    /// [`TimingRuns`] for the memory that it writes. It [synchronizes](Self::synchronize) the
    /// device first and waits for the executions. The work owns `enqueue`.
    ///
    /// # Errors
    /// Errors of `enqueue`; CUDA errors.
    pub fn prepare_foreground(
        &mut self,
        lane: Lane,
        runs: TimingRuns<'_>,
        enqueue: impl Fn(&Stream) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Prepared> {
        self.synchronize()?;
        let place = self.queue(JobId::FOREGROUND, lane)?;
        self.whole(place, Priority::Foreground, runs, Work::enqueue(enqueue))
    }

    /// Prepares one iteration of a background job's work for launching, in pieces if the policy
    /// [bounds](crate::Policy::background_piece) them, and times it by executing it (twice as often
    /// if it is cut); see [`TimingRuns`] for the memory that it writes. It
    /// [synchronizes](Self::synchronize) the device first and waits for the executions. The pieces
    /// own `enqueue`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the policy bounds pieces and has no captured graphs, because only
    /// graphs can be cut; errors of [`CapturedGraph::cut`] and of `enqueue`; CUDA errors.
    pub fn prepare_background(
        &mut self,
        job: JobId,
        runs: TimingRuns<'_>,
        enqueue: impl Fn(&Stream) -> Result<()> + Send + Sync + 'static,
    ) -> Result<PreparedBackground> {
        self.synchronize()?;
        let place = self.queue(job, Lane::Compute)?;
        let work = Work::enqueue(enqueue);
        let Some(budget) = self.policy.background_piece else {
            let whole = self.whole(place, Priority::Background, runs, work)?;
            return Ok(PreparedBackground { pieces: vec![whole], oversized: Vec::new() });
        };
        if !self.policy.captured_graphs {
            return Err(Error::Invalid(
                "background pieces are bounded by cutting graphs: enable captured_graphs, or unset \
                 background_piece"
                    .to_owned(),
            ));
        }
        let stream = &self.queues[place].stream;
        let cut = self.capture(stream, Priority::Background, &work)?.cut(stream, budget, runs)?;
        let pieces = cut
            .pieces
            .into_iter()
            .map(|piece| Prepared { work: work.captured(piece.executable), estimate: piece.took });
        Ok(PreparedBackground { pieces: pieces.collect(), oversized: cut.oversized })
    }

    /// Prepares work that is launched without being cut.
    fn whole(&self, place: usize, priority: Priority, runs: TimingRuns<'_>, work: Work) -> Result<Prepared> {
        let stream = &self.queues[place].stream;
        let work = if self.policy.captured_graphs {
            work.captured(Arc::new(self.capture(stream, priority, &work)?.instantiate()?))
        } else {
            work
        };
        let stopwatch = Stopwatch::new(stream)?;
        let estimate = runs
            .with_restored_buffers(stream, || stopwatch.median(runs.runs(), |stream| work.launch(stream)))?;
        Ok(Prepared { work, estimate })
    }

    fn capture(&self, stream: &Stream, priority: Priority, work: &Work) -> Result<CapturedGraph> {
        let graph = stream.capture(|stream| work.launch(stream))?;
        if self.policy.stream_priority {
            graph.set_priority(priority)?;
        }
        Ok(graph)
    }
}
