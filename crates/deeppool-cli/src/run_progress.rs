//! Progress of a training run, on the terminal and in a file.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use command_line::files::{LockedFile, is_file};
use deeppool::train::{EpochReport, Progress, TrainConfig};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::checkpoints::warn_of_damaged;
use super::output::{print_message, rate};
use super::progress::progress_bar;

/// Display of the progress of a run: a progress bar, lines, and a file of metrics.
pub(crate) struct RunProgress {
    /// Description of the plan.
    plan: String,
    /// Number of iterations of the whole run.
    iterations: u64,
    /// Number of iterations of an epoch.
    per_epoch: u64,
    bar: ProgressBar,
    /// Whether only one JSON object is printed.
    json: bool,
    metrics: Option<Metrics>,
    latest: Mutex<Latest>,
}

/// Values in the message of the progress bar.
#[derive(Default)]
struct Latest {
    epoch: u64,
    loss: f64,
    speed: String,
}

impl RunProgress {
    /// Creates the display for a run. `plan` is the description of the plan that is printed at the
    /// start. `json` says whether the command prints one JSON object and no lines. `metrics` is the
    /// file of metrics, if one is written.
    pub(crate) fn new(config: &TrainConfig<'_>, plan: String, json: bool, metrics: Option<Metrics>) -> Self {
        let (iterations, per_epoch) = (config.iterations(), config.iterations_per_epoch());
        let (bar, latest) = (progress_bar(iterations), Mutex::default());
        Self { plan, iterations, per_epoch, bar, json, metrics, latest }
    }

    /// Shows an event of the run: updates the bar, prints lines, and writes metrics to their file.
    pub(crate) fn show(&self, progress: &Progress) {
        if let Some(metrics) = &self.metrics {
            if matches!(progress, Progress::Started) {
                metrics.begin();
            }
            self.record(metrics, progress);
        }
        match progress {
            Progress::Started if !self.json => print_message!("{}\n", self.plan),
            Progress::DamagedCheckpoint(problem) => warn_of_damaged(problem),
            Progress::Resumed(iteration) => {
                self.bar.set_position(*iteration);
                self.print_line(&if *iteration >= self.iterations {
                    format!(
                        "the run is finished: the checkpoint is after iteration {iteration} of {}",
                        self.iterations
                    )
                } else {
                    format!("resumed after iteration {iteration}")
                });
            }
            Progress::ChangedSettings(changed) => {
                let line = format!("resumed with other settings than before: {changed}");
                self.bar.suspend(|| eprintln!("{line}"));
            }
            Progress::Iteration { iteration, loss } => {
                self.bar.set_position(*iteration);
                self.update(|latest| (latest.epoch, latest.loss) = (self.epoch(*iteration), *loss));
            }
            Progress::Speed { foreground_samples_per_s, background_samples_per_s, .. } => {
                let background = Some(*background_samples_per_s).filter(|&speed| speed > 0.0);
                let background =
                    background.map_or_else(String::new, |speed| format!(", background {}", rate(speed)));
                let speed = format!(", {}{background}", rate(*foreground_samples_per_s));
                self.update(|latest| latest.speed = speed);
            }
            Progress::Epoch(epoch) => {
                self.print_line(&epoch_line(epoch, self.iterations.div_ceil(self.per_epoch)));
            }
            _ => {}
        }
    }

