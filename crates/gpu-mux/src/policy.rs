//! The policy: all rules by which the multiplexer decides, with their limits. To *withhold*
//! background is not to launch it. A tasklet is *in flight* from its launch until it is reported as
//! finished. A *slow-down* is measured time divided by time alone.

use std::num::NonZeroUsize;
use std::time::Duration;

/// Rules for sharing a device between a foreground and background jobs. Every technique is a field,
/// so that its effect can be measured by switching it off.
///
/// The first four are carried out by the code that prepares and launches the work, the others by
/// the [`Multiplexer`](crate::Multiplexer). A driver's documentation lists those that its device
/// supports.
///
/// ```
/// use gpu_mux::Policy;
/// use std::time::Duration;
///
/// let gentle = Policy { background_piece: Some(Duration::from_micros(200)), ..Policy::default() };
/// assert!(gentle.stream_priority && !gentle.background_beside_compute);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// Whether the foreground's streams have the highest priority and the background's the lowest.
    /// The device then gives free multiprocessors to the foreground first.
    pub stream_priority: bool,
    /// Whether a tasklet is launched as one captured graph instead of kernel by kernel.
    pub captured_graphs: bool,
    /// Maximum duration of a background tasklet; `None` to leave the background uncut. Longer work
    /// is cut before it is offered (see [`pieces`](crate::pieces())). A tasklet that still exceeds
    /// the bound is counted, not refused, and only one such tasklet is in flight at a time.
    pub background_piece: Option<Duration>,
    /// Maximum number of samples of a background kernel; `None` for the whole batch. Smaller
    /// kernels can be cut into shorter pieces and use the device less efficiently.
    pub background_micro_batch: Option<NonZeroUsize>,
    /// Maximum number of foreground tasklets in flight, as
    /// [counted](Self::foreground_ahead_counts). A value above 1 hides the launch latency of an
    /// asynchronous device.
    pub foreground_ahead: NonZeroUsize,
    /// Sum of estimates below which more than [`foreground_ahead`](Self::foreground_ahead) tasklets
    /// may be in flight, so that the device does not run out of work during a series of short
    /// tasklets. Zero disables the rule.
    pub foreground_ahead_time: Duration,
    /// Foreground tasklets that count towards `foreground_ahead` and `foreground_ahead_time`.
    pub foreground_ahead_counts: Ahead,
    /// Maximum number of background tasklets in flight, over all jobs, while the foreground has
    /// tasklets queued or in flight. Zero withholds the background.
    pub background_in_flight: usize,
    /// Maximum number of background tasklets in flight, over all jobs, while the foreground has
    /// nothing queued or in flight. The larger of the two maximums, times
    /// [`background_piece`](Self::background_piece), bounds the delay of a foreground that returns.
    pub background_in_flight_alone: usize,
    /// Whether background is launched while the foreground computes, to use the multiprocessors
    /// that its kernels leave free.
    pub background_beside_compute: bool,
    /// Whether background is launched while foreground communication runs or is queued on the
    /// device.
    pub background_beside_communication: BesideCommunication,
    /// Rule that withholds the background while the foreground as a whole is measured to be slow.
    /// `None` if it is off.
    pub feedback: Option<Feedback>,
    /// Rule that withholds the background because of the foreground's current tasklet. `None` if it
    /// is off.
    pub tasklet_feedback: Option<TaskletFeedback>,
    /// Rule that launches background only where it is expected to finish before the foreground
    /// returns. `None` if it is off.
    pub idle_periods: Option<IdlePeriodFitting>,
}

/// Foreground tasklets that count towards the limits on launching ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// Compute tasklets that have not finished. Communication is launched at once, because it
    /// leaves the compute units free.
    Compute,
    /// Tasklets of both lanes in launch order, as in DeepPool's runtimes: a tasklet counts until it
    /// and all tasklets launched before it have finished.
    InOrder(Merging),
}

