//! Waiting for conditions that can only be polled.

use std::thread;
use std::time::{Duration, Instant};

use crate::WaitStrategy;

/// Number of polls before a parking rank sleeps.
const POLLS_BEFORE_SLEEP: u32 = 200;

/// Shortest and longest sleep between polls. No event wakes a rank that waits for a device or a
/// reply.
const SLEEPS: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(2));

/// Calls `poll` until it returns an answer, and returns that. Returns `None` after `limit`, if
/// there is one, and the first error of `poll`. Polls at least once, with pauses as `strategy`
/// says.
pub(super) fn poll_until<T, E>(
    strategy: WaitStrategy,
    limit: Option<Instant>,
    mut poll: impl FnMut() -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    let mut polls = 0_u32;
    let mut sleep = SLEEPS.0;
    loop {
        if let Some(answer) = poll()? {
            return Ok(Some(answer));
        }
        let now = Instant::now();
        if limit.is_some_and(|limit| now >= limit) {
            return Ok(None);
        }
        polls = polls.saturating_add(1);
        match strategy {
            WaitStrategy::Spin => std::hint::spin_loop(),
            WaitStrategy::Park if polls > POLLS_BEFORE_SLEEP => {
                let left = limit.map_or(sleep, |limit| limit.saturating_duration_since(now));
                thread::sleep(sleep.min(left));
                sleep = (sleep * 2).min(SLEEPS.1);
            }
            WaitStrategy::Yield | WaitStrategy::Park => thread::yield_now(),
        }
    }
}
