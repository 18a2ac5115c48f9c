//! What shows on a terminal that work goes on.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of so many steps on standard error, where that is a terminal; elsewhere nothing is shown.
pub(crate) fn bar(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}");
    style.map(|style| bar.clone().with_style(style)).unwrap_or(bar)
}
