//! Named policies: *presets*, which are complete policies, and the steps of a *ladder*, an ablation
//! that adds one technique at a time.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::Policy;
use crate::policy::{Ahead, BesideCommunication, Feedback, IdlePeriodFitting, Merging, TaskletFeedback};

/// A piece bound that no iteration reaches, so that each iteration is one piece.
const WHOLE_ITERATION: Duration = Duration::from_secs(3_600);

impl Policy {
    /// Returns the policy without any technique: two jobs on two streams, whose kernels are
    /// launched one by one.
    #[must_use]
    pub const fn naive() -> Self {
        Self {
            stream_priority: false,
            captured_graphs: false,
            background_piece: None,
            background_micro_batch: None,
            foreground_ahead: NonZeroUsize::MAX,
            foreground_ahead_time: Duration::ZERO,
            foreground_ahead_counts: Ahead::Compute,
            background_in_flight: usize::MAX,
            background_in_flight_alone: usize::MAX,
            background_beside_compute: true,
            background_beside_communication: BesideCommunication::Always,
            feedback: None,
            tasklet_feedback: None,
            idle_periods: None,
        }
    }

    /// Returns the policy with stream priority only: the foreground's streams go first.
    #[must_use]
    pub const fn priority() -> Self {
        Self { stream_priority: true, ..Self::naive() }
    }

    /// Returns the policy of DeepPool's runtime before it withheld anything (`seojinpark/DeepPool`,
    /// 7922cac): the background launches whole iterations, two of them in flight, on a stream of
    /// low priority.
    #[must_use]
    pub const fn ungated() -> Self {
        Self {
            captured_graphs: true,
            background_piece: Some(WHOLE_ITERATION),
            foreground_ahead: ahead(4),
            foreground_ahead_time: Duration::from_millis(1),
            foreground_ahead_counts: merged(500),
            background_in_flight: 2,
            background_in_flight_alone: 2,
            ..Self::priority()
        }
    }

    /// Returns the policy of DeepPool's MLSys artifact (df866c5): one background piece in flight,
    /// also beside foreground compute, but none while a send, a receive or an all-reduce of the
    /// foreground is queued on the device. The foreground queues four tasklets or 1 ms of work,
    /// whichever is more, and layers count as merged into tasklets of more than 500 us.
    ///
    /// The artifact's pieces take half a millisecond *or more*; here that is their bound.
    #[must_use]
    pub const fn artifact() -> Self {
        Self {
            background_piece: Some(Duration::from_micros(500)),
            background_in_flight: 1,
            background_in_flight_alone: 1,
            background_beside_communication: BesideCommunication::Never,
            ..Self::ungated()
        }
    }

    /// Returns the policy of DeepPool's later runtime (`DeepPoolML/DeepPool`, 7f823f2): two
    /// foreground tasklets are queued, where layers count as merged into tasklets of more than 250
    /// us. One background piece may be in flight, or four while there is no foreground. Only the
    /// oldest launched foreground tasklet that has not finished withholds the background; see
    /// [`TaskletFeedback`].
    ///
    /// Pieces are as in [`artifact`](Self::artifact).
    #[must_use]
    pub const fn deeppool() -> Self {
        Self {
            foreground_ahead: ahead(2),
            foreground_ahead_time: Duration::ZERO,
            foreground_ahead_counts: merged(250),
            background_in_flight_alone: 4,
            background_beside_communication: BesideCommunication::Always,
            tasklet_feedback: Some(TaskletFeedback {
                limit: 1.1,
                rise: 1.0,
                fall: 0.1,
                long_receive: Duration::from_micros(500),
            }),
            ..Self::artifact()
        }
    }

    /// Returns the [default](Self::default) plus [`Feedback`]: background is withheld while the
    /// foreground as a whole is measured to be slower than 1.1 times its time alone. For work whose
    /// estimates are unreliable. DeepPool has no such rule; its later runtime looks at [one tasklet
    /// at a time](Self::deeppool).
    #[must_use]
    pub fn feedback() -> Self {
        Self {
            feedback: Some(Feedback {
                limit: 1.1,
                rise: 1.0,
                fall: 0.1,
                patience: Duration::from_millis(10),
            }),
            ..Self::default()
        }
    }

