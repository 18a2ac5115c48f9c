//! Sharing of multiprocessors and memory bandwidth by the running kernels. A stream is *short* if
//! its kernel wants more multiprocessors than it holds.

use std::collections::VecDeque;
use std::time::Duration;

use super::bandwidth::{Demand, memory_slowdown, stretch};
use super::device_state::{DeviceState, Hardware};
use super::jitter::standard_normal;
use super::stream::{NEVER, Phase, RunningKernel, Stream, nanos};
use super::{Awaits, Exchange, Partners, VirtualWork};
use crate::Lane;

impl DeviceState {
    /// Distributes the free multiprocessors to the streams that want some: by priority, then in the
    /// order in which their kernels have become ready, then in launch order.
    pub(super) fn dispatch(&mut self) {
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend((0..self.streams.len()).filter(|&stream| self.is_short(stream)));
        self.first_short = None;
        if order.is_empty() {
            self.order = order;
            return;
        }
        order.sort_unstable_by_key(|&stream| self.streams[stream].dispatch_priority());
        for &stream in &order {
            self.give(stream);
            if self.first_short.is_none() && self.is_short(stream) {
                self.first_short = Some(self.streams[stream].dispatch_priority());
            }
        }
        // A launch behind one that has just started may be the first in its hardware queue now.
        self.unsettled |=
            (0..self.streams.len()).any(|stream| !order.contains(&stream) && self.is_short(stream));
        self.order = order;
    }

    /// Returns whether a stream has a kernel that wants more multiprocessors or can start.
    fn is_short(&self, stream: usize) -> bool {
        let stream = &self.streams[stream];
        if let Some(running) = &stream.running {
            return running.given < running.wanted;
        }
        stream.head_opens().is_some_and(|opens| opens <= self.now)
            && stream.launches.front().is_some_and(|head| head.kernel_count() > 0)
            && self.is_first_in_queue(stream)
    }

    /// On a hardware queue, no launch passes an earlier one that has not started.
    fn is_first_in_queue(&self, stream: &Stream) -> bool {
        let own = stream.oldest_to_begin();
        self.streams
            .iter()
            .filter(|other| other.hardware_queue == stream.hardware_queue)
            .filter_map(Stream::oldest_to_begin)
            .all(|order| own.is_none_or(|own| own <= order))
    }

    fn give(&mut self, stream: usize) {
        let stream = &mut self.streams[stream];
        if stream.running.is_none() {
            let needs_none =
                stream.lane == Lane::Communication && self.hardware.communication_multiprocessors == 0;
            if self.free == 0 && !needs_none {
                return;
            }
            let Some(running) = start(stream, &self.hardware, self.now, &mut self.exchanges) else { return };
            stream.running = Some(running);
        }
        if let Some(running) = &mut stream.running {
            let more = (running.wanted - running.given).min(self.free);
            running.given += more;
            self.free -= more;
        }
    }

    /// Sets the speed of every running kernel, from its multiprocessors and the concurrent demand
    /// for memory bandwidth.
    pub(super) fn set_rates(&mut self) {
        let slowdown = memory_slowdown(&self.streams.iter().filter_map(|stream| {
            let running = stream.running.as_ref().filter(|running| running.phase == Phase::Working)?;
            Some(Demand { bandwidth: running.memory * running.part(), bound: running.memory })
        }));
        for stream in &mut self.streams {
            // At the end of a wave a kernel keeps its multiprocessors, unless a stream of higher
            // priority waits for some.
            let yields = self.first_short.is_some_and(|short| short < stream.dispatch_priority());
            if let Some(running) = stream.running.as_mut().filter(|running| running.phase == Phase::Working) {
                running.set_rate(self.now, running.part() / stretch(running.memory, slowdown), yields);
            }
        }
    }
}

/// Starts the kernel at the head of a stream, without multiprocessors yet.
fn start(
    stream: &mut Stream,
    hardware: &Hardware,
    now: u64,
    exchanges: &mut VecDeque<Exchange>,
) -> Option<RunningKernel> {
    let (last_end, opened) = (stream.last_end, stream.head_opens()?);
    let head = stream.launches.front_mut()?;
    let kernel = head.next_kernel();
    head.begun += 1;
    head.opened.get_or_insert(opened);
    let mut running = RunningKernel {
        ready: opened,
        wanted: hardware.communication_multiprocessors,
        given: 0,
        memory: hardware.communication_memory,
        phase: Phase::Working,
        since: now,
        left: 0.0,
        rate: 0.0,
        wave: 0.0,
        waves_left: 1,
        yields: false,
        until: NEVER,
    };
    match (&head.work, kernel) {
        (VirtualWork::Communication { transfer, partners }, _) => {
            running.left = nanos(*transfer) as f64;
            let come = match partners {
                Partners::Ready => Some(now),
                Partners::After(time) => Some(last_end.saturating_add(nanos(*time))),
                Partners::External => head.partners_at,
            };
            if come.is_none_or(|come| come > now) {
                running.phase = Phase::Waiting;
                running.until = come.unwrap_or(NEVER);
            }
            if *partners == Partners::External {
                exchanges.push_back(Exchange {
                    tasklet: head.tasklet,
                    at: Duration::from_nanos(now),
                    awaits: Awaits::Partners,
                });
            }
        }
        (VirtualWork::Compute { .. }, Some(kernel)) => {
            running.wanted = hardware.share(kernel.share());
            running.memory = kernel.memory();
            running.left = nanos(kernel.time()) as f64;
            // The first kernel of a tasklet has the whole deviation of the tasklet.
            if head.begun == 1 && hardware.jitter > 0.0 {
                let deviation = hardware.jitter * standard_normal(head.order);
                running.left += deviation.clamp(-running.left / 2.0, running.left / 2.0);
            }
            running.waves_left = kernel.waves().get();
            running.wave = running.left / f64::from(running.waves_left);
        }
        (VirtualWork::Compute { .. }, None) => return None,
    }
    Some(running)
}
