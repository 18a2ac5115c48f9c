use std::num::NonZeroUsize;
use std::time::Duration;

/// The rules of sharing. Every technique is a field, so that what it is worth can be measured by switching it off.
///
/// The first four are carried out by the code that prepares and launches the work, the others by the
/// [`Multiplexer`](crate::Multiplexer). A driver says which of them its device has.
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
    /// The foreground's streams have the highest priority and the background's the lowest, so that the device gives
    /// what becomes free to the foreground first.
    pub stream_priority: bool,
    /// A tasklet is launched as one captured graph, not kernel by kernel.
    pub captured_graphs: bool,
    /// How long one background tasklet should take at most; `None` when the background is not to be cut. Longer
    /// work is cut before it is offered (see [`pieces`](crate::pieces())). What is longer all the same is
    /// counted, not refused, and only one such tasklet is in flight at a time.
    pub background_piece: Option<Duration>,
    /// Samples that a background kernel works on at most; `None` for the whole batch. Smaller kernels can be cut
    /// finer, and use the device less well.
    pub background_micro_batch: Option<NonZeroUsize>,
    /// Foreground tasklets that may be in flight at once, of those that [count](Self::foreground_ahead_counts). More
    /// than one hides the launch latency of an asynchronous device.
    pub foreground_ahead: NonZeroUsize,
    /// More than [`foreground_ahead`](Self::foreground_ahead) may be in flight while all of them together are
    /// estimated to take less than this, so that the device does not run out of work during a run of short tasklets. Zero
    /// switches the rule off.
    pub foreground_ahead_time: Duration,
    /// Which tasklets of the foreground count as in flight for these two limits.
    pub foreground_ahead_counts: Ahead,
    /// Background tasklets of all jobs that may be in flight at once while the foreground has something queued or in
    /// flight. Zero holds the background back.
    pub background_in_flight: usize,
    /// The same while the foreground has nothing queued or in flight. The larger of the two, with
    /// [`background_piece`](Self::background_piece), bounds how long the foreground waits when it comes back.
    pub background_in_flight_alone: usize,
    /// Whether background is launched while the foreground computes, to use what its kernels leave of the device.
    pub background_beside_compute: bool,
    /// Whether background is launched while foreground communication is in flight: runs, or is queued on the device.
    pub background_beside_communication: BesideCommunication,
    /// Holds the background back while the foreground is seen to be slow.
    pub feedback: Option<Feedback>,
    /// Withholds the background by the one tasklet that the foreground is at.
    pub running: Option<Running>,
    /// Launches background where it is expected to end before the foreground comes back.
    pub gaps: Option<Gaps>,
}

/// Which tasklets of the foreground count as launched ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// Compute tasklets that have not finished. Communication does not fill the compute units, and is launched at once.
    Compute,
    /// Tasklets of both lanes, in the order of their launches, as in DeepPool's runtimes: each until it and all that
    /// were launched before it have finished.
    InOrder(Merging),
}

/// Which compute tasklets that follow each other count as one, as if they were merged into one graph.
///
/// With no time at all, each counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Merging {
    /// No more are merged once they take longer than this together, by their estimates.
    pub enough: Duration,
    /// They never take longer than this together.
    pub most: Duration,
    /// How many are merged at most.
    pub tasklets: usize,
}

/// When background is launched while foreground communication is in flight: runs, or is queued on the device.
///
/// Communication kernels need some compute units and much of the memory bandwidth, which the background takes from
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BesideCommunication {
    /// Not before all of it has finished.
    Never,
    /// Communication holds no background back.
    Always,
}

/// Throttling by what is measured: the background is held back while the foreground's tasklets take longer than on a
/// device of their own.
///
/// The measure is a moving average of `took / estimate` over the foreground's compute tasklets that have an
/// [estimate](crate::Tasklet::estimate). As long as no foreground tasklet finishes it stays what it is, so it is
/// believed for [`patience`](Self::patience) only.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Feedback {
    /// The background is held back above this slow-down, and let back in below it; 1 is no slow-down.
    pub limit: f64,
    /// The weight, from 0 to 1, of a new tasklet that is slower than the average.
    pub rise: f64,
    /// The weight, from 0 to 1, of one that is faster.
    pub fall: f64,
    /// How long after the foreground's last tasklet the average still counts.
    pub patience: Duration,
}

/// The rule of DeepPool's later runtime: the background is withheld by the one tasklet that the foreground is at.
///
/// That is the oldest tasklet, of either lane, that has been launched and has not finished; in launch order, each begins
/// when the one before it has ended. The background is withheld while it is an
/// [all-reduce](crate::Communication::AllReduce), or while that tasklet has lately taken more than `limit` times its
/// [estimate](crate::Tasklet::estimate): a moving average over the rounds, by its [site](crate::Tasklet::site). One
/// that [receives](crate::Communication::Receive) and is estimated to take longer than `long_receive` withholds
/// nothing in any case: what it does is wait. Nothing else withholds the background either, such as compute that is
/// not slowed, or an empty queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Running {
    /// The background is withheld beside a tasklet above this slow-down; 1 is no slow-down.
    pub limit: f64,
    /// The weight, from 0 to 1, of a round in which the tasklet was slower than the limit.
    pub rise: f64,
    /// The weight, from 0 to 1, of one in which it was not.
    pub fall: f64,
    /// What receives for longer than this withholds nothing.
    pub long_receive: Duration,
}

/// Gap fitting: background is launched where it is expected to end before the foreground comes back.
///
/// What the foreground does over and over leaves the same gaps over and over. How long a gap is, is learned for each
/// [site](crate::Tasklet::site) at which one begins; a background tasklet that would end after the gap is launched
/// only where it uses more of the gap than it delays the foreground, and as far as a budget covers the delay. What never
/// fits has its turn all the same, each time that the whole budget could have been saved up.
///
/// What background takes is its estimate times what it has lately taken by its estimates: beside communication, which
/// holds a part of the device, that is more than on a device of its own.
///
/// The budget grows with time and shrinks by the delays that really come about, as far as the foreground's tasklets show
/// them: by what the first tasklet after a gap took from when it could have run, without its own time. While it is
/// spent, background runs only in gaps so long that its delay and what the budget lacks (20 ms of it at most) are within
/// their own share. So over any time T the foreground is delayed by no more than `2 * delay_share * T + credit`, and what
/// is in flight when that is reached; without gaps that long, by half as much.
///
/// Figures outside their range count as the nearest within.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gaps {
    /// The part of all time, from 0.0001 to 1, by which the foreground may be delayed.
    pub delay_share: f64,
    /// How much of that may be saved up.
    pub credit: Duration,
    /// The weight, from 0 to 1, of a gap's newest length in what is expected of the next one.
    pub weight: f64,
}
