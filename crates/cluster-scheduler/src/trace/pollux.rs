//! Pollux' published step times. A *node* is a machine with 4 GPUs.

use std::io::Read;
use std::time::Duration;

use super::sheet::Sheet;
use crate::{Error, Execution, GpuType, Mode, Table};

/// Duration of a step (iteration) of one of Pollux' models (Qiao et al., OSDI 2021), measured on
/// nodes with 4 T4.
#[derive(Debug, Clone, PartialEq)]
pub struct PolluxStep {
    /// Name of the model.
    pub model: String,
    /// Number of GPUs over all nodes.
    pub gpus: usize,
    /// Number of nodes that the GPUs are on.
    pub nodes: usize,
    /// Number of samples of a step on each GPU.
    pub local_batch: usize,
    /// Duration of the step in seconds.
    pub step: f64,
    /// Part of the step spent on synchronizing gradients, in seconds.
    pub synchronization: f64,
}

/// Number of GPUs of a node in the measurements.
const NODE: usize = 4;

impl PolluxStep {
    /// Returns whether the GPUs are on more nodes than necessary.
    #[must_use]
    pub fn is_spread(&self) -> bool {
        self.nodes > self.gpus.div_ceil(NODE)
    }
}

/// Reads step times from a CSV with the columns `model`, `kind`, `placement_or_nodes`, `replicas`,
/// `local_batch`, `step_s` and `sync_s`. For the kind `placement`, the column `placement_or_nodes`
/// has a digit for each node, its number of GPUs; for the kind `scalability` it is the number of
/// nodes.
///
/// `file` is the name in errors.
///
/// # Errors
///
/// [`Error::BadTrace`] if the file is no valid CSV, lacks a column or has a value outside its
/// range.
pub fn pollux_steps(file: &str, input: impl Read) -> Result<Vec<PolluxStep>, Error> {
    let columns: [&[&str]; 7] = [
        &["model"],
        &["kind"],
        &["placement_or_nodes"],
        &["replicas"],
        &["local_batch"],
        &["step_s"],
        &["sync_s"],
    ];
    let mut sheet = Sheet::open(file, input, &columns)?;
    let mut steps = Vec::new();
    while sheet.next()? {
        let is_count = |&count: &usize| (1..1 << 20).contains(&count);
        let gpus = sheet.number(3, "a number of GPUs from 1 on", is_count)?;
        let nodes = match sheet.text(1)? {
            "placement" => {
                let text = sheet.text(2)?;
                let of_node = text.chars().map(|digit| digit.to_digit(10).filter(|&gpus| gpus > 0));
                let placed = of_node.sum::<Option<u32>>().filter(|&placed| placed as usize == gpus);
                let expected =
                    || sheet.bad(2, format!("`{text}`, expected a digit a node that add up to {gpus} GPUs"));
                placed.ok_or_else(expected)?;
                text.len()
            }
            "scalability" => sheet
                .number(2, "a number of nodes, up to that of GPUs", |nodes| (1..=gpus).contains(nodes))?,
            other => return Err(sheet.bad(1, format!("`{other}`, expected `placement` or `scalability`"))),
        };
        let step = sheet.number(5, "seconds, more than 0", |&step: &f64| step > 0.0 && step < 1e6)?;
        steps.push(PolluxStep {
            model: sheet.text(0)?.to_owned(),
            gpus,
            nodes,
            local_batch: sheet.number(4, "samples from 1 on", |&samples: &usize| samples > 0)?,
            step,
            synchronization: sheet
                .number(6, "seconds, no more than the step's", |part| (0.0..=step).contains(part))?,
        });
    }
    Ok(steps)
}

/// Creates a table of data-parallel step times for the numbers of GPUs in `counts`, on GPUs of the
/// type `gpu_type`. A model has the times of the largest batch that was measured on one GPU and on
/// all of `counts`: on as few nodes as possible, and [spread](Table::set_spread) over more nodes as
/// the mean of all measured placements. Synchronization time is idle time that other jobs can use.
/// Models that were not measured on all of `counts` are skipped.
///
/// # Errors
///
/// [`Error::OutOfRange`] for times that no [`Execution`] can have.
pub fn pollux_table(steps: &[PolluxStep], counts: &[usize], gpu_type: GpuType) -> Result<Table, Error> {
    let mut table = Table::new();
    let mut models: Vec<&str> = steps.iter().map(|step| step.model.as_str()).collect();
    models.sort_unstable();
    models.dedup();
    for model in models {
        let of = |gpus: usize, spread: bool| {
            steps
                .iter()
                .filter(move |step| step.model == model && step.gpus == gpus && step.is_spread() == spread)
        };
        let is_everywhere =
            |&batch: &usize| counts.iter().all(|&gpus| of(gpus, false).any(|step| step.local_batch == batch));
        let batches = steps.iter().filter(|step| step.model == model).map(|step| step.local_batch);
        let Some(batch) = batches.filter(is_everywhere).max() else { continue };
        let kind = table.kind(model);
        for &gpus in counts {
            for spread in [false, true] {
                let measured: Vec<&PolluxStep> =
                    of(gpus, spread).filter(|step| step.local_batch == batch).collect();
                if measured.is_empty() {
                    continue;
                }
                let mean = |seconds: fn(&PolluxStep) -> f64| {
                    measured.iter().map(|step| seconds(step)).sum::<f64>() / measured.len() as f64
                };
                let step = Duration::from_secs_f64(mean(|step| step.step));
                let computing =
                    Duration::from_secs_f64(mean(|step| step.step - step.synchronization)).min(step);
                let execution = Execution::parts(step, &vec![computing; gpus])?;
                if spread {
                    table.set_spread(kind, gpu_type, Mode::DataParallel, execution);
                } else {
                    table.set(kind, gpu_type, Mode::DataParallel, execution);
                }
            }
        }
    }
    Ok(table)
}
