//! The command `deeppool compare-trace`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use command_line::numbers::within;
use deeppool::costs::Costs;
use deeppool::job::{Job, LoweredPlan};
use deeppool::plan::{Mode, PlanRequest};
use deeppool::planning::plan_within_memory;
use deeppool::program::{LowerOptions, Op};
use deeppool::simulate::{SimulateOptions, SimulationReport};
use deeppool::timeline::Timeline;
use layer_graph::{LayerGraph, LayerId};
use layer_profile::{LayerTime, TraceTimes};
use serde_json::{Value, json};

use super::costs::{CostArgs, gpus_and_batch, with_plan_path};
use super::counts::BATCH;
use super::inputs;
use super::kineto::{batch_of, trace_times, unassigned_json, warn_of_unassigned};
use super::network::NetworkArgs;
use super::output::{check_outputs, print_json, print_message, table, time};

/// Compare a simulated iteration with one in a trace of PyTorch's profiler, layer by layer
///
/// Without a plan, one GPU is simulated. The trace must have the names of modules: record it in
/// `deeppool.profiling.marked(module)` of the Python package, or with `with_stack=True`.
#[derive(Args)]
#[command(after_help = "Examples:
  deeppool compare-trace --graph resnet.json --kineto trace.json.gz --device a100
  deeppool compare-trace --graph resnet.json --kineto trace.json --profile resnet-profile.json
  deeppool compare-trace --graph resnet.json --kineto rank-3.json.gz --plan plan.json --rank 3 --json")]
pub(crate) struct CompareTrace {
    #[command(flatten)]
    network: NetworkArgs,
    /// Trace of PyTorch's profiler, .json or .json.gz
    #[arg(long, value_name = "TRACE")]
    kineto: PathBuf,
    /// Device model of the simulated GPUs, as of `deeppool simulate`
    #[arg(long, conflicts_with = "profile")]
    device: Option<String>,
    /// File of layer times (see `deeppool profile`), instead of a device model
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Link model, as of `deeppool simulate`
    #[arg(long, value_name = "NAME|FILE", requires = "plan")]
    link: Option<String>,
    /// Plan of the recorded training, in which the trace is one of a rank
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Rank of the trace in the plan
    #[arg(long, requires = "plan", default_value = "0")]
    rank: usize,
    /// Number of samples of the trace [default: that of the shapes in the trace]
    #[arg(long, value_parser = within(BATCH), conflicts_with = "plan")]
    batch: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Simulated times of a rank.
struct Simulated {
    /// Times of each layer that the rank computes.
    layers: HashMap<LayerId, LayerTime>,
    /// Iteration time of the plan.
    iteration: Duration,
}

impl CompareTrace {
    /// Simulates an iteration and prints its times beside those of the trace.
    ///
    /// # Errors
    /// If an input cannot be read, the trace is not one of the network, or no plan fits.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        check_outputs([], self.json)?;
        let network = self.network.load()?;
        let plan = self.plan.as_deref().map(inputs::plan).transpose()?;
        if self.device.is_none() && self.profile.is_none() && plan.is_none() {
            bail!("give --device NAME, --profile FILE or --plan FILE to simulate");
        }
        let times = trace_times(&self.kineto, &network)?;
        warn_of_unassigned(&self.kineto, &times);
        let batch = match plan {
            Some(_) => None,
            None => Some(batch_of(&self.kineto, &times, self.batch)?),
        };
        let gpus = if plan.is_some() { None } else { Some(1) };
        let (gpus, batch) = gpus_and_batch(gpus, batch, plan.as_ref())?;
        if self.rank >= gpus {
            bail!("--rank {}: the plan has {gpus} ranks, from 0 on", self.rank);
        }
        // One GPU has no links.
        let link = self.link.clone().or_else(|| plan.is_none().then(|| "shared-memory".into()));
        let costs = CostArgs {
            device: self.device.clone(),
            precision: None,
            profile: self.profile.clone(),
            background_profile: None,
            link,
            calibration: None,
        };
        let tables = costs.load(&network, batch, gpus, plan.as_ref(), None)?;
        let costs = Costs::new(&network, &tables.profile, &tables.link);
        let optimizer = LowerOptions::default().optimizer;
        let made = if let Some(plan) = plan {
            let job = Job::of_plan(costs, &plan, optimizer);
            job.and_then(|job| job.lower(plan).map(|lowered| (job, lowered)))
        } else {
            let job = Job::new(costs, batch, LowerOptions::default());
            plan_within_memory(&job, &PlanRequest::new(1, Mode::DataParallel))
        };
        let (job, plan) = with_plan_path(self.plan.as_deref(), made)?;
        let (simulated, samples) = self.simulate(&job, &plan)?;
        if let Some(recorded) = times.batch.filter(|recorded| *recorded != samples) {
            bail!(
                "{}: the trace has {recorded} samples, and rank {} of the plan {samples}: compare equal \
                 numbers",
                self.kineto.display(),
                self.rank
            );
        }
        if self.json {
            self.print_json(&network, samples, &times, &simulated);
        } else {
            self.print(&network, samples, &times, &simulated);
        }
        Ok(())
    }

