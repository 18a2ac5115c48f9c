use std::collections::VecDeque;
use std::time::Duration;

use crate::{BackgroundLoop, Command, Error, Event, JobId, Multiplexer, Policy, Tasklet, TaskletId, Usage};

/// A stretch of virtual time, counted from the driver's epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// When it begins.
    pub start: Duration,
    /// When it ends.
    pub end: Duration,
}

/// Drives a [`Multiplexer`] in virtual time: the device of a simulator.
///
/// The simulator gives each foreground tasklet in turn, with the time from which it could run and the time it takes,
/// and learns when it runs; the gaps between them are filled with background tasklets.
///
/// **What is modelled**: the compute lane of one device, which runs one tasklet at a time, in the order in which the
/// multiplexer launched them and without interrupting any. A foreground tasklet therefore waits for the
/// background tasklets that are in flight when it becomes ready. **What is not**: kernels side by side, contention for
/// memory bandwidth or caches, launch latency, and communication that needs compute units. The numbers are
/// modelled, not measured.
///
/// A call costs O(b) for the b background tasklets that it runs.
///
/// ```
/// use gpu_mux::{BackgroundLoop, Policy, VirtualDriver};
/// use std::time::Duration;
///
/// let us = Duration::from_micros;
/// let background = BackgroundLoop::new([us(30)])?;
/// let one_at_a_time = Policy { background_in_flight: 1, background_in_flight_alone: 1, gaps: None, ..Policy::default() };
/// let mut device = VirtualDriver::new(one_at_a_time, Some(background));
/// device.foreground(us(0), us(100))?;
/// // 150 us of idle time: five background tasklets fit, and nobody waits.
/// assert_eq!(device.foreground(us(250), us(100))?.start, us(250));
/// // 100 us: the fourth is in the way for 20 us.
/// assert_eq!(device.foreground(us(450), us(100))?.start, us(470));
/// assert_eq!(device.usage().background_tasklets, 9);
/// # Ok::<(), gpu_mux::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct VirtualDriver {
    mux: Multiplexer,
    background: Option<BackgroundLoop>,
    now: Duration,
    /// Background tasklets launched and not finished, in the order in which the lane runs them.
    lane: VecDeque<(TaskletId, Span)>,
    /// The next background tasklet waits in the multiplexer.
    background_offered: bool,
    /// When the multiplexer wants to be asked again.
    wake: Option<Duration>,
    next_foreground: u64,
    next_background: u64,
    delay: Duration,
    usage: Usage,
    recording: Option<Vec<Span>>,
}

impl VirtualDriver {
    /// An idle device at its epoch, with these rules and this background job.
    #[must_use]
    pub fn new(policy: Policy, background: Option<BackgroundLoop>) -> Self {
        Self {
            mux: Multiplexer::new(policy),
            background,
            now: Duration::ZERO,
            lane: VecDeque::new(),
            background_offered: false,
            wake: None,
            next_foreground: 0,
            next_background: 0,
            delay: Duration::ZERO,
            usage: Usage::default(),
            recording: None,
        }
    }

    /// The same device, keeping the span of every background tasklet for a timeline; they use memory as long as
    /// the run lasts.
    #[must_use]
    pub fn recording(self) -> Self {
        Self { recording: Some(Vec::new()), ..self }
    }

    /// Runs the next foreground tasklet, which could run from `ready` on and takes `takes`, and says when it ran.
    ///
    /// It starts at `ready`, or after the foreground tasklet before it, or after the background tasklets that are
    /// in flight by then, whichever is latest. Until it is ready the background runs.
    pub fn foreground(&mut self, ready: Duration, takes: Duration) -> Result<Span, Error> {
        self.idle_until(ready)?;
        let start = self.lane_free();
        let end = start.saturating_add(takes);
        self.delay = self.delay.saturating_add(start.saturating_sub(self.now));
        let tasklet = Tasklet::new(JobId::FOREGROUND, self.next_foreground).estimated(takes);
        self.next_foreground += 1;
        self.mux.handle(self.now, Event::Ready(tasklet))?;
        self.obey(takes)?;
        // The foreground ends at the moment that the next one may become ready: no command is asked for before.
        self.advance(end)?;
        Ok(Span { start, end })
    }

