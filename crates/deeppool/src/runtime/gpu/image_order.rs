//! Times of the kernels of a job in both orders of the elements of images.

use std::time::Duration;

use layer_engine::{CudaEngine, Engine, EngineError, ImageLayout, KernelChoice, KernelSpec};
use layer_graph::{LayerGraph, Shape};
use layer_profile::Profiler;
use sha2::{Digest, Sha256};

use crate::Error;
use crate::program::{BufferId, Program, RankProgram, Step};
use crate::runtime::kernels::work_of;
use crate::runtime::{ImageOrder, kernel_groups, kernel_spec};

/// Number of repeats of the measurement of a kernel.
const REPEATS: usize = 5;

/// Kernels that do the same work on images.
struct ImageKernel<'p> {
    /// A step with this kernel, of a program of a rank.
    of: (&'p RankProgram, &'p Step),
    spec: KernelSpec<'p>,
    /// Number of steps of all ranks and programs.
    count: usize,
}

/// Returns the order of the elements of images in which the kernels of a job take the least time on
/// a GPU. `training` are the programs of a rotation, `evaluation` those that the same job also
/// runs; all have the same precision.
///
/// The kernels of layers with images are timed in both orders, each distinct kernel once, and
/// weighted by the number of its steps on all ranks in an iteration. The choice is kept with those
/// of kernels (see [`CudaEngine::with_choices_in`]). Channels come first if they take at most 2%
/// longer, and, without being timed, in precisions without tensor cores (for which cuDNN prefers
/// this order), without convolutions, if a layer has no kernel with channels last, and if the
/// engine does not time kernels: without [`KernelChoice::Fastest`].
///
/// # Errors
/// [`Error::Engine`] if a kernel of the job cannot be prepared with channels first, or the device
/// fails.
pub fn fastest_image_order(
    engine: &CudaEngine,
    network: &LayerGraph,
    training: &[Program],
    evaluation: &[&Program],
) -> Result<ImageOrder, Error> {
    let first = |reason: &str| Ok(ImageOrder::untimed(ImageLayout::ChannelsFirst, reason));
    let Some(precision) = training.first().map(|program| program.precision) else {
        return first("no kernels");
    };
    let is_split = training.iter().flat_map(|program| &program.ranks).any(|rank| !rank.parts.is_empty());
    if let Some(known) = ImageOrder::known(network, is_split, precision, None) {
        return Ok(known);
    }
    if engine.choice() != KernelChoice::Fastest {
        return first("kernels are not timed");
    }
    let kernels = image_kernels(network, training.iter().flat_map(|program| &program.ranks));
    let others = image_kernels(network, evaluation.iter().flat_map(|program| &program.ranks));
    let subject = subject(&kernels, &others, training.len());
    let subject = format!("order of images, {}, {subject}", precision.label());
    if let Some(known) = engine.recorded_choice(&subject).and_then(|line| ImageOrder::from_line(&line)) {
        return Ok(known);
    }
    let engines = [ImageLayout::ChannelsFirst, ImageLayout::ChannelsLast]
        .map(|layout| engine.clone().with_image_layout(layout));
    // Before any measurement: whether all kernels exist.
    for kernel in kernels.iter().chain(&others) {
        let preparing = engines[1].clone().with_choice(KernelChoice::Vendor);
        match preparing.prepare(&kernel.spec, precision) {
            Err(EngineError::OutOfMemory { .. }) => return first("no memory to time kernels"),
            Err(problem) => return first(&problem.to_string()),
            Ok(_) => {}
        }
    }
    let mut times = [Duration::ZERO; 2];
    for kernel in &kernels {
        let (program, step) = kernel.of;
        let scalars =
            |ids: &[BufferId]| ids.iter().map(|id| program.buffers[id.0].scalars()).collect::<Vec<_>>();
        let (reads, writes) = (scalars(&step.reads), scalars(&step.writes));
        for (engine, time) in engines.iter().zip(&mut times) {
            let profiler = Profiler::new(engine).repeats(REPEATS).precision(precision);
            let timed = engine
                .prepare(&kernel.spec, precision)
                .and_then(|prepared| profiler.time_kernel(prepared, &kernel.spec, &reads, &writes));
            match timed {
                Err(EngineError::OutOfMemory { .. }) => return first("no memory to time kernels"),
                Err(problem) if engine.image_layout() == ImageLayout::ChannelsLast => {
                    return first(&problem.to_string());
                }
                timed => *time += timed?.time * kernel.count as u32,
            }
        }
    }
    let order = ImageOrder::fastest(times.map(|time| time / training.len() as u32));
    let is_order = |kept: &str| ImageOrder::from_line(kept).is_some();
    let kept = engine.record_choice(&subject, &order.to_line(), is_order);
    Ok(ImageOrder::from_line(&kept).unwrap_or(order))
}

/// Returns the distinct kernels of the layers of programs that read or write images.
fn image_kernels<'p>(
    network: &'p LayerGraph,
    programs: impl IntoIterator<Item = &'p RankProgram>,
) -> Vec<ImageKernel<'p>> {
    let groups = kernel_groups(network, programs);
    let kernels = groups.into_iter().filter_map(|steps| {
        let &of = steps.first()?;
        let spec = kernel_spec(network, of.0, of.1)?;
        let KernelSpec::Layer { layer, shard, .. } = &spec else { return None };
        let is_image = |shape: &Shape| shape.as_image().is_some();
        let has_images = layer.input_shapes().iter().any(is_image) || is_image(layer.output_shape());
        (has_images && shard.samples > 0).then_some(ImageKernel { of, spec, count: steps.len() })
    });
    kernels.collect()
}

/// Returns a text that is equal for jobs with the same kernels on images in a rotation of the same
/// length: a SHA-256 hash.
fn subject(training: &[ImageKernel<'_>], evaluation: &[ImageKernel<'_>], rotation: usize) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("{rotation}"));
    for (part, kernels) in [training, evaluation].into_iter().enumerate() {
        for ImageKernel { of: (program, step), spec, count } in kernels {
            hash.update(format!("{part} {count} {}\n", work_of(program, step, spec)));
        }
    }
    format!("{:x}", hash.finalize())
}
