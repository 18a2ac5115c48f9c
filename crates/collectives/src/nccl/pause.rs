//! Waiting for something that can only be polled.

use std::thread;
use std::time::{Duration, Instant};

use crate::WaitStrategy;

/// Polls before a parking rank sleeps.
const POLLS_BEFORE_SLEEP: u32 = 200;

/// Nothing wakes a rank that waits for a device or for a reply, so that it sleeps in short pieces: the first, and the
/// longest.
const SLEEPS: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(2));

/// Polls until there is an answer, or gives `None` once `limit` has passed. Polls at least once.
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
