//! `deeppool simulate --jobs`: several jobs that share the links of a cluster.

use std::path::Path;

use anyhow::Context;
use collectives::LinkModel;
use command_line::files::read_text_as;
use deeppool::costs::Costs;
use deeppool::job::{Job, LoweredPlan};
use deeppool::plan::ExecutionPlan;
use deeppool::program::LowerOptions;
use deeppool::simulate::{
    ClusterJob, ClusterJobSpec, ClusterJobsFile, ClusterOptions, ClusterSimulation, JobGpus, JobMode,
    SimulateOptions, place_jobs, simulate_cluster,
};
use layer_graph::LayerGraph;
use serde_json::{Value, json};

use super::costs::{CostArgs, CostTables, ModeArgs, ModeName, gpus_and_batch, job_and_plan, with_plan_path};
use super::inputs;
use super::left_out::warn_of_unused_gpus;
use super::network::named_network;
use super::output::{micros, print_json, print_message, rate, save_json, table, time};
use super::progress::with_spinner;

/// A job of the file with what it was read from.
struct LoadedJob<'a> {
    spec: &'a ClusterJobSpec,
    network: LayerGraph,
    plan: Option<ExecutionPlan>,
    tables: CostTables,
    /// Number of GPUs, and of samples of the global batch.
    size: (usize, usize),
    mode: ModeArgs,
}

/// Simulates the jobs of a file, writes their timeline to `trace`, and prints the results.
///
/// # Errors
/// If a file cannot be read, no plan is found, or the jobs do not fit the cluster.
pub(crate) fn simulate_jobs(
    path: &Path,
    options: SimulateOptions,
    trace: Option<&Path>,
    as_json: bool,
) -> anyhow::Result<()> {
    let file = read_text_as(path, ClusterJobsFile::from_json)?;
    let of_file = || path.display().to_string();
    let folder = path.parent().unwrap_or(Path::new(""));
    let link = beside(folder, &file.link);
    let cluster = inputs::link(&link).with_context(|| format!("{}: link", path.display()))?;
    let of_job = |index: usize| format!("{}: jobs[{index}]", path.display());
    let mut loaded = Vec::with_capacity(file.jobs.len());
    for (index, spec) in file.jobs.iter().enumerate() {
        loaded.push(LoadedJob::new(spec, folder, &link).with_context(|| of_job(index))?);
    }
    let mut planned: Vec<(Job<'_>, LoweredPlan<'_>)> = Vec::with_capacity(loaded.len());
    for (index, job) in loaded.iter().enumerate() {
        planned.push(job.plan(folder).with_context(|| of_job(index))?);
    }

    let names: Vec<Vec<String>> = file.jobs.iter().map(ClusterJobSpec::names).collect();
    let asked: Vec<(&str, JobGpus)> = names
        .iter()
        .zip(&loaded)
        .flat_map(|(names, job)| names.iter().map(|name| (name.as_str(), job.spec.job_gpus(job.size.0))))
        .collect();
    let per_host = cluster.ranks_per_host().unwrap_or(1);
    let mut places = place_jobs(file.gpus, per_host, &asked).with_context(of_file)?.into_iter();
    let mut jobs = Vec::with_capacity(asked.len());
    for ((names, loaded), (job, plan)) in names.iter().zip(&loaded).zip(&planned) {
        let program = plan.training().for_simulation()?;
        for (name, start) in names.iter().zip(loaded.spec.starts()) {
            let gpus = places.next().unwrap_or_default();
            jobs.push(ClusterJob::new(name, program, job.costs(), gpus).with_start(start));
        }
    }
    let options = ClusterOptions::new(options);
    let simulated = with_spinner("simulating", || simulate_cluster(&cluster, file.gpus, &jobs, &options));
    let simulated = simulated.with_context(of_file)?;
    if let (Some(path), Some(timeline)) = (trace, &simulated.timeline) {
        save_json(path, &timeline.to_chrome_trace())?;
    }
    let plans: Vec<&(Job<'_>, LoweredPlan<'_>)> =
        names.iter().zip(&planned).flat_map(|(names, planned)| names.iter().map(move |_| planned)).collect();
    if as_json {
        print_json(&report(&file, &cluster, &plans, &simulated));
        return Ok(());
    }
    show(&cluster, file.gpus, &simulated);
    if let Some(path) = trace {
        print_message!("wrote {}", path.display());
    }
    Ok(())
}

/// Returns the name of something built in, or the path of a file relative to `folder`.
fn beside(folder: &Path, name_or_file: &str) -> String {
    let is_file = Path::new(name_or_file).extension().is_some();
    if is_file { folder.join(name_or_file).display().to_string() } else { name_or_file.to_owned() }
}