    /// Lets the background run until `until`, because no foreground tasklet is ready before.
    ///
    /// A background tasklet that is in flight then stays so. Nothing happens if `until` is in the past.
    pub fn idle_until(&mut self, until: Duration) -> Result<(), Error> {
        while self.now < until {
            if self.wake.is_some_and(|wake| wake <= self.now) {
                self.wake = None;
                self.mux.handle(self.now, Event::Tick)?;
            }
            self.obey(Duration::ZERO)?;
            let finish = self.lane.front().map(|(_, span)| span.end);
            let next = [finish, self.wake].into_iter().flatten().fold(until, Duration::min);
            self.advance(next.max(self.now))?;
        }
        Ok(())
    }

    /// Where the time went so far. Of a background tasklet in flight the part that has run is counted as busy.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let running = self.lane.iter().map(|(_, span)| self.now.saturating_sub(span.start));
        Usage {
            elapsed: self.now,
            background_busy: running.fold(self.usage.background_busy, Duration::saturating_add),
            over_long: self.mux.over_long(),
            ..self.usage
        }
    }

    /// How often the background has been round its loop, by time: 1.5 is one lap and half of the next.
    #[must_use]
    pub fn background_laps(&self) -> f64 {
        let lap = self.background.as_ref().map(BackgroundLoop::lap);
        lap.map_or(0.0, |lap| self.usage().background_busy.as_secs_f64() / lap.as_secs_f64())
    }

    /// How long foreground tasklets have waited for background tasklets, altogether.
    #[must_use]
    pub fn foreground_delay(&self) -> Duration {
        self.delay
    }

    /// The background tasklets that have finished, in order; empty unless the driver is
    /// [`recording`](Self::recording).
    #[must_use]
    pub fn background_spans(&self) -> &[Span] {
        self.recording.as_deref().unwrap_or_default()
    }

    /// When the lane has run everything that has been launched.
    fn lane_free(&self) -> Duration {
        self.lane.back().map_or(self.now, |(_, span)| span.end)
    }

    /// Carries out what the multiplexer wants now, and keeps it supplied with background tasklets.
    fn obey(&mut self, foreground_takes: Duration) -> Result<(), Error> {
        loop {
            self.offer_background()?;
            match self.mux.poll_command() {
                None => return Ok(()),
                Some(Command::WakeAt(time)) => self.wake = Some(time),
                Some(Command::Launch(tasklet)) => {
                    let takes = match &self.background {
                        Some(background) if !tasklet.job.is_foreground() => {
                            self.background_offered = false;
                            background.piece(tasklet.number)
                        }
                        _ => foreground_takes,
                    };
                    let start = self.lane_free();
                    self.lane.push_back((tasklet, Span { start, end: start.saturating_add(takes) }));
                }
            }
        }
    }

    fn offer_background(&mut self) -> Result<(), Error> {
        match &self.background {
            Some(background) if !self.background_offered => {
                let takes = background.piece(self.next_background);
                let tasklet = Tasklet::new(JobId::BACKGROUND, self.next_background).estimated(takes);
                self.next_background += 1;
                self.background_offered = true;
                self.mux.handle(self.now, Event::Ready(tasklet))
            }
            _ => Ok(()),
        }
    }

    /// Moves the time on, and reports what finishes on the way.
    fn advance(&mut self, until: Duration) -> Result<(), Error> {
        while let Some(&(tasklet, span)) = self.lane.front().filter(|(_, span)| span.end <= until) {
            self.lane.pop_front();
            let took = span.end.saturating_sub(span.start);
            self.usage.record(tasklet.job, took);
            if let Some(spans) = self.recording.as_mut().filter(|_| !tasklet.job.is_foreground()) {
                spans.push(span);
            }
            self.mux.handle(span.end, Event::Finished { tasklet, took })?;
        }
        self.now = until;
        Ok(())
    }
}
