//! Plans as text. A run of layers is consecutive layers on the same ranks with the same split.

use comfy_table::Table;
use deeppool::job::Job;
use std::collections::BTreeSet;
use std::sync::Arc;

use burst_planner::ProofEnd;
use deeppool::plan::{ExecutionPlan, PlanMode, PlannedWorker, PlanningWork};
use deeppool::planning::{PathKind, PathStep, PlanAnalysis};
use deeppool::program::PartialBackpropagation;
use layer_graph::{LayerPart, NetworkSplits};
use layer_profile::Origin;

use super::network::opaque_line;
use super::output::{byte_size, gpus, micros, ranks, table};

/// Maximum gap to the lower bound that is printed: a larger one says little.
const MAX_CLAIMED_GAP: f64 = 0.5;

/// Returns a line on split layers whose times are modelled although those of whole layers are not.
/// `None` if there are none.
fn modelled_parts_line(job: &Job<'_>, plan: &ExecutionPlan) -> Result<Option<String>, deeppool::Error> {
    let (network, profile) = (job.costs().network(), job.costs().profile());
    if profile.origin() == Origin::Modelled {
        return Ok(None);
    }
    let placement = plan.placement(network)?;
    if !placement.is_split() {
        return Ok(None);
    }
    let parts = placement.parts(&NetworkSplits::new(network))?;
    let is_modelled =
        |parts: &&Vec<Arc<LayerPart>>| parts.iter().any(|part| profile.part(&part.layer).is_none());
    let modelled = parts.values().filter(is_modelled).count();
    Ok((modelled > 0).then(|| {
        format!(
            "parts of {modelled} of {} split layers: modelled from whole layers; measure them with \
             `deeppool profile --for-plan`",
            parts.len()
        )
    }))
}

/// Returns several lines that describe a plan of a job: its inputs, its times beside those of data
/// parallelism, and the ranks of its layers.
///
/// # Errors
/// If the critical path cannot be computed because layer times are missing.
pub(crate) fn plan_text(job: &Job<'_>, plan: &ExecutionPlan) -> Result<String, deeppool::Error> {
    let mut lines = Vec::new();
    lines.push(format!("plan of {}, global batch {}, {}", plan.model, plan.batch, gpus(plan.gpus)));
    let used: BTreeSet<usize> = plan.layers.iter().flat_map(|layer| layer.ranks.iter().copied()).collect();
    if used.len() < plan.gpus {
        let idle = plan.gpus - used.len();
        lines.push(format!("it uses {} of them; no layer runs on the other {idle}", used.len()));
    }
    let profile = &plan.profile;
    let engine = profile.measurement.as_ref().map_or(String::new(), |how| format!(" ({})", how.engine()));
    lines.push(format!(
        "layer times: {}, {}{engine}; links: {}, modelled",
        profile.device, profile.origin, plan.link
    ));
    lines.extend(modelled_parts_line(job, plan)?);
    if let Some(accuracy) = &profile.accuracy {
        lines.push(format!("model of {}: {accuracy}", profile.device));
    }
    lines.extend(opaque_line(job.costs().network()));
    let limit = match (plan.amplification_limit, plan.mode) {
        (Some(limit), _) => format!(" (limit {limit})"),
        (None, PlanMode::DataParallel) => " (data parallel, no limit)".into(),
        (None, PlanMode::Burst) => String::new(),
    };
    let deadline = plan.deadline_us.map_or(String::new(), |us| format!(" (deadline {})", micros(us)));
    lines.push(format!(
        "iteration {}{deadline}, {:.2} times as fast as one GPU; amplification {:.3}{limit}",
        micros(plan.iteration_us),
        plan.single_gpu_us / plan.iteration_us,
        plan.amplification,
    ));
    lines.extend(plan.range.map(|range| format!("range of the iteration: {range}")));
    if !plan.single_gpu_fits() {
        lines.push(format!(
            "the time on one GPU, {}, is the sum of its layers' times{}",
            micros(plan.single_gpu_us),
            without_room(plan.single_gpu_memory_bytes, false),
        ));
    }
    if plan.mode == PlanMode::Burst {
        let (us, amplification) = (plan.dp.iteration_us, plan.dp.amplification);
        lines.push(format!(
            "data parallel on the same GPUs: iteration {}, amplification {amplification:.3}{}",
            micros(us),
            without_room(plan.dp.memory_peak_bytes, plan.data_parallelism_fits()),
        ));
        let exceeds = plan.amplification_limit.is_some_and(|limit| amplification > limit);
        if us < plan.iteration_us && exceeds && plan.data_parallelism_fits() {
            let allowing = (amplification * 100.0).ceil() / 100.0;
            lines.push(format!(
                "data parallel is faster, above the limit: --amplification {allowing} allows it"
            ));
        }
    }
    lines.extend(plan.worker.iter().map(|worker| worker_line(job, plan, worker)));
    if let Some(work) = &plan.planning {
        let bound = plan.lower_bound_us.zip(plan.gap);
        lines.push(bound_text(bound, work, plan.amplification_limit.is_some()));
    }
    let of_all = |us: f64| 100.0 * us / (plan.iteration_us * plan.gpus as f64);
    lines.push(format!(
        "time of all GPUs: {:.1}% computing, {:.1}% only communicating, {:.1}% idle",
        of_all(plan.computing_us),
        of_all(plan.communicating_us),
        of_all(plan.idle_us),
    ));
    let cut = plan.lowering.micro_batches;
    if cut > 1 {
        lines.push(format!(
            "the batch is cut into {cut} micro-batches, one after another: nothing has room for more at once"
        ));
    }
    if let Some(last) = plan.lowering.checkpoints.last() {
        let segments = plan.lowering.checkpoints.len();
        lines.push(format!(
            "activations up to `{last}` are computed again in the backward pass, in {segments} {}: nothing \
             has room \
             for all of them at once",
            if segments == 1 { "part" } else { "parts" }
        ));
    }
    lines.extend(memory_line(plan));
    if let Some(partial) = &plan.lowering.partial {
        lines.push(partial_line(partial));
        lines.push(format!("\nWhere layers run\n{}", places(plan)));
    } else {
        lines.push(format!(
            "\nWhat an iteration waits for\n{}",
            rows(plan, &PlanAnalysis::new(job, plan)?.critical_path()?)
        ));
    }
    Ok(lines.join("\n"))
}

