use std::sync::Arc;

use super::{CudaDevice, Prepared, Work};
use crate::cuda::{CapturedGraph, Error, OverLong, Priority, Result, Stopwatch, Stream, TimingRuns};
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
    /// graphs](crate::Policy::captured_graphs), and times it by executing it once more than `runs` says; see
    /// [`TimingRuns`] for what that does to the memory that it writes. It [synchronizes](Self::synchronize) the device
    /// first and waits for the executions. `enqueue`, and what it owns, is kept as long as the work.
    ///
    /// # Errors
    /// What `enqueue` returns; what CUDA reports.
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

    /// Makes a round of a background job's work launchable, in pieces where the policy
    /// [bounds](crate::Policy::background_piece) them, and times it by executing it, twice as often where it is cut; see
    /// [`TimingRuns`] for what that does to the memory that it writes. It [synchronizes](Self::synchronize) the device
    /// first and waits for the executions. `enqueue`, and what it owns, is kept as long as the work.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the policy bounds pieces and has no captured graphs: only graphs can be cut here. Those of
    /// [`CapturedGraph::cut`]; what `enqueue` returns; what CUDA reports.
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
            return Ok(PreparedBackground { pieces: vec![whole], over_long: Vec::new() });
        };
        if !self.policy.captured_graphs {
            return Err(Error::Invalid(
                "background pieces are bounded by cutting graphs: switch captured_graphs on, or background_piece off"
                    .to_owned(),
            ));
        }
        let stream = &self.queues[place].stream;
        let cut = self.capture(stream, Priority::Background, &work)?.cut(stream, budget, runs)?;
        let pieces = cut
            .pieces
            .into_iter()
            .map(|piece| Prepared { work: work.captured(piece.executable), estimate: piece.took });
        Ok(PreparedBackground { pieces: pieces.collect(), over_long: cut.over_long })
    }

    /// Work that is launched at once.
    fn whole(&self, place: usize, priority: Priority, runs: TimingRuns<'_>, work: Work) -> Result<Prepared> {
        let stream = &self.queues[place].stream;
        let work = if self.policy.captured_graphs {
            work.captured(Arc::new(self.capture(stream, priority, &work)?.instantiate()?))
        } else {
            work
        };
        let stopwatch = Stopwatch::new(stream)?;
        let estimate = runs.around(stream, || stopwatch.median(runs.runs(), |stream| work.launch(stream)))?;
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
