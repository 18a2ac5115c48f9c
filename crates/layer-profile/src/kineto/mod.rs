//! Importer of the traces of PyTorch's profiler (Kineto), in Chrome's trace event format.

mod align;
mod arguments;
mod assign;
mod events;
mod forward;
mod host;
mod split;
mod table;

use std::collections::BTreeMap;
use std::io::Read;
use std::time::Duration;

use layer_graph::LayerGraph;

use crate::ProfileError;
use assign::{Part, Parts};
use events::{Category, Events};
use forward::Layers;
use host::{BACKWARD, Host};

/// Trace of training iterations on one device, recorded by PyTorch's profiler.
///
/// # Assignment to layers
/// - An iteration begins with a call of the network's module: of the outermost modules, the one
///   with the longest total time. Calls of modules are in traces that were recorded in
///   `deeppool.profiling.marked` of the Python package, which marks them with their paths, or with
///   `with_stack=True`. Forward passes without a backward pass are no iterations.
/// - The operators of a forward pass, and of the loss that follows it, are aligned with the layers
///   of the network in order of execution: by the path of their module where it is marked, and by
///   the kind of layer that they compute.
/// - A node of the backward pass belongs to the layer of the operator that created it. The
///   accumulation of a gradient belongs to the layer of the node before it.
/// - The operators of an `Optimizer.step` are the update.
///
/// Times are the durations of operators that no other operator calls, or, in a trace with kernels,
/// the durations of the kernels that they launched. Kernels of NCCL belong to no layer.
///
/// The trace may hold at most 2,097,152 operators, modules and kernels. Memory is proportional to
/// their number and not to the size of the file.
#[derive(Debug)]
pub struct KinetoTrace {
    events: Events,
}

/// Times of a trace, assigned to the layers of a network. All times are means of the iterations.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TraceTimes {
    /// Number of iterations.
    pub iterations: usize,
    /// Batch size in samples. `None` if the trace has no shapes of inputs
    /// (`record_shapes=True`).
    pub batch: Option<usize>,
    /// Name of the GPU. `None` if the operators ran on a processor.
    pub gpu: Option<String>,
    /// Forward and backward time of each layer, in the order of the network without its input.
    /// `None` for a layer without operators.
    pub layers: Vec<Option<[Duration; 2]>>,
    /// Time of a step of the optimiser. `None` if the trace has none.
    pub update: Option<Duration>,
    /// Time from the start of the first forward pass to the end of the last operator or kernel that
    /// is assigned, divided by the number of iterations.
    pub iteration: Duration,
    /// Time of all operators or kernels of the trace, divided by the number of iterations.
    pub total: Duration,
    /// Times that are not assigned, in descending order, by the name of the operator or kernel.
    pub unassigned: Vec<(String, Duration)>,
}

impl TraceTimes {
    /// Returns the assigned share of the time of all operators or kernels, in `0.0..=1.0`.
    #[must_use]
    pub fn assigned_share(&self) -> f64 {
        let unassigned: Duration = self.unassigned.iter().map(|(_, time)| *time).sum();
        if self.total.is_zero() {
            return 0.0;
        }
        (1.0 - unassigned.as_secs_f64() / self.total.as_secs_f64()).max(0.0)
    }

    /// Describes the time that is not assigned in one line, with the largest operators or kernels.
    #[must_use]
    pub fn unassigned_line(&self) -> String {
        let what = if self.gpu.is_some() { "kernels" } else { "operators" };
        unassigned_line(what, self.total, &self.unassigned)
    }
}

/// Maximum number of names in the description of times that are not assigned.
const MAX_LISTED: usize = 4;

fn unassigned_line(what: &str, total: Duration, unassigned: &[(String, Duration)]) -> String {
    let percent = |time: Duration| 100.0 * time.as_secs_f64() / total.as_secs_f64().max(f64::MIN_POSITIVE);
    let all: Duration = unassigned.iter().map(|(_, time)| *time).sum();
    let largest = unassigned.iter().take(MAX_LISTED);
    let largest = largest.map(|(name, time)| format!("{} {:.1}%", shortened(name), percent(*time)));
    let largest = largest.collect::<Vec<_>>().join(", ");
    let named = if largest.is_empty() { largest } else { format!(": {largest}") };
    format!("{:.1}% of the time of all {what} is not assigned{named}", percent(all))
}

/// Returns the first 48 characters of a name.
fn shortened(name: &str) -> String {
    const MAX: usize = 48;
    match name.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.to_owned(),
    }
}

impl KinetoTrace {
    /// Parses the JSON text of a trace, without holding it in memory.
    ///
    /// # Errors
    /// [`ProfileError::Trace`] if reading fails, the text is not JSON, it is no trace, or it has
    /// too many events.
    pub fn from_reader(text: impl Read) -> Result<Self, ProfileError> {
        Ok(Self { events: Events::read(text)? })
    }