/// Describes how far a plan is from the best one, and the work of the search and the proof. `bound`
/// is the lower bound in microseconds and the plan's gap to it, `None` if nothing is proved.
/// `is_limited` is whether the amplification was limited.
pub(crate) fn bound_text(bound: Option<(f64, f64)>, work: &PlanningWork, is_limited: bool) -> String {
    let limit = if is_limited { "within the limit" } else { "of this amplification" };
    let claim = match bound {
        _ if work.proof_end == ProofEnd::Off => return String::from("no lower bound was asked for"),
        Some(_) if work.proof_end == ProofEnd::Optimal => format!("no plan {limit} is faster: it is optimal"),
        Some((bound_us, gap)) if gap <= MAX_CLAIMED_GAP => format!(
            "no plan {limit} is faster than {}: this one is at most {:.1}% above the best",
            micros(bound_us),
            100.0 * gap
        ),
        _ => String::from("how far it is from the best plan is not known"),
    };
    let end = match work.proof_end {
        ProofEnd::Optimal => "",
        ProofEnd::Complete => "; more work does not raise it",
        ProofEnd::Time => "; the time was over",
        ProofEnd::Stopped => "; it was stopped",
        _ => "; the default effort was spent: --prove 30s tries longer",
    };
    let elsewhere = if work.is_reproducible { "" } else { "; another run can prove more or less" };
    let PlanningWork { evaluations, proof_operations, .. } = work;
    format!(
        "{claim} ({evaluations} plans evaluated, {proof_operations} operations of the proof{end}{elsewhere})"
    )
}

/// Describes a worker: its number of GPUs, its speed-up over one GPU, and whether it spans several
/// hosts.
fn worker_line(job: &Job<'_>, plan: &ExecutionPlan, worker: &PlannedWorker) -> String {
    let &PlannedWorker { gpus: gpus_each, replicas, iteration_us, single_gpu_us, .. } = worker;
    let across = job.costs().link().ranks_per_host().map_or(0, |host| worker.across_hosts(host));
    let across = match across {
        0 => String::new(),
        across => format!("; GPUs of {across} of them are on more than one host"),
    };
    format!(
        "{replicas} {} of {}, {} samples each: alone in {}, {:.2} times as fast as one GPU ({}){across}",
        if replicas == 1 { "worker" } else { "workers" },
        gpus(gpus_each),
        plan.batch / replicas,
        micros(iteration_us),
        worker.speed_up(),
        micros(single_gpu_us),
    )
}

fn partial_line(partial: &PartialBackpropagation) -> String {
    let parts = partial.parts();
    let mut roles: Vec<String> = partial.lowest().iter().map(|layer| format!("`{layer}`")).collect();
    if roles.len() < parts {
        roles.push("the first layer".into());
    }
    let roles = roles.join(", ");
    format!(
        "partial backpropagation: the batch is cut into {parts} parts, which backpropagate down to {roles}, \
         in turn; times are means of \
         {parts} iterations in virtual time"
    )
}

/// Returns a table of runs of layers.
fn places(plan: &ExecutionPlan) -> Table {
    let mut shown = table(&header(plan, &[]));
    for run in order(plan).chunk_by(|&a, &b| plan.layers[a].is_placed_as(&plan.layers[b])) {
        shown.add_row(run_cells(plan, run));
    }
    shown
}