impl<'a> LoadedJob<'a> {
    fn new(spec: &'a ClusterJobSpec, folder: &Path, link: &str) -> anyhow::Result<Self> {
        let model = beside(folder, &spec.model);
        let network = named_network(&model)?;
        let plan = spec.plan.as_ref().map(|plan| inputs::plan(&folder.join(plan))).transpose()?;
        let gpus = spec.gpus.or(spec.on_gpus.as_ref().map(Vec::len));
        let size @ (gpus, batch) = gpus_and_batch(gpus, spec.batch, plan.as_ref())?;
        let mode = match spec.mode {
            Some(JobMode::Dp) => ModeName::Dp,
            Some(JobMode::Burst) | None => ModeName::Burst,
        };
        let mode = ModeArgs::of_mode(mode, spec.amplification);
        mode.check(size)?;
        let device = spec.device.as_ref().map(|device| beside(folder, device));
        let profile = spec.profile.as_ref().map(|profile| folder.join(profile));
        let costs = CostArgs::of_job(device, profile, link.to_owned());
        let tables = costs.load(&network, batch, gpus, plan.as_ref(), None)?;
        Ok(Self { spec, network, plan, tables, size, mode })
    }

    /// Returns the job with its plan.
    fn plan(&self, folder: &Path) -> anyhow::Result<(Job<'_>, LoweredPlan<'_>)> {
        let CostTables { profile, link, .. } = &self.tables;
        let costs = Costs::new(&self.network, profile, link);
        let limit_bytes = self.mode.capacity(profile.device()).limit_bytes()?;
        let numerics = (LowerOptions::default().optimizer, None);
        let made = job_and_plan(self.plan.clone(), costs, self.size, &self.mode, limit_bytes, numerics);
        let path = self.spec.plan.as_ref().map(|plan| folder.join(plan));
        let (job, plan) = with_plan_path(path.as_deref(), made)?;
        warn_of_unused_gpus(&plan);
        Ok((job, plan))
    }
}

/// Returns the results as JSON. Times are in microseconds.
fn report(
    file: &ClusterJobsFile,
    cluster: &LinkModel,
    plans: &[&(Job<'_>, LoweredPlan<'_>)],
    simulated: &ClusterSimulation,
) -> Value {
    let us = |time: std::time::Duration| time.as_secs_f64() * 1e6;
    let jobs = simulated.jobs.iter().zip(plans).map(|(of_job, (job, plan))| {
        json!({
            "name": of_job.name, "model": job.costs().network().name(),
            "device": job.costs().profile().device(), "batch": plan.batch, "gpus": plan.gpus,
            "mode": plan.mode, "on_gpus": of_job.gpus, "start_us": us(of_job.start),
            "iteration_alone_us": us(of_job.alone.iteration), "iteration_us": us(of_job.beside.iteration),
            "slowdown": of_job.slowdown(), "iterations": of_job.beside.iterations.len(),
            "foreground_samples_per_s": of_job.beside.foreground_samples_per_s,
        })
    });
    let levels = simulated.levels.iter().map(|level| {
        json!({
            "level": level.level, "links": level.links, "used_links": level.used_links,
            "bytes_per_s": level.bytes_per_s, "mean_busy": level.mean_busy, "max_busy": level.max_busy,
            "busiest": level.busiest.to_string(),
        })
    });
    json!({
        "schema": "deeppool/report/v1", "experiment": "cluster-jobs", "simulated": true,
        "link": cluster.name(), "gpus": file.gpus, "duration_us": us(simulated.duration),
        "jobs": jobs.collect::<Vec<_>>(), "levels": levels.collect::<Vec<_>>(),
    })
}

fn show(cluster: &LinkModel, gpus: usize, simulated: &ClusterSimulation) {
    let per_host = cluster.ranks_per_host().unwrap_or(1);
    let mut jobs = table(&["job", "GPUs", "hosts", "alone", "beside others", "slowdown", "throughput"]);
    for of_job in &simulated.jobs {
        let mut hosts: Vec<usize> = of_job.gpus.iter().map(|gpu| gpu / per_host).collect();
        hosts.sort_unstable();
        hosts.dedup();
        jobs.add_row([
            of_job.name.clone(),
            of_job.gpus.len().to_string(),
            hosts.len().to_string(),
            time(of_job.alone.iteration),
            time(of_job.beside.iteration),
            format!("{:.3}", of_job.slowdown()),
            rate(of_job.beside.foreground_samples_per_s),
        ]);
    }
    print_message!("{jobs}");
    let mut levels = table(&["links", "used", "capacity", "mean busy", "max busy", "busiest"]);
    for level in &simulated.levels {
        let name = match level.level {
            0 => "inside hosts".to_owned(),
            1 => "between hosts".to_owned(),
            2 => "between racks".to_owned(),
            level => format!("level {level}"),
        };
        levels.add_row([
            name,
            format!("{} of {}", level.used_links, level.links),
            format!("{:.1} GB/s", level.bytes_per_s / 1e9),
            format!("{:.1}%", 100.0 * level.mean_busy),
            format!("{:.1}%", 100.0 * level.max_busy),
            if level.used_links > 0 { level.busiest.to_string() } else { "none".to_owned() },
        ]);
    }
    print_message!("\nUse of the links of {} with {gpus} GPUs\n{levels}", cluster.name());
    print_message!(
        "simulated: {} of virtual time, with links shared max-min fairly",
        micros(simulated.duration.as_secs_f64() * 1e6)
    );
}