    /// Assigns the times of the trace to the layers of a network.
    ///
    /// # Errors
    /// - [`ProfileError::UnnamedTrace`] if the trace has no calls of modules.
    /// - [`ProfileError::TraceMismatch`] if it has no iteration of training, or is one of another
    ///   network.
    pub fn for_network(&self, network: &LayerGraph) -> Result<TraceTimes, ProfileError> {
        let trace = &self.events;
        let host = Host::of(trace);
        let has_kernels = trace.all.iter().any(|event| event.category == Category::Kernel);
        if host.calls.is_empty() {
            let nothing = |i: usize| (i, None);
            let all = if has_kernels {
                let is_kernel = |&i: &usize| trace.all[i].category == Category::Kernel;
                (0..trace.all.len()).filter(is_kernel).map(nothing).collect()
            } else {
                host.operators.iter().map(|operator| nothing(operator.event)).collect::<Vec<_>>()
            };
            let (total, unassigned) = self.unassigned(&all, 1);
            let what = if has_kernels { "kernels" } else { "operators" };
            return Err(ProfileError::UnnamedTrace { times: unassigned_line(what, total, &unassigned) });
        }
        let layers = Layers::of(network);
        let parts = Parts::of(trace, &host, &layers)?;
        let Some(&start) = parts.iterations.first() else {
            return Err(ProfileError::TraceMismatch {
                network: network.name().into(),
                problem: "it has no forward pass with a backward pass".into(),
            });
        };
        let timed: Vec<(usize, Option<Part>)> = if has_kernels {
            assign::kernels(trace, &host, &parts)
        } else {
            host.operators.iter().zip(&parts.of).map(|(operator, part)| (operator.event, *part)).collect()
        };
        let has_updates = parts.updates > 0;
        let timed: Vec<(usize, Option<Part>)> = timed
            .into_iter()
            .map(|(event, part)| (event, part.filter(|part| *part != Part::Update || has_updates)))
            .collect();

        let mut has_operators = vec![false; layers.len()];
        for part in parts.of.iter().flatten() {
            if let Part::Forward(layer) | Part::Backward(layer) = part {
                has_operators[*layer] = true;
            }
        }
        let mut sums = vec![[0i128; 2]; layers.len()];
        let (mut update, mut end) = (0i128, start);
        for &(event, part) in &timed {
            let event = &trace.all[event];
            match part {
                Some(Part::Forward(layer)) => sums[layer][0] += i128::from(event.duration),
                Some(Part::Backward(layer)) => sums[layer][1] += i128::from(event.duration),
                Some(Part::Update) => update += i128::from(event.duration),
                None => continue,
            }
            end = end.max(event.end());
        }
        let iterations = parts.iterations.len();
        let (total, unassigned) = self.unassigned(&timed, iterations);
        let passes = sums.iter().map(|sum| sum.map(|sum| mean(sum, iterations)));
        Ok(TraceTimes {
            iterations,
            batch: self.batch(&host, &parts, network),
            gpu: has_kernels.then(|| trace.gpu.clone().unwrap_or_else(|| "GPU".into())),
            layers: passes.zip(has_operators).map(|(times, has)| has.then_some(times)).collect(),
            update: has_updates.then(|| mean(update, parts.updates)),
            iteration: mean(i128::from(end) - i128::from(start), iterations),
            total,
            unassigned,
        })
    }

    /// Returns the time of all given events, and the times of those without a part by name, in
    /// descending order, both divided by a number of iterations.
    fn unassigned(
        &self,
        timed: &[(usize, Option<Part>)],
        iterations: usize,
    ) -> (Duration, Vec<(String, Duration)>) {
        let mut total = 0i128;
        let mut sums: BTreeMap<&str, i128> = BTreeMap::new();
        for &(event, part) in timed {
            let event = &self.events.all[event];
            total += i128::from(event.duration);
            if part.is_none() {
                let name = self.events.name(event);
                *sums.entry(name.strip_prefix(BACKWARD).unwrap_or(name)).or_default() +=
                    i128::from(event.duration);
            }
        }
        let times = sums.into_iter().map(|(name, sum)| (name.to_owned(), mean(sum, iterations)));
        let mut times: Vec<(String, Duration)> = times.collect();
        times.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        (mean(total, iterations), times)
    }

    /// Returns the number of samples that most operators of forward passes have, of those with an
    /// input of the shape of a layer's input.
    fn batch(&self, host: &Host, parts: &Parts, network: &LayerGraph) -> Option<usize> {
        let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
        let layers: Vec<_> = network.computing_layers().collect();
        for (operator, part) in host.operators.iter().zip(&parts.of) {
            let Some(Part::Forward(layer)) = part else { continue };
            let Some(shapes) = self.events.all[operator.event].shapes else { continue };
            let inputs = layers[*layer].1.input_shapes();
            let is_input = |shape: &&Vec<u64>| {
                let sample = shape.iter().skip(1).map(|&dim| dim as usize);
                inputs.iter().any(|input| sample.clone().eq(input.dims().iter().copied()))
            };
            if let Some(shape) = self.events.shapes[shapes as usize].iter().find(is_input) {
                *votes.entry(shape[0]).or_default() += 1;
            }
        }
        // Of equal numbers of votes, the smallest batch.
        let most = votes.into_iter().max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0)));
        most.map(|(batch, _)| batch as usize)
    }
}

/// Returns a sum of nanoseconds divided by a count of at least 1.
fn mean(nanoseconds: i128, count: usize) -> Duration {
    let mean = nanoseconds.max(0) / i128::try_from(count.max(1)).unwrap_or(1);
    Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
}
