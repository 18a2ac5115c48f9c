//! Measurement of the ranks of a machine.

use std::collections::HashMap;
use std::time::Duration;

use collectives::{CollectiveKind, LinkModel, Measurement};
use layer_engine::{CpuEngine, Engine, Sgd};
use layer_graph::{LayerGraph, LayerId};
use layer_profile::{
    BatchTime, ContendedTimes, LayerProfile, LayerTime, MeasurementConditions, NetworkTime, Origin,
    ProfileError, ProfileTable,
};

use super::observed::{ObservedTimes, Phase, median};
use crate::Error;
use crate::data::Dataset;
use crate::program::{Collective, CollectiveOp, ELEMENT_BYTES, LowerOptions, LoweredTraining, Placement};
use crate::train::{Length, TrainConfig, TrainReport};

/// Iterations of a run before those that are measured.
const WARM_UP: usize = 2;
/// Number of runs over which the measured iterations are divided, so that a drift of the machine's
/// speed affects all of them alike.
const ROUNDS: usize = 3;
/// Bucket sizes with which all-reduces are measured, in bytes. The last one is that of training.
const BUCKETS: [u64; 3] = [1 << 16, 1 << 20, 25 << 20];

/// Options of [`measure_machine`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MeasureOptions {
    /// Numbers of samples of a rank, ascending.
    pub batches: Vec<usize>,
    /// Number of ranks: at least 2.
    pub ranks: usize,
    /// Number of measured iterations of each batch size.
    pub repeats: usize,
    /// Number of threads of each rank.
    pub threads_per_rank: usize,
}

impl MeasureOptions {
    /// Creates options with 12 repeats and one thread for each rank.
    #[must_use]
    pub fn new(batches: impl Into<Vec<usize>>, ranks: usize) -> Self {
        Self { batches: batches.into(), ranks, repeats: 12, threads_per_rank: 1 }
    }

    /// Sets the number of measured iterations of each batch size.
    #[must_use]
    pub fn with_repeats(self, repeats: usize) -> Self {
        Self { repeats, ..self }
    }

    /// Sets the number of threads of each rank.
    #[must_use]
    pub fn with_threads_per_rank(self, threads_per_rank: usize) -> Self {
        Self { threads_per_rank, ..self }
    }
}

/// Times of a network on the ranks of a machine.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct MachineProfile {
    /// Layer times of one rank alone, and of all ranks at once.
    pub profile: ProfileTable,
    /// Link model of the ranks, with its maximum relative error.
    pub link: LinkModel,
    /// The measured collectives to which the link model is fitted.
    pub collectives: Vec<Measurement>,
}

