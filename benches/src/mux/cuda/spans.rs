//! Spans of activity on the device, and their sums. All times are on the device's clock.

use std::time::Duration;

/// Kind of activity on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpanKind {
    /// The foreground computes.
    Compute,
    /// The foreground transfers.
    Transfer,
    /// A communication of the foreground waits for its partners.
    Waiting,
    /// A background tasklet runs.
    Background,
}

/// Time span of one activity.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    /// Kind of the activity.
    pub(super) kind: SpanKind,
    /// Start on the device's clock.
    pub(super) start: Duration,
    /// End on the device's clock.
    pub(super) end: Duration,
}

/// Times in which the foreground does not compute, by its activity, summed over a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ActivityTimes {
    /// Time in which the foreground neither computes nor transfers.
    pub(super) idle: Duration,
    /// Part of `idle` with a background tasklet.
    pub(super) background_in_idle: Duration,
    /// Part of `idle` in which a communication waits for its partners.
    pub(super) waiting: Duration,
    /// Time in which the foreground transfers and does not compute.
    pub(super) transfer: Duration,
    /// Part of `transfer` with a background tasklet.
    pub(super) background_in_transfer: Duration,
}

/// Computes the times in which the foreground does not compute between `from` and `to` on the
/// device's clock. O(n log n) for n spans.
pub(super) fn activity_times(spans: &[Span], from: Duration, to: Duration) -> ActivityTimes {
    let mut events: Vec<_> = spans
        .iter()
        .map(|span| Span { start: span.start.clamp(from, to), end: span.end.clamp(from, to), ..*span })
        .flat_map(|span| [(span.start, span.kind, 1), (span.end, span.kind, -1)])
        .collect();
    events.push((to, SpanKind::Compute, 0));
    events.sort_by_key(|(time, ..)| *time);
    let mut found = ActivityTimes::default();
    let (mut now, mut active) = (from, [0_i32; 4]);
    for (time, kind, change) in events {
        let passed = time.saturating_sub(now);
        let background = if active[SpanKind::Background as usize] > 0 { passed } else { Duration::ZERO };
        let is_active = |kind: SpanKind| active[kind as usize] > 0;
        if !is_active(SpanKind::Compute) && is_active(SpanKind::Transfer) {
            found.transfer += passed;
            found.background_in_transfer += background;
        } else if !is_active(SpanKind::Compute) {
            found.idle += passed;
            found.background_in_idle += background;
            found.waiting += if is_active(SpanKind::Waiting) { passed } else { Duration::ZERO };
        }
        active[kind as usize] += change;
        now = time;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_spans_are_counted_once() {
        let ms = Duration::from_millis;
        let span = |kind, start, end| Span { kind, start: ms(start), end: ms(end) };
        let spans = [
            span(SpanKind::Compute, 0, 20),
            span(SpanKind::Transfer, 15, 30),
            span(SpanKind::Waiting, 32, 55),
            span(SpanKind::Background, 18, 35),
            span(SpanKind::Background, 33, 60),
            span(SpanKind::Compute, 50, 70),
        ];
        let expected = ActivityTimes {
            idle: ms(20),
            background_in_idle: ms(20),
            waiting: ms(18),
            transfer: ms(10),
            background_in_transfer: ms(10),
        };
        assert_eq!(activity_times(&spans, ms(10), ms(70)), expected);
        assert_eq!(activity_times(&[], ms(3), ms(5)).idle, ms(2));
    }
}