/// Returns the header of a table of runs of layers: that of [`run_cells`], followed by `more`.
fn header<'h>(plan: &ExecutionPlan, more: &[&'h str]) -> Vec<&'h str> {
    let split = is_split(plan).then_some("split");
    ["layers", "", "GPUs", "ranks"].into_iter().chain(split).chain(more.iter().copied()).collect()
}

fn is_split(plan: &ExecutionPlan) -> bool {
    plan.layers.iter().any(|layer| layer.division.is_some())
}

/// Returns the cells of a run of layers: names, number of layers, number of GPUs, ranks, and the
/// split if the plan has one.
fn run_cells(plan: &ExecutionPlan, run: &[usize]) -> Vec<String> {
    let (first, last) = (&plan.layers[run[0]], &plan.layers[run[run.len() - 1]]);
    let names = if run.len() == 1 { first.name.clone() } else { format!("{} .. {}", first.name, last.name) };
    let mut cells = vec![names, run.len().to_string(), first.gpus.to_string(), ranks(&first.ranks)];
    if is_split(plan) {
        cells.push(first.split().unwrap_or_default());
    }
    cells
}

/// Describes the memory of the fullest GPU by kind, in descending order.
fn memory_line(plan: &ExecutionPlan) -> Option<String> {
    let (peak, memory) = (plan.memory_peak_bytes?, plan.memory?);
    let mut kinds = memory.by_kind();
    kinds.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
    let kinds = kinds.into_iter().filter(|&(_, bytes)| bytes > 0);
    let kinds: Vec<String> = kinds.map(|(kind, bytes)| format!("{kind} {}", byte_size(bytes))).collect();
    let limit =
        plan.memory_limit_bytes.map_or(String::new(), |limit| format!(" of {} available", byte_size(limit)));
    Some(format!("memory of the fullest GPU: {}{limit} ({})", byte_size(peak), kinds.join(", ")))
}

fn without_room(bytes: Option<u64>, fits: bool) -> String {
    match bytes {
        Some(bytes) if !fits => format!("; it does not fit: {} a GPU", byte_size(bytes)),
        _ => String::new(),
    }
}

/// Returns a table of the critical path: runs of layers, and communication between them. The
/// times add up to the iteration.
fn rows(plan: &ExecutionPlan, path: &[PathStep]) -> Table {
    let header = header(plan, &["forward", "backward", "update", "time"]);
    let mut shown = table(&header);
    let mut place = vec![0; plan.layers.len()];
    let order = order(plan);
    order.iter().enumerate().for_each(|(at, &layer)| place[layer] = at);
    let mut end = 0;
    for run in order.chunk_by(|&a, &b| plan.layers[a].is_placed_as(&plan.layers[b])) {
        let begin = end;
        end += run.len();
        let is_here = |step: &PathStep| step.node.is_some_and(|node| (begin..end).contains(&place[node.0]));
        let time = |kind: PathKind| total(path.iter().filter(|step| step.kind == kind && is_here(step)));
        let [forward, again, backward, update] =
            [PathKind::Forward, PathKind::Recompute, PathKind::Backward, PathKind::Update].map(time);
        let backward = again + backward;
        let times = [forward, backward, update, forward + backward + update].map(micros);
        shown.add_row(run_cells(plan, run).into_iter().chain(times));
    }
    for (what, kinds) in [
        ("moving activations", &[PathKind::Activations][..]),
        ("moving gradients of activations", &[PathKind::Gradient]),
        ("all-reduces that nothing hides", &[PathKind::AllReduce]),
        ("synchronised normalisation", &[PathKind::Synchronize]),
        ("norm of gradients and metrics", &[PathKind::Norm, PathKind::Metrics]),
        ("hidden by the next iteration", &[PathKind::Overlap]),
    ] {
        let time_us = total(path.iter().filter(|step| kinds.contains(&step.kind)));
        if time_us != 0.0 {
            let sign = if time_us < 0.0 { "-" } else { "" };
            add_total(&mut shown, header.len(), what, format!("{sign}{}", micros(time_us.abs())));
        }
    }
    add_total(&mut shown, header.len(), "iteration", micros(plan.iteration_us));
    shown
}

fn add_total(shown: &mut Table, columns: usize, what: &str, time: String) {
    let mut cells = vec![String::new(); columns];
    (cells[0], cells[columns - 1]) = (what.into(), time);
    shown.add_row(cells);
}

fn total<'a>(steps: impl Iterator<Item = &'a PathStep>) -> f64 {
    // Starts at +0, because the empty sum of `Iterator::sum` is -0.
    steps.fold(0.0, |sum, step| sum + step.time_us)
}

/// Returns the indices of the layers in execution order.
fn order(plan: &ExecutionPlan) -> Vec<usize> {
    let Some(names) = &plan.order else { return (0..plan.layers.len()).collect() };
    let by_name: std::collections::HashMap<&str, usize> =
        plan.layers.iter().enumerate().map(|(index, layer)| (layer.name.as_str(), index)).collect();
    names.iter().filter_map(|name| by_name.get(name.as_str()).copied()).collect()
}