    /// Returns the presets with their names. The default is the last.
    #[must_use]
    pub fn presets() -> Vec<(&'static str, Self)> {
        vec![
            ("naive", Self::naive()),
            ("priority", Self::priority()),
            ("ungated", Self::ungated()),
            ("artifact", Self::artifact()),
            ("deeppool", Self::deeppool()),
            ("feedback", Self::feedback()),
            ("default", Self::default()),
        ]
    }

    /// Returns the steps of the ladder with their names: from [`naive`](Self::naive) to the
    /// default, adding one technique at a time, and then each technique that the default omits,
    /// added to the default.
    #[must_use]
    pub fn ladder() -> Vec<(&'static str, Self)> {
        let all = Self::default();
        let mut policy = Self::naive();
        let mut ladder = vec![("naive", policy)];
        let mut add = |name, technique: &dyn Fn(&mut Self)| {
            technique(&mut policy);
            ladder.push((name, policy));
        };
        add("+ stream priority", &|p| p.stream_priority = all.stream_priority);
        add("+ captured graphs", &|p| p.captured_graphs = all.captured_graphs);
        add("+ bounded pieces", &|p| p.background_piece = all.background_piece);
        add("+ pieces in flight", &|p| {
            p.background_in_flight = all.background_in_flight;
            p.background_in_flight_alone = all.background_in_flight_alone;
        });
        add("+ foreground ahead", &|p| {
            p.foreground_ahead = all.foreground_ahead;
            p.foreground_ahead_time = all.foreground_ahead_time;
        });
        add("+ not beside compute", &|p| p.background_beside_compute = all.background_beside_compute);
        add("+ gap fitting", &|p| p.idle_periods = all.idle_periods);
        let beside = BesideCommunication::Never;
        let micro_batch = NonZeroUsize::new(2);
        ladder.extend([
            (
                "default, withheld beside communication",
                Self { background_beside_communication: beside, ..all },
            ),
            ("default, micro-batches of 2", Self { background_micro_batch: micro_batch, ..all }),
        ]);
        ladder
    }
}

impl Policy {
    /// Returns all named policies, with their names: the [presets](Self::presets), then the steps
    /// of the [ladder](Self::ladder) that are not presets.
    #[must_use]
    pub fn all() -> Vec<(&'static str, Self)> {
        let presets = Self::presets();
        let is_new = |(name, _): &(&str, Self)| presets.iter().all(|(preset, _)| preset != name);
        let steps: Vec<_> = Self::ladder().into_iter().filter(is_new).collect();
        presets.into_iter().chain(steps).collect()
    }

    /// Returns the policy with this name among [all](Self::all), or `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|(known, _)| *known == name).map(|(_, policy)| policy)
    }
}

impl Default for Policy {
    /// Returns the policy with captured graphs, stream priorities and short pieces, launched only
    /// while the foreground does not compute and where they are expected to end before it returns.
    fn default() -> Self {
        Self {
            captured_graphs: true,
            background_piece: Some(Duration::from_micros(250)),
            foreground_ahead: ahead(4),
            foreground_ahead_time: Duration::from_millis(1),
            background_in_flight: 2,
            background_in_flight_alone: 2,
            background_beside_compute: false,
            idle_periods: Some(IdlePeriodFitting {
                delay_share: 0.01,
                credit: Duration::from_micros(500),
                weight: 0.5,
            }),
            ..Self::priority()
        }
    }
}

/// Counts compute tasklets as one until their estimates exceed the soft limit (given in
/// microseconds), up to twice that time or 11 tasklets.
const fn merged(soft_limit_us: u64) -> Ahead {
    Ahead::InOrder(Merging {
        soft_limit: Duration::from_micros(soft_limit_us),
        hard_limit: Duration::from_micros(2 * soft_limit_us),
        max_tasklets: 11,
    })
}

/// Returns this number of foreground tasklets, at least one.
const fn ahead(tasklets: usize) -> NonZeroUsize {
    NonZeroUsize::MIN.saturating_add(tasklets - 1)
}
