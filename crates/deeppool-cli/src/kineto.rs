//! Traces of PyTorch's profiler, and profiles of their times.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use command_line::files;
use flate2::bufread::MultiGzDecoder;
use layer_graph::LayerGraph;
use layer_profile::{DeviceModel, ImportedProfile, KinetoTrace, TraceTimes};
use serde_json::{Value, json};

use super::left_out::warn;
use super::output::{print_json, print_message, table, time};

/// The first bytes of every gzip file (RFC 1952).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Assigned share of the time of a trace below which a warning is printed.
const MIN_SHARE: f64 = 0.95;

/// Name of the device of a trace without GPUs. The profiler does not record that of the processor.
const PROCESSOR: &str = "processor";

/// Reads a trace, gzipped or not, and assigns its times to the layers of a network.
///
/// # Errors
/// If the file cannot be read, is no trace, or is not one of the network.
pub(crate) fn trace_times(path: &Path, network: &LayerGraph) -> anyhow::Result<TraceTimes> {
    let in_file = || path.display().to_string();
    let mut file = BufReader::new(files::open(path).with_context(in_file)?);
    let is_gzip = file.fill_buf().with_context(in_file)?.starts_with(&GZIP_MAGIC);
    let text: Box<dyn Read> = if is_gzip { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    KinetoTrace::from_reader(text).and_then(|trace| trace.for_network(network)).with_context(in_file)
}

/// Returns the batch size of a trace in samples: the given one, or else that of its shapes.
///
/// # Errors
/// If neither is known.
pub(crate) fn batch_of(path: &Path, times: &TraceTimes, given: Option<usize>) -> anyhow::Result<usize> {
    let batch = given.or(times.batch).filter(|batch| *batch > 0);
    batch.with_context(|| {
        format!(
            "{}: the trace has no shapes of inputs: give the batch size, or record with record_shapes=True",
            path.display()
        )
    })
}

/// Prints a warning if less than 95% of the time of a trace is assigned.
pub(crate) fn warn_of_unassigned(path: &Path, times: &TraceTimes) {
    if times.assigned_share() < MIN_SHARE {
        warn(format_args!("{}: {}", path.display(), times.unassigned_line()));
    }
}

/// Returns the times of a trace that are not assigned as JSON, in microseconds.
pub(crate) fn unassigned_json(times: &TraceTimes) -> Value {
    let rows = times.unassigned.iter();
    rows.map(|(name, time)| json!({ "name": name, "us": time.as_secs_f64() * 1e6 })).collect()
}

/// Import of the times of traces as a profile.
pub(crate) struct TraceImport<'a> {
    /// Files of the traces.
    pub(crate) traces: &'a [PathBuf],
    /// Batch sizes of the traces in samples. `None` for those of their shapes.
    pub(crate) batches: Option<&'a [usize]>,
    /// Device model that supplies missing times.
    pub(crate) device: Option<&'a DeviceModel>,
    /// File of the profile.
    pub(crate) output: &'a Path,
}

impl TraceImport<'_> {
    /// Writes the profile, and prints its times and what is not assigned.
    ///
    /// # Errors
    /// If a trace cannot be read or is not one of the network, times are missing, or writing fails.
    pub(crate) fn run(&self, network: &LayerGraph, json: bool) -> anyhow::Result<()> {
        if let Some(batches) = self.batches.filter(|batches| batches.len() != self.traces.len()) {
            bail!(
                "--batches has {} batch sizes for {} traces: give one for each --kineto, in the same order",
                batches.len(),
                self.traces.len()
            );
        }
        let mut traces: Vec<(usize, TraceTimes)> = Vec::with_capacity(self.traces.len());
        for (i, path) in self.traces.iter().enumerate() {
            let times = trace_times(path, network)?;
            let batch = batch_of(path, &times, self.batches.map(|batches| batches[i]))?;
            if let Some(earlier) = traces.iter().position(|(other, _)| *other == batch) {
                bail!(
                    "{} and {} have the same batch size, {batch}: leave one of them out",
                    self.traces[earlier].display(),
                    path.display()
                );
            }
            traces.push((batch, times));
        }
        let device = traces.iter().find_map(|(_, times)| times.gpu.clone());
        let device = device.unwrap_or_else(|| PROCESSOR.into());
        let imported = TraceTimes::profile(&traces, network, &device, self.device)
            .with_context(|| self.traces[0].display().to_string())?;
        files::write(self.output, imported.table.to_json())?;
        for (path, (_, times)) in self.traces.iter().zip(&traces) {
            warn_of_unassigned(path, times);
        }
        if json {
            return self.print_json(&traces, &imported);
        }
        self.print(&traces, &imported);
        Ok(())
    }

    fn print_json(&self, traces: &[(usize, TraceTimes)], imported: &ImportedProfile) -> anyhow::Result<()> {
        let profile: Value = serde_json::from_str(&imported.table.to_json())?;
        let traces = self.traces.iter().zip(traces).map(|(path, (batch, times))| {
            json!({
                "file": path, "batch": batch, "iterations": times.iterations,
                "total_us": times.total.as_secs_f64() * 1e6, "assigned_share": times.assigned_share(),
                "unassigned": unassigned_json(times),
            })
        });
        print_json(&json!({
            "output": self.output, "traces": traces.collect::<Vec<_>>(), "modelled": imported.modelled,
            "modelled_share": imported.modelled_share, "profile": profile,
        }));
        Ok(())
    }

    fn print(&self, traces: &[(usize, TraceTimes)], imported: &ImportedProfile) {
        let profile = &imported.table;
        print_message!("{} on {}, {}", profile.model(), profile.device(), profile.origin());
        let header = ["batch", "iterations", "forward", "backward", "update", "of the trace", "assigned"];
        let mut shown = table(&header);
        let mut sorted: Vec<&(usize, TraceTimes)> = traces.iter().collect();
        sorted.sort_by_key(|(batch, _)| *batch);
        for (row, (_, times)) in profile.network().iter().zip(sorted) {
            let [forward, backward, update] =
                [row.time.forward, row.time.backward, row.time.update].map(time);
            let share = format!("{:.1}%", 100.0 * times.assigned_share());
            let (batch, count) = (row.batch.to_string(), times.iterations.to_string());
            shown.add_row([batch, count, forward, backward, update, time(times.total), share]);
        }
        print_message!("\nSums of the layers, means of the iterations\n{shown}\n");
        for (path, (_, times)) in self.traces.iter().zip(traces) {
            print_message!("{}: {}", path.display(), times.unassigned_line());
        }
        if !imported.modelled.is_empty() {
            print_message!(
                "modelled, {:.1}% of forward and backward: {}",
                100.0 * imported.modelled_share,
                imported.modelled.join(", ")
            );
        }
        print_message!("wrote {}", self.output.display());
    }
}
