//! Fit of the built-in device models: to kernels and layers measured alone, and to whole iterations
//! that are not held out.

mod deepbench;
mod deeppool;
mod h200;
mod pipedream;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use layer_graph::zoo;
use layer_profile::{
    DataSheet, DeviceModel, Gpu, HeldOutErrors, Iteration, NetworkFamily, NumberFormat, Observations,
};

use super::split::FittedQuestion;
use super::summary::held_out;
use super::training::{QuestionRow, Training};

/// Folders of the measurements.
pub(super) struct Folders<'a> {
    /// Published tables.
    pub(super) published: &'a Path,
    /// Layer times published with the original.
    pub(super) a100_profiles: &'a Path,
    /// Iterations measured on an H200.
    pub(super) h200: &'a Path,
}

/// A model and its observations: its name, the model that it starts from, and the devices whose
/// iterations it is fitted to.
struct Order {
    name: &'static str,
    start: &'static str,
    devices: &'static [&'static str],
    /// Description of the observations.
    source: &'static str,
}

/// Description of the observations of an A100 in TF32.
const A100_SOURCE: &str = "layer times published with DeepPool and published iterations";

/// Models in the order of the fits. Models of other chips start from that of an H200 in the same
/// number format, of which all kinds of networks were measured.
const ORDERS: [Order; 9] = [
    Order { name: "h200", start: "a100-profiles", devices: &[], source: "PyTorch on an H200" },
    Order { name: "h200-bf16", start: "h200", devices: &[], source: "PyTorch on an H200" },
    Order { name: "h200-fp32", start: "h200", devices: &[], source: "PyTorch on an H200" },
    Order { name: "h100", start: "h200", devices: &["h100"], source: "published iterations" },
    Order { name: "h100-bf16", start: "h200-bf16", devices: &["h100-bf16"], source: "published iterations" },
    Order { name: "a100", start: "h200", devices: &["a100", "a100-80gb"], source: A100_SOURCE },
    Order {
        name: "a100-bf16",
        start: "h200-bf16",
        devices: &["a100-bf16", "a100-80gb-bf16"],
        source: "published iterations",
    },
    Order {
        name: "v100",
        start: "h200-fp32",
        devices: &["v100"],
        source: "kernels of DeepBench, layers of PipeDream and published iterations",
    },
    Order {
        name: "v100-fp16",
        start: "h200-bf16",
        devices: &["v100-fp16"],
        source: "kernels of DeepBench and published iterations",
    },
];

/// Fits all models. Those of an H200 carry the errors on networks that they were each fitted
/// without.
///
/// # Errors
/// If a file cannot be read, or if a model has no observations.
pub(super) fn fit(folders: &Folders<'_>, questions: &[FittedQuestion]) -> anyhow::Result<Vec<DeviceModel>> {
    let profiles = deeppool::observations(A100_SOURCE, folders.a100_profiles)?;
    let (start, _) = DeviceModel::fit("a100-profiles", Some(&DataSheet::A100), &profiles)?;
    let mut starts = BTreeMap::from([("a100-profiles", (start, Gpu::named("a100")?))]);
    let mut models = Vec::new();
    for Order { name, start, devices, source } in ORDERS {
        let gpu = Gpu::named(name)?;
        let (start, from) = &starts[start];
        let start = start.scaled(name, from, &gpu);
        let mut observations = if name == "a100" { profiles.clone() } else { Observations::new(source) };
        for question in questions.iter().filter(|question| devices.contains(&question.device.as_str())) {
            let iteration = Iteration {
                network: &question.network,
                samples: question.batch,
                micro_batches: question.accumulation,
                optimizer: question.optimizer,
            };
            let row = format!("{} x {} on {}", question.batch, question.accumulation, question.device);
            let measured_on = Gpu::named(&question.device)?;
            let time = Duration::from_secs_f64(question.step_s);
            observations.add_iteration(&row, &iteration, &measured_on, time);
        }
        if name.starts_with("h200") {
            h200::add(&mut observations, folders.h200, &gpu)?;
        }
        if name.starts_with("v100") {
            deepbench::add(&mut observations, folders.published, gpu.format)?;
        }
        if name.starts_with("v100") && gpu.format == NumberFormat::Fp32 {
            pipedream::add(&mut observations, folders.published)?;
        }
        let (model, _) = start.refit(name, &gpu, &observations)?;
        let model = if devices.is_empty() {
            let left_out = left_out(&start, &gpu, &observations)?;
            model.with_held_out(left_out)
        } else {
            model
        };
        starts.insert(name, (model.clone(), gpu));
        models.push(model);
    }
    Ok(models)
}

