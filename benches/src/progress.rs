//! Progress bars.

use indicatif::{ProgressBar, ProgressStyle};

/// Creates a progress bar of `steps` steps on standard error. It is hidden if that is no terminal.
pub(crate) fn bar(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}");
    style.map(|style| bar.clone().with_style(style)).unwrap_or(bar)
}