    /// Removes the progress bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn print_line(&self, line: &str) {
        if !self.json {
            self.bar.suspend(|| print_message!("{line}"));
        }
    }

    fn update(&self, change: impl FnOnce(&mut Latest)) {
        // The lock is poisoned only if a rank panicked, which ends the run.
        let Ok(mut latest) = self.latest.lock() else { return };
        change(&mut latest);
        let Latest { epoch, loss, speed } = &*latest;
        self.bar.set_message(format!("epoch {epoch}, loss {loss:.4}{speed}"));
    }

    /// Returns the epoch of an iteration, both counted from 1.
    fn epoch(&self, iteration: u64) -> u64 {
        iteration.saturating_sub(1) / self.per_epoch.max(1) + 1
    }

    fn record(&self, metrics: &Metrics, progress: &Progress) {
        let line = match progress {
            Progress::Resumed(iteration) => json!({"event": "resumed", "iteration": iteration}),
            Progress::Iteration { iteration, loss } => {
                let epoch = self.epoch(*iteration);
                json!({"event": "iteration", "iteration": iteration, "epoch": epoch, "loss": loss})
            }
            Progress::Speed { iteration, foreground_samples_per_s, background_samples_per_s } => {
                let elapsed_s = metrics.began.elapsed().as_secs_f64();
                json!({"event": "speed", "iteration": iteration, "elapsed_s": elapsed_s,
                    "foreground_samples_per_s": foreground_samples_per_s,
                    "background_samples_per_s": background_samples_per_s})
            }
            Progress::Epoch(epoch) => {
                json!({"event": "epoch", "epoch": epoch.epoch, "train_loss": epoch.train_loss,
                    "test_loss": epoch.test.loss, "test_accuracy": epoch.test.accuracy,
                    "foreground_samples_per_s": epoch.foreground_samples_per_s,
                    "background_samples_per_s": epoch.background_samples_per_s})
            }
            _ => return,
        };
        metrics.write(&line);
    }
}

/// File of metrics of a run: one JSON object per line for each iteration, each epoch, and the speed
/// about every half second. One run at a time writes to a file.
pub(crate) struct Metrics {
    began: Instant,
    /// Whether to truncate the file when the run begins.
    is_truncated: bool,
    state: Mutex<MetricsState>,
}

struct MetricsState {
    /// `None` after a write has failed.
    file: Option<LockedFile>,
    /// Whether the run has begun. A run that is refused does not begin.
    has_begun: bool,
}

impl Metrics {
    /// Checks that an existing file can be appended to, without changing it.
    ///
    /// # Errors
    /// If it cannot be opened, or another run writes to it.
    pub(crate) fn check(path: &Path) -> anyhow::Result<()> {
        if is_file(path)? && path.exists() {
            LockedFile::open(path)?;
        }
        Ok(())
    }

    /// Opens the file, and creates it if it does not exist. Unless `append` is set, the file is
    /// truncated when the run [begins](Self::begin). A file that was created is deleted if the run
    /// does not begin.
    ///
    /// # Errors
    /// If the file cannot be opened, or another run writes to it.
    pub(crate) fn open(path: &Path, append: bool) -> anyhow::Result<Self> {
        // Devices and pipes are not truncated.
        let is_truncated = is_file(path)? && !append;
        let state = MetricsState { file: Some(LockedFile::open(path)?), has_begun: false };
        Ok(Self { began: Instant::now(), is_truncated, state: Mutex::new(state) })
    }

    /// Truncates the file if the run does not append to it.
    fn begin(&self) {
        let Ok(mut state) = self.state.lock() else { return };
        state.has_begun = true;
        if self.is_truncated {
            state.change(|file| file.set_len(0));
        }
    }

    fn write(&self, line: &Value) {
        let Ok(mut state) = self.state.lock() else { return };
        state.change(|file| file.write_all(format!("{line}\n").as_bytes()));
    }
}

impl MetricsState {
    /// Changes the file. After an error, which is printed, the run continues without the file.
    fn change(&mut self, change: impl FnOnce(&mut File) -> std::io::Result<()>) {
        let Some(file) = &mut self.file else { return };
        if let Err(error) = change(file.file_mut()) {
            eprintln!("warning: {}: {error}; the run goes on without it", file.path().display());
            self.file = None;
        }
    }
}

impl Drop for MetricsState {
    fn drop(&mut self) {
        if let Some(file) = self.file.take().filter(|file| file.is_new() && !self.has_begun) {
            // An empty file that is left does no harm.
            let _ = file.remove();
        }
    }
}

fn epoch_line(epoch: &EpochReport, epochs: u64) -> String {
    format!(
        "epoch {:>3}/{epochs}  loss {:.4}  {}  foreground {}  background {}",
        epoch.epoch,
        epoch.train_loss,
        epoch.test,
        rate(epoch.foreground_samples_per_s),
        rate(epoch.background_samples_per_s),
    )
}