/// Limits within which consecutive compute tasklets count as one, as if they were merged into one
/// graph.
///
/// With zero limits, every tasklet counts separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Merging {
    /// Sum of estimates above which no tasklet is added to a group.
    pub soft_limit: Duration,
    /// Maximum sum of the estimates of a group of several tasklets.
    pub hard_limit: Duration,
    /// Maximum number of tasklets in a group.
    pub max_tasklets: usize,
}

/// Condition for launching background while foreground communication runs or is queued on the
/// device.
///
/// Communication kernels need some multiprocessors and much of the memory bandwidth, and background
/// work beside them takes from both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BesideCommunication {
    /// Background waits until all foreground communication has finished.
    Never,
    /// Communication does not withhold background.
    Always,
}

/// Throttling by measurement: the background is withheld while the foreground's tasklets take
/// longer than they take alone.
///
/// The measure is a moving average of `took / estimate` over the foreground's compute tasklets that
/// have an [estimate](crate::Tasklet::estimate). It does not change while no foreground tasklet
/// finishes, so it expires after [`patience`](Self::patience).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Feedback {
    /// Slow-down above which the background is withheld. 1 is no slow-down.
    pub limit: f64,
    /// Weight, from 0 to 1, of a new measurement above the average in the moving average.
    pub rise: f64,
    /// Weight, from 0 to 1, of a new measurement below the average in the moving average.
    pub fall: f64,
    /// Time after the foreground's last finished tasklet for which the average is used.
    pub patience: Duration,
}

/// The rule of DeepPool's later runtime: the background is withheld because of the foreground's
/// current tasklet.
///
/// The current tasklet is the oldest of either lane that has been launched and has not finished.
/// The background is withheld while it is an [all-reduce](crate::Communication::AllReduce), or if
/// tasklets of its [site](crate::Tasklet::site) have recently taken more than `limit` times their
/// [estimate](crate::Tasklet::estimate) (a moving average over the iterations). A
/// [receive](crate::Communication::Receive) whose estimate exceeds `long_receive` never withholds
/// the background, because it mostly waits. Neither do compute that is not slowed and an empty
/// queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TaskletFeedback {
    /// Slow-down above which a tasklet withholds the background. 1 is no slow-down.
    pub limit: f64,
    /// Weight, from 0 to 1, in the moving average of a measurement above the limit.
    pub rise: f64,
    /// Weight, from 0 to 1, in the moving average of a measurement at or below the limit.
    pub fall: f64,
    /// Estimated duration above which a receive withholds nothing.
    pub long_receive: Duration,
}

/// Rule that launches background where it is expected to finish before the foreground computes
/// again. An *idle period* is a period in which the foreground does not compute. `Policy::ladder`
/// calls this technique *gap fitting*.
///
/// An iterative foreground leaves the same idle periods in every iteration. Their lengths are
/// learned by the [site](crate::Tasklet::site) of the tasklet before them. A background tasklet
/// that would end after the idle period is launched only if it uses at least as much of the idle
/// period as it delays the foreground, and only if a budget covers the delay. A job whose tasklets
/// never fit still runs one each time the whole budget could have accrued.
///
/// The expected duration of a background tasklet is its estimate times a moving average of measured
/// time over estimate. Beside communication, which occupies a part of the device, that average is
/// above 1.
///
/// The budget grows with time and is charged with the measured delays: the time by which the first
/// foreground tasklet after an idle period ended later than its own duration after it could have
/// started. While the budget is overdrawn, background runs only in an idle period that has lasted
/// so long that `delay_share` of it covers the delay and the debt (at most 20 ms). Over any time T,
/// the foreground is therefore delayed by at most `2 * delay_share * T + credit`, plus the tasklets
/// in flight when that bound is reached; without such long idle periods, by half as much.
///
/// Values outside their range are clamped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IdlePeriodFitting {
    /// Fraction of time, from 0.0001 to 1, by which the foreground may be delayed.
    pub delay_share: f64,
    /// Maximum budget: delay of the foreground that may accumulate unused.
    pub credit: Duration,
    /// Weight, from 0 to 1, of the newest length of an idle period in its expected length, a moving
    /// average.
    pub weight: f64,
}
