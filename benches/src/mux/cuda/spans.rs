//! What the device did when, and what came of it.

use std::time::Duration;

/// What was on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The foreground computes.
    Compute,
    /// The foreground transfers.
    Transfer,
    /// A communication of the foreground waits for its partners.
    Waiting,
    Background,
}

/// From when to when it was there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) kind: Kind,
    pub(super) start: Duration,
    pub(super) end: Duration,
}

/// Time by what the foreground does, and the background's part of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Gaps {
    /// The foreground neither computes nor transfers.
    pub(super) idle: Duration,
    pub(super) background_in_idle: Duration,
    /// The part of it in which a communication waits for its partners.
    pub(super) waiting: Duration,
    /// It transfers and does not compute.
    pub(super) transfer: Duration,
    pub(super) background_in_transfer: Duration,
}

/// Adds up what was between `from` and `to`. O(n log n) for n spans.
pub(super) fn gaps(spans: &[Span], from: Duration, to: Duration) -> Gaps {
    let mut events: Vec<_> = spans
        .iter()
        .map(|span| Span { start: span.start.clamp(from, to), end: span.end.clamp(from, to), ..*span })
        .flat_map(|span| [(span.start, span.kind, 1), (span.end, span.kind, -1)])
        .collect();
    events.push((to, Kind::Compute, 0));
    events.sort_by_key(|(time, ..)| *time);
    let mut found = Gaps::default();
    let (mut now, mut there) = (from, [0_i32; 4]);
    for (time, kind, change) in events {
        let passed = time.saturating_sub(now);
        let background = if there[Kind::Background as usize] > 0 { passed } else { Duration::ZERO };
        let there_is = |kind: Kind| there[kind as usize] > 0;
        if !there_is(Kind::Compute) && there_is(Kind::Transfer) {
            found.transfer += passed;
            found.background_in_transfer += background;
        } else if !there_is(Kind::Compute) {
            found.idle += passed;
            found.background_in_idle += background;
            found.waiting += if there_is(Kind::Waiting) { passed } else { Duration::ZERO };
        }
        there[kind as usize] += change;
        now = time;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_counted_once_whatever_overlaps() {
        let ms = Duration::from_millis;
        let span = |kind, start, end| Span { kind, start: ms(start), end: ms(end) };
        let spans = [
            span(Kind::Compute, 0, 20),
            span(Kind::Transfer, 15, 30),
            span(Kind::Waiting, 32, 55),
            span(Kind::Background, 18, 35),
            span(Kind::Background, 33, 60),
            span(Kind::Compute, 50, 70),
        ];
        let expected = Gaps {
            idle: ms(20),
            background_in_idle: ms(20),
            waiting: ms(18),
            transfer: ms(10),
            background_in_transfer: ms(10),
        };
        assert_eq!(gaps(&spans, ms(10), ms(70)), expected);
        assert_eq!(gaps(&[], ms(3), ms(5)).idle, ms(2));
    }
}