/// Measures the layers of a network and the links between the ranks of this machine, from training
/// runs on synthetic data. `train` runs one on all ranks: ranks are what it makes them, such as
/// threads by [`train`](crate::train::train()), or processes by
/// [`train_rank`](crate::train::train_rank), all of which call this function and get the same
/// result. `progress` receives the number of completed runs and that of all runs.
///
/// For each number of samples, one rank trains while the others wait, and all ranks train with data
/// parallelism, in turns. Layers are timed in their place in the iteration, so that caches are as
/// in training; the time of a layer includes those of loading its samples and summing its
/// gradients. Collectives are the all-reduces of buckets of several sizes beside the backward pass,
/// and redistributions between one rank and all.
///
/// # Errors
/// [`Error::Setting`] for fewer than two ranks or no batch sizes. [`Error::Data`] if there is no
/// synthetic data for the network. [`Error::Profile`] if batch sizes are not ascending.
/// [`Error::Collectives`] if no collective moves data. The errors of `train`.
pub fn measure_machine(
    network: &LayerGraph,
    options: &MeasureOptions,
    train: &dyn Fn(&TrainConfig<'_>) -> Result<TrainReport, Error>,
    progress: &dyn Fn(usize, usize),
) -> Result<MachineProfile, Error> {
    let setting = |setting, expected, got: String| Err(Error::Setting { setting, expected, got });
    let Some(&largest) = options.batches.iter().max() else {
        return setting("the batch sizes", "at least one", "none".into());
    };
    if options.ranks < 2 {
        return setting("the number of ranks", "at least 2", options.ranks.to_string());
    }
    if options.repeats == 0 {
        return setting("the number of repeats", "at least 1", "0".into());
    }
    if !options.batches.is_sorted_by(|a, b| a < b) || options.batches[0] == 0 {
        return Err(ProfileError::Batches(options.batches.clone()).into());
    }
    // Samples of a run, and some for the held-out part.
    let iterations = WARM_UP + options.repeats.div_ceil(ROUNDS) + 1;
    let samples = largest.saturating_mul(options.ranks).saturating_mul(iterations).saturating_mul(2);
    let dataset = Dataset::synthetic_for(network, samples, 0)?;
    let of_run = options.repeats.div_ceil(ROUNDS);
    // A run for each bucket size, and one that redistributes.
    let all = options.batches.len() * ROUNDS * 2 + BUCKETS.len() + 1;
    let mut done = 0;
    let mut run = |training: &LoweredTraining<'_>| -> Result<TrainReport, Error> {
        let config = TrainConfig::new(&dataset, training)
            .with_length(Length::Iterations((WARM_UP + of_run) as u64))
            // The values are irrelevant, but the loss must not diverge.
            .with_learning_rate(1e-5)
            .with_threads_per_rank(options.threads_per_rank)
            .with_traced_iterations(of_run);
        let report = train(&config)?;
        done += 1;
        progress(done, all);
        Ok(report)
    };
    let layers = network.computing_layers().len();
    let training = |ranks: &[usize], batch: usize, lowering: LowerOptions| {
        let optimizer = Sgd { momentum: 0.9, weight_decay: 1e-4, clip_norm: None };
        let placement = Placement::first_ranks(network, options.ranks, ranks)?;
        Ok::<_, Error>(LoweredTraining::new(network, placement, batch, lowering.with_optimizer(optimizer)))
    };
    // No collective runs between the layers.
    let apart = || LowerOptions::default().with_overlap_all_reduce(false);
    let (on_one, on_all) = (vec![1; layers], vec![options.ranks; layers]);
    let (mut alone, mut contended) = (Vec::new(), Vec::new());
    for &batch in &options.batches {
        let one = training(&on_one, batch, apart())?;
        let several = training(&on_all, batch * options.ranks, apart())?;
        let (mut of_one, mut of_several) = (Samples::default(), Samples::default());
        for _ in 0..ROUNDS {
            of_one.add(network, &one, &run(&one)?)?;
            of_several.add(network, &several, &run(&several)?)?;
        }
        alone.push((batch, of_one));
        contended.push((batch, of_several));
    }
    let mut links = Links::default();
    for bucket_bytes in BUCKETS {
        let lowering = LowerOptions::default().with_bucket_bytes(bucket_bytes);
        let reducing = training(&on_all, largest * options.ranks, lowering)?;
        links.add(&reducing, &run(&reducing)?)?;
    }
    let in_turns: Vec<usize> = (0..layers).map(|layer| [1, options.ranks][layer % 2]).collect();
    let moving = training(&in_turns, largest * options.ranks, apart())?;
    links.add(&moving, &run(&moving)?)?;
    let collectives = links.measurements(options.ranks);
    let link = link_model(&collectives, options.ranks)?;
    let device = CpuEngine::<f32>::with_threads(options.threads_per_rank)?.describe();
    let conditions = MeasurementConditions {
        profiler: MeasurementConditions::PROFILER.into(),
        libraries: device.libraries,
        clock_mhz: device.clock_mhz,
        precision: "f32".into(),
        repeats: of_run * ROUNDS,
    };
    let whole = alone.iter().map(|(batch, samples)| samples.whole(*batch)).collect();
    let (rows, contended_rows) = (rows(network, &alone), rows(network, &contended));
    let contended = ContendedTimes::new(options.ranks, jitter(&contended), contended_rows)?;
    let profile = ProfileTable::new(network.name(), device.name, Origin::Measured, rows, whole)?
        .with_measurement(conditions)
        .with_contended(contended)?;
    Ok(MachineProfile { profile, link, collectives })
}