    /// Returns the simulated times of the rank, and its largest number of samples.
    fn simulate(&self, job: &Job<'_>, plan: &LoweredPlan<'_>) -> anyhow::Result<(Simulated, usize)> {
        let options = SimulateOptions::default().with_timeline(true);
        let (_, result) = SimulationReport::new(job, plan, &options)?;
        let program = plan.training().for_simulation()?;
        let of_rank = program.ranks.iter().find(|of| of.represented_ranks.contains(&self.rank));
        let of_rank = of_rank.with_context(|| format!("rank {} has no steps", self.rank))?;
        let iterations = of_rank.later_iterations.len() as u32 + 1;
        let (mut layers, mut samples) = (HashMap::<LayerId, LayerTime>::new(), 0);
        let timeline = result.timeline.iter().flat_map(Timeline::events);
        for event in timeline.filter(|event| event.rank == self.rank) {
            let Some(step) = event.step.and_then(|step| of_rank.steps.get(step.0)) else { continue };
            let duration = event.duration / iterations;
            match &step.op {
                Op::Forward { layer, shard, .. } => {
                    layers.entry(*layer).or_default().forward += duration;
                    samples = samples.max(shard.samples);
                }
                Op::Backward { layer, .. } => layers.entry(*layer).or_default().backward += duration,
                Op::OptimizerStep { layer, .. } => layers.entry(*layer).or_default().update += duration,
                _ => {}
            }
        }
        Ok((Simulated { layers, iteration: result.iteration }, samples))
    }

    fn print(&self, network: &LayerGraph, samples: usize, times: &TraceTimes, simulated: &Simulated) {
        print_message!(
            "{} with {samples} samples: {} recorded iterations in {}",
            network.name(),
            times.iterations,
            self.kineto.display()
        );
        let header = [
            "layer",
            "forward, recorded",
            "simulated",
            "backward, recorded",
            "simulated",
            "recorded / simulated",
        ];
        let mut shown = table(&header);
        let (mut recorded_all, mut simulated_all) = ([Duration::ZERO; 2], LayerTime::default());
        let cells = |name: &str, recorded: Option<[Duration; 2]>, of: LayerTime| {
            let [forward, backward] = match recorded {
                Some(passes) => passes.map(time),
                None => ["-".to_owned(), "-".to_owned()],
            };
            let ratio =
                recorded.map(|[forward, backward]| ratio(forward + backward, of.forward + of.backward));
            [
                name.to_owned(),
                forward,
                time(of.forward),
                backward,
                time(of.backward),
                ratio.unwrap_or_default(),
            ]
        };
        for (layer, recorded) in rows(network, times) {
            let of = simulated.layers.get(&layer).copied().unwrap_or_default();
            simulated_all = simulated_all + of;
            for (all, one) in recorded_all.iter_mut().zip(recorded.unwrap_or_default()) {
                *all += one;
            }
            shown.add_row(cells(network.layer(layer).name(), recorded, of));
        }
        shown.add_row(cells("all layers", Some(recorded_all), simulated_all));
        print_message!("\n{shown}\n");
        let mut shown = table(&["", "recorded", "simulated", "recorded / simulated"]);
        let update = times.update.map_or_else(|| "-".to_owned(), time);
        let update_ratio = times.update.map(|update| ratio(update, simulated_all.update));
        shown.add_row([
            "update".to_owned(),
            update,
            time(simulated_all.update),
            update_ratio.unwrap_or_default(),
        ]);
        let iteration = ratio(times.iteration, simulated.iteration);
        shown.add_row(["iteration".to_owned(), time(times.iteration), time(simulated.iteration), iteration]);
        print_message!("{shown}\n\n{}: {}", self.kineto.display(), times.unassigned_line());
    }

    fn print_json(&self, network: &LayerGraph, samples: usize, times: &TraceTimes, simulated: &Simulated) {
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let mut update = Duration::ZERO;
        let layers = rows(network, times).map(|(id, recorded)| {
            let (layer, of) = (network.layer(id), simulated.layers.get(&id).copied().unwrap_or_default());
            update += of.update;
            json!({
                "name": layer.name(), "kind": layer.kind().label(),
                "recorded": recorded.map(|[forward, backward]| {
                    json!({ "forward_us": us(forward), "backward_us": us(backward) })
                }),
                "simulated": { "forward_us": us(of.forward), "backward_us": us(of.backward) },
            })
        });
        let layers: Vec<Value> = layers.collect();
        print_json(&json!({
            "schema": "deeppool/report/v1", "experiment": "compare-trace", "model": network.name(),
            "file": self.kineto, "rank": self.rank, "batch": samples, "iterations": times.iterations,
            "layers": layers,
            "update": { "recorded_us": times.update.map(us), "simulated_us": us(update) },
            "iteration": { "recorded_us": us(times.iteration), "simulated_us": us(simulated.iteration) },
            "total_us": us(times.total), "assigned_share": times.assigned_share(),
            "unassigned": unassigned_json(times),
        }));
    }
}

/// Returns the layers of a network without its input, with the recorded times of their passes.
fn rows<'a>(
    network: &'a LayerGraph,
    times: &'a TraceTimes,
) -> impl Iterator<Item = (LayerId, Option<[Duration; 2]>)> + 'a {
    let layers = network.computing_layers();
    layers.zip(&times.layers).map(|((id, _), recorded)| (id, *recorded))
}

/// Returns a recorded time divided by a simulated one; empty if that is 0.
fn ratio(recorded: Duration, simulated: Duration) -> String {
    if simulated.is_zero() {
        return String::new();
    }
    format!("{:.2}", recorded.as_secs_f64() / simulated.as_secs_f64())
}
