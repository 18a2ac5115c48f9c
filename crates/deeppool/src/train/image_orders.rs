//! The orders of the elements of images in the jobs of a run, on which all ranks agree.

use layer_graph::LayerGraph;

use super::programs::Programs;
use super::{BackgroundConfig, TrainConfig, exchange};
use crate::Error;
use crate::program::Program;
use crate::runtime::{ImageOrder, RankDevice, TrainingBackend};

/// Orders of images of the jobs of a run.
pub(super) struct ImageOrders {
    pub(super) foreground: ImageOrder,
    /// Of each background job, in the order of the configuration.
    pub(super) background: Vec<ImageOrder>,
}

impl ImageOrders {
    /// Returns the engine of the foreground.
    pub(super) fn of_foreground<B: TrainingBackend>(&self, engine: &B::Engine) -> B::Engine {
        B::with_image_layout(engine.clone(), self.foreground.layout)
    }

    /// Returns the engines of the background jobs.
    pub(super) fn of_background<B: TrainingBackend>(&self, engine: &B::Engine) -> Vec<B::Engine> {
        let of_job = |order: &ImageOrder| B::with_image_layout(engine.clone(), order.layout);
        self.background.iter().map(of_job).collect()
    }

    /// Chooses the orders. All ranks time kernels where times decide, at the same time, so that
    /// none waits long for another; the choices of rank 0 count. All ranks call it.
    ///
    /// # Errors
    /// If the device or the communicator fails.
    pub(super) fn choose<B: TrainingBackend>(
        config: &TrainConfig<'_>,
        programs: &Programs<'_>,
        engine: &B::Engine,
        communicator: &B::Communicator,
    ) -> Result<Self, Error> {
        let background = config.background.iter().zip(&programs.background);
        let background = background.map(|(job, program)| (job.network, std::slice::from_ref(program)));
        if !B::HAS_IMAGE_LAYOUTS {
            let background = background.map(|_| ImageOrder::default()).collect();
            return Ok(Self { foreground: ImageOrder::default(), background });
        }
        let jobs: Vec<(&LayerGraph, &[Program])> =
            std::iter::once((config.network(), programs.training)).chain(background).collect();
        let precision = config.lowering().precision;
        let requested = config.image_layout;
        let is_split =
            |job: &BackgroundConfig<'_>| job.ranks.as_ref().is_some_and(|ranks| ranks.placement().is_split());
        let are_split =
            std::iter::once(config.placement().is_split()).chain(config.background.iter().map(is_split));
        let known = jobs
            .iter()
            .zip(are_split)
            .map(|((network, _), is_split)| ImageOrder::known(network, is_split, precision, requested));
        let mut orders: Vec<Option<ImageOrder>> = known.collect();
        if orders.contains(&None) {
            let mut lines = String::new();
            let evaluation: Vec<&Program> =
                std::iter::once(&programs.evaluation).chain(&programs.remainder).collect();
            for (index, ((network, training), order)) in jobs.iter().zip(&mut orders).enumerate() {
                let evaluation: &[&Program] = if index == 0 { &evaluation } else { &[] };
                let order = match order.take() {
                    Some(order) => order,
                    None => B::fastest_image_order(engine, network, training, evaluation)?,
                };
                lines += &(order.to_line() + "\n");
            }
            let mut device = RankDevice::<B>::new(engine.clone())?;
            let of_ranks = exchange::gather(&mut device, communicator, lines.as_bytes())?;
            let of_first = of_ranks.first().map(|bytes| String::from_utf8_lossy(bytes)).unwrap_or_default();
            orders = of_first.lines().map(ImageOrder::from_line).collect();
        }
        let mut orders = orders.into_iter().map(Option::unwrap_or_default);
        let foreground = orders.next().unwrap_or_default();
        Ok(Self { foreground, background: orders.collect() })
    }
}