/// Times of the layers in several runs with the same number of samples.
#[derive(Default)]
struct Samples {
    layers: HashMap<(LayerId, Phase), Vec<Duration>>,
    /// Longest time that a rank computed in each iteration.
    computing: Vec<Duration>,
}

impl Samples {
    /// Adds the times of a run.
    ///
    /// # Errors
    /// That of lowering the program.
    fn add(
        &mut self,
        network: &LayerGraph,
        training: &LoweredTraining<'_>,
        report: &TrainReport,
    ) -> Result<(), Error> {
        let Some(timeline) = &report.timeline else { return Ok(()) };
        let observed = ObservedTimes::new(training.first_program()?, timeline);
        for (place, times) in observed.layers(network) {
            self.layers.entry(place).or_default().extend(times);
        }
        self.computing.extend(observed.longest_computing());
        Ok(())
    }

    fn median(&self, layer: LayerId, phase: Phase) -> Option<Duration> {
        self.layers.get(&(layer, phase)).map(|times| median(times.clone()))
    }

    fn whole(&self, batch: usize) -> NetworkTime {
        let sum = |of: Phase| {
            let times = self.layers.iter().filter(|((_, phase), _)| *phase == of);
            times.map(|(_, times)| median(times.clone())).sum()
        };
        let time = LayerTime {
            forward: sum(Phase::Forward),
            backward: sum(Phase::Backward),
            update: sum(Phase::Update),
        };
        NetworkTime { batch, time, spread: None }
    }
}

/// Returns the median of the longest time that a rank computed in an iteration, relative to the sum
/// of the layers, minus 1; at least 0. Times are summed over the numbers of samples, so that short
/// iterations, which vary most, count least.
fn jitter(contended: &[(usize, Samples)]) -> f64 {
    let (mut longest, mut layers) = (Duration::ZERO, Duration::ZERO);
    for (batch, samples) in contended {
        longest += median(samples.computing.clone());
        layers += samples.whole(*batch).time.total();
    }
    if layers.is_zero() { 0.0 } else { (longest.as_secs_f64() / layers.as_secs_f64() - 1.0).max(0.0) }
}

/// Returns the rows of all layers but the input.
fn rows(network: &LayerGraph, by_batch: &[(usize, Samples)]) -> Vec<LayerProfile> {
    let row = |(layer, _): (LayerId, _)| {
        let times = by_batch.iter().map(|(batch, samples)| {
            let of = |phase| samples.median(layer, phase).unwrap_or_default();
            BatchTime {
                batch: *batch,
                forward: of(Phase::Forward),
                backward: of(Phase::Backward),
                spread: None,
            }
        });
        // The update does not depend on the number of samples.
        let updates: Vec<Duration> = by_batch
            .iter()
            .filter_map(|(_, samples)| samples.layers.get(&(layer, Phase::Update)))
            .flatten()
            .copied()
            .collect();
        let has_update = network.own_parameter_count(layer) > 0;
        LayerProfile::new(network, layer, has_update.then(|| median(updates)), times.collect())
    };
    network.computing_layers().map(row).collect()
}

/// Kind and bytes of a collective, as counted for its [`CollectiveKind`].
fn key(collective: &Collective) -> (CollectiveKind, u64) {
    match &collective.op {
        CollectiveOp::AllReduce { .. } => (CollectiveKind::AllReduce, collective.bytes()),
        CollectiveOp::Broadcast { .. } => (CollectiveKind::Broadcast, collective.bytes()),
        CollectiveOp::Redistribute { redistribution, item_elements, storage } => {
            let item_bytes = storage.scalars(*item_elements) as u64 * ELEMENT_BYTES;
            (CollectiveKind::Send, redistribution.busiest_rank_bytes(item_bytes))
        }
    }
}

/// Measured times of collectives, by kind and bytes.
#[derive(Default)]
struct Links(HashMap<(CollectiveKind, u64), Vec<Duration>>);

