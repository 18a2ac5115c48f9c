//! Policies by name.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::Policy;
use crate::policy::{Ahead, BesideCommunication, Feedback, Gaps, Merging, Running};

/// A bound on pieces that no iteration reaches: each is one piece.
const WHOLE_ITERATION: Duration = Duration::from_secs(3_600);

impl Policy {
    /// Two jobs on two streams, and nothing done about it: kernels are launched one by one as they come.
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
            running: None,
            gaps: None,
        }
    }

    /// The foreground's streams have priority, and nothing else.
    #[must_use]
    pub const fn priority() -> Self {
        Self { stream_priority: true, ..Self::naive() }
    }

    /// DeepPool's runtime before it withheld anything (`seojinpark/DeepPool`, 7922cac): the background launches whole
    /// iterations by itself, two of them in flight, on a stream of low priority.
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

    /// The rule of DeepPool's MLSys artifact (df866c5): one background piece in flight, beside compute of the foreground
    /// too, but none while a send, a receive or an all-reduce of the foreground is queued on the device; of the
    /// foreground four tasklets or 1 ms are queued, whichever is more, and layers count as merged into tasklets of more
    /// than 500 us.
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

    /// The rule of DeepPool's later runtime (`DeepPoolML/DeepPool`, 7f823f2): two foreground tasklets are queued, where
    /// layers count as merged into tasklets of more than 250 us. One background piece may be in flight, four while there is no
    /// foreground. Only the oldest launched foreground tasklet that has not finished withholds it: see [`Running`].
    ///
    /// Pieces as in [`artifact`](Self::artifact).
    #[must_use]
    pub const fn deeppool() -> Self {
        Self {
            foreground_ahead: ahead(2),
            foreground_ahead_time: Duration::ZERO,
            foreground_ahead_counts: merged(250),
            background_in_flight_alone: 4,
            background_beside_communication: BesideCommunication::Always,
            running: Some(Running {
                limit: 1.1,
                rise: 1.0,
                fall: 0.1,
                long_receive: Duration::from_micros(500),
            }),
            ..Self::artifact()
        }
    }

    /// The [default](Self::default), and background is held back while the foreground as a whole is seen to be slower than
    /// 1.1 times what it is alone: for work whose estimates the default cannot trust. Not a rule of DeepPool's, whose
    /// later runtime looks at [one tasklet at a time](Self::deeppool).
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

    /// The presets by name, the default last.
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

    /// The techniques one by one, each added to those before it, from [`naive`](Self::naive) to the default; and then
    /// those that the default does without, each added to the default.
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
        add("+ gap fitting", &|p| p.gaps = all.gaps);
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
    /// All policies that have a name: the presets, and then the ladder without what is a preset already.
    #[must_use]
    pub fn all() -> Vec<(&'static str, Self)> {
        let presets = Self::presets();
        let is_new = |(name, _): &(&str, Self)| presets.iter().all(|(preset, _)| preset != name);
        let steps: Vec<_> = Self::ladder().into_iter().filter(is_new).collect();
        presets.into_iter().chain(steps).collect()
    }

    /// The policy of this name among [all](Self::all); case and hyphens do not matter.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let all = Self::all();
        let meant = known_names::find(name, all.iter().map(|(known, _)| *known));
        all.into_iter().find(|(known, _)| Some(*known) == meant).map(|(_, policy)| policy)
    }
}

impl Default for Policy {
    /// Ours: graphs, priorities and short pieces, launched only while the foreground does not compute and where they
    /// are expected to end before it comes back.
    fn default() -> Self {
        Self {
            captured_graphs: true,
            background_piece: Some(Duration::from_micros(250)),
            foreground_ahead: ahead(4),
            foreground_ahead_time: Duration::from_millis(1),
            background_in_flight: 2,
            background_in_flight_alone: 2,
            background_beside_compute: false,
            gaps: Some(Gaps { delay_share: 0.01, credit: Duration::from_micros(500), weight: 0.5 }),
            ..Self::priority()
        }
    }
}

/// Compute tasklets count as one until they take longer than so many microseconds, at most twice as long, or are eleven.
const fn merged(enough_us: u64) -> Ahead {
    Ahead::InOrder(Merging {
        enough: Duration::from_micros(enough_us),
        most: Duration::from_micros(2 * enough_us),
        tasklets: 11,
    })
}

/// So many foreground tasklets, at least one.
const fn ahead(tasklets: usize) -> NonZeroUsize {
    NonZeroUsize::MIN.saturating_add(tasklets - 1)
}