/// Returns the errors of models that are each fitted without one of the networks, on that network.
fn left_out(
    start: &DeviceModel,
    gpu: &Gpu,
    observations: &Observations,
) -> anyhow::Result<Vec<HeldOutErrors>> {
    let mut errors = Vec::new();
    for name in observations.networks() {
        let (model, _) = start.refit("left out", gpu, &observations.without(name))?;
        let network = zoo::model(name)?;
        for of_network in model.errors(&observations.only(name)) {
            errors.extend(of_network.whole.iter().map(|&(samples, error)| HeldOut {
                family: NetworkFamily::of(&network),
                samples,
                error,
            }));
        }
    }
    Ok(held_out_errors(&errors))
}

/// Error of a model on one iteration that it was not fitted to.
pub(super) struct HeldOut {
    pub(super) family: NetworkFamily,
    /// Number of samples on a GPU.
    pub(super) samples: usize,
    /// Predicted over measured time, minus 1.
    pub(super) error: f64,
}

/// Summarises errors by family.
pub(super) fn held_out_errors(errors: &[HeldOut]) -> Vec<HeldOutErrors> {
    let mut by_family = BTreeMap::<NetworkFamily, Vec<&HeldOut>>::new();
    for error in errors {
        by_family.entry(error.family).or_default().push(error);
    }
    let summary = |(family, errors): (NetworkFamily, Vec<&HeldOut>)| {
        // A time that is too short by a factor is as wrong as one that is too long by it.
        let factor = |error: &&HeldOut| (1.0 + error.error).max(1.0 / (1.0 + error.error)) - 1.0;
        let mut magnitudes: Vec<f64> = errors.iter().map(factor).collect();
        magnitudes.sort_by(f64::total_cmp);
        let at = |part: f64| magnitudes[((magnitudes.len() - 1) as f64 * part).round() as usize];
        let samples = || errors.iter().map(|error| error.samples);
        HeldOutErrors {
            family,
            iterations: errors.len(),
            samples: [samples().min().unwrap_or(0), samples().max().unwrap_or(0)],
            median: at(0.5),
            nine_tenths: at(0.9),
        }
    };
    by_family.into_iter().map(summary).collect()
}

/// Writes the models to a folder, as `NAME.json`. Those of devices with held-out questions carry
/// the errors on them.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn write(folder: &Path, models: Vec<DeviceModel>, training: &Training) -> anyhow::Result<()> {
    for model in models {
        let gpu = Gpu::named(model.name())?;
        let of_model = |row: &&QuestionRow| {
            let measured_on = Gpu::named(&row.device);
            measured_on.is_ok_and(|on| on.format == gpu.format && on.sheet.has_chip_of(&gpu.sheet))
                && row.device.starts_with(chip(model.name()))
        };
        let errors = held_out(training).filter(of_model).filter_map(|row| {
            // The errors of models are those of times.
            let error = 1.0 / (1.0 + row.error?) - 1.0;
            let family = row.question.network.family();
            Some(HeldOut { family, samples: row.question.batch, error })
        });
        let errors: Vec<HeldOut> = errors.collect();
        let model = if errors.is_empty() { model } else { model.with_held_out(held_out_errors(&errors)) };
        let path = folder.join(format!("{}.json", model.name()));
        command_line::files::write(&path, (model.to_json()? + "\n").into_bytes())?;
    }
    Ok(())
}

/// Returns the name of the chip of a device model, such as `a100` of `a100-bf16`.
fn chip(name: &str) -> &str {
    name.split('-').next().unwrap_or(name)
}