impl Links {
    /// Adds the collectives of a run.
    ///
    /// # Errors
    /// That of lowering the program.
    fn add(&mut self, training: &LoweredTraining<'_>, report: &TrainReport) -> Result<(), Error> {
        let Some(timeline) = &report.timeline else { return Ok(()) };
        let program = training.first_program()?;
        let observed = ObservedTimes::new(program, timeline).collectives();
        for (collective, observed) in program.collectives.iter().zip(observed) {
            let times = observed.iter().map(|observed| observed.transfer);
            self.0.entry(key(collective)).or_default().extend(times);
        }
        Ok(())
    }

    /// Returns the median time of each kind and number of bytes, sorted by them.
    fn measurements(self, ranks: usize) -> Vec<Measurement> {
        let measurement = |((collective, bytes), times): ((CollectiveKind, u64), Vec<Duration>)| {
            let ranks = if collective == CollectiveKind::Send { 2 } else { ranks };
            Measurement { collective, ranks, bytes, time: median(times).max(Duration::from_nanos(1)) }
        };
        let mut measurements: Vec<Measurement> = self.0.into_iter().map(measurement).collect();
        measurements.sort_by_key(|of| (of.collective.name(), of.bytes));
        measurements
    }
}

/// Returns the link model of measured collectives: the startup time is that of the shortest one,
/// and the bandwidth the median of theirs, weighted by their bytes, so that the large ones count
/// most. Its relative error is the maximum of all.
///
/// # Errors
/// [`Error::Collectives`] if no collective moves data.
fn link_model(collectives: &[Measurement], ranks: usize) -> Result<LinkModel, Error> {
    let startup = collectives.iter().map(|of| of.time).min().unwrap_or_default();
    // The bytes that a rank sends, from the cost of a model without startup and 1 byte per ns.
    let unit = LinkModel::new("unit", Duration::ZERO, Duration::ZERO, 1e9)?;
    let bandwidth = |of: &Measurement| {
        let bytes = unit.cost(of.collective, of.ranks, of.bytes).as_secs_f64() * 1e9;
        let seconds = of.time.saturating_sub(startup).as_secs_f64();
        (bytes > 0.0 && seconds > 0.0).then(|| (bytes / seconds, bytes))
    };
    let mut bandwidths: Vec<(f64, f64)> = collectives.iter().filter_map(bandwidth).collect();
    bandwidths.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut left = bandwidths.iter().map(|(_, bytes)| bytes).sum::<f64>() / 2.0;
    let is_median = |(_, bytes): &&(f64, f64)| {
        left -= bytes;
        left <= 0.0
    };
    let bytes_per_s = bandwidths.iter().find(is_median).map_or(0.0, |(bandwidth, _)| *bandwidth);
    let link = LinkModel::new(&format!("{ranks}-ranks"), startup, Duration::ZERO, bytes_per_s)?;
    let error = |of: &Measurement| {
        let modelled = link.cost(of.collective, of.ranks, of.bytes).as_secs_f64();
        (modelled / of.time.as_secs_f64() - 1.0).abs()
    };
    let error = collectives.iter().map(error).fold(0.0, f64::max);
    Ok(link.with_relative_error(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_collectives_decide_the_bandwidth() {
        let ms = |time: u64| Duration::from_millis(time);
        let of = |collective, bytes, time| Measurement { collective, ranks: 2, bytes, time };
        let measured = [
            of(CollectiveKind::AllReduce, 8, Duration::from_micros(2)),
            of(CollectiveKind::Send, 1 << 20, ms(1)),
            of(CollectiveKind::AllReduce, 400 << 20, ms(100)),
            of(CollectiveKind::AllReduce, 800 << 20, ms(200)),
        ];
        let link = link_model(&measured, 2).unwrap();
        assert_eq!(link.startup(), Duration::from_micros(2));
        let expected = f64::from(4 << 20) / 1e-3;
        assert!((link.bandwidth_bytes_per_s() / expected - 1.0).abs() < 1e-4, "{link:?}");
        let error = link.relative_error().unwrap();
        assert!((0.7..0.8).contains(&error), "the send is four times as fast: {error}");
        assert!(link_model(&measured[..1], 2).is_err(), "nothing moves");
    }
}
