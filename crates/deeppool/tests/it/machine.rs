//! Ranks that are cores of one machine: their simulation, and the times that runs observe.

use std::time::Duration;

use collectives::{CollectiveKind, LinkModel, Measurement};
use deeppool::costs::Costs;
use deeppool::job::Job;
use deeppool::machine::{
    Calibration, CalibrationRun, CostRatios, IterationPart, MeasureOptions, ObservedTimes, Phase, difference,
    measure_machine,
};
use deeppool::plan::{Mode, PlanRequest};
use deeppool::planning::find_plan;
use deeppool::program::{LowerOptions, Placement, Program, lower_training};
use deeppool::simulate::{BackgroundCosts, SimulateOptions, Simulation, simulate};
use deeppool::train::train;
use layer_graph::{LayerGraph, zoo};
use layer_profile::{ContendedTimes, DeviceModel, LayerProfile, ProfileTable};
use proptest::prelude::*;

const BATCH: usize = 4;

fn network() -> LayerGraph {
    zoo::model("digits-cnn").unwrap()
}

fn alone(network: &LayerGraph) -> ProfileTable {
    DeviceModel::named("cpu-core").unwrap().profile(network, &[1, 2, 4]).unwrap()
}

/// Returns the table with times of two ranks at once that are `factor` times those alone.
fn contended(network: &LayerGraph, factor: f64, jitter: f64) -> ProfileTable {
    let table = alone(network);
    let scale = |row: &LayerProfile| {
        let mut row = row.clone();
        row.update = row.update.map(|time| time.mul_f64(factor));
        for time in &mut row.times {
            time.forward = time.forward.mul_f64(factor);
            time.backward = time.backward.mul_f64(factor);
        }
        row
    };
    let rows = table.layers().iter().map(scale).collect();
    table.with_contended(ContendedTimes::new(2, jitter, rows).unwrap()).unwrap()
}

/// Returns a link over which nothing takes time.
fn free() -> LinkModel {
    LinkModel::new("free", Duration::ZERO, Duration::ZERO, 1e18).unwrap()
}

fn slow() -> LinkModel {
    LinkModel::new("slow", Duration::from_micros(5), Duration::ZERO, 1e9).unwrap()
}

fn lowering() -> LowerOptions {
    // Small buckets, so that all-reduces are hidden behind the backward pass.
    LowerOptions::default().with_bucket_bytes(1 << 14)
}

fn program(network: &LayerGraph, counts: &[usize]) -> Program {
    let placement = Placement::first_ranks(network, 2, counts).unwrap();
    lower_training(network, &placement, BATCH, &lowering()).unwrap()
}

fn simulated(network: &LayerGraph, table: &ProfileTable, link: &LinkModel, counts: &[usize]) -> Simulation {
    let options = SimulateOptions::default().with_timeline(true);
    simulate(&program(network, counts), &Costs::new(network, table, link), &options).unwrap()
}

fn dp(network: &LayerGraph) -> Vec<usize> {
    vec![2; network.len() - 1]
}

/// Returns the sum of all layers' times on one rank with half of the batch.
fn computing(table: &ProfileTable) -> Duration {
    table.sum_of_layers(BATCH / 2).unwrap().total()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn equal_tables_without_jitter_change_nothing(ones in prop::collection::vec(1..=2usize, 20)) {
        let network = network();
        let counts: Vec<usize> = (1..network.len()).map(|layer| ones[layer % ones.len()]).collect();
        let of = |table: &ProfileTable| simulated(&network, table, &free(), &counts);
        let (plain, equal) = (of(&alone(&network)), of(&contended(&network, 1.0, 0.0)));
        prop_assert_eq!(plain.iteration, equal.iteration);
        prop_assert_eq!(plain.timeline, equal.timeline);
    }

    #[test]
    fn contention_lengthens_steps_by_at_most_its_factor(
        ones in prop::collection::vec(1..=2usize, 20),
        factor in 1.0..3.0,
    ) {
        let network = network();
        let counts: Vec<usize> = (1..network.len()).map(|layer| ones[layer % ones.len()]).collect();
        let of = |table: &ProfileTable| simulated(&network, table, &free(), &counts).iteration.as_secs_f64();
        let (plain, slowed) = (of(&alone(&network)), of(&contended(&network, factor, 0.0)));
        prop_assert!(slowed >= plain * 0.999_999 && slowed <= plain * factor * 1.000_001, "{plain} {slowed}");
    }
}

#[test]
fn data_parallel_ranks_take_the_contended_times() {
    let network = network();
    let table = contended(&network, 1.5, 0.0);
    let iteration = simulated(&network, &table, &free(), &dp(&network)).iteration;
    let expected = computing(&table).mul_f64(1.5);
    assert!(iteration.abs_diff(expected) < Duration::from_micros(1), "{iteration:?}, {expected:?}");
    // The planner's times are the same.
    let link = free();
    let job = Job::new(Costs::new(&network, &table, &link), BATCH, lowering());
    let plan = find_plan(&job, &PlanRequest::new(2, Mode::DataParallel)).unwrap();
    assert!((plan.iteration_us * 1e-6 - expected.as_secs_f64()).abs() < 1e-6, "{}", plan.iteration_us);
}

#[test]
fn one_rank_takes_the_times_alone() {
    let network = network();
    let table = contended(&network, 2.0, 0.5);
    let placement = vec![1; network.len() - 1];
    let iteration = simulated(&network, &table, &free(), &placement).iteration;
    assert_eq!(iteration, table.sum_of_layers(BATCH).unwrap().total());
}

#[test]
fn communication_computes() {
    let (network, link) = (network(), slow());
    let (plain, shared) = (alone(&network), contended(&network, 1.0, 0.0));
    let transferring: Duration = {
        let costs = Costs::new(&network, &plain, &link);
        program(&network, &dp(&network)).collectives.iter().map(|all| costs.collective_time(all)).sum()
    };
    let of = |table: &ProfileTable| simulated(&network, table, &link, &dp(&network)).iteration;
    let both = computing(&plain) + transferring;
    assert!(of(&plain) < both.mul_f64(0.95), "some of the all-reduces are hidden");
    let ratio = of(&shared).as_secs_f64() / both.as_secs_f64();
    assert!((0.999..1.001).contains(&ratio), "nothing is hidden: {ratio}");
}

#[test]
fn jitter_lengthens_iterations_with_collectives() {
    let network = network();
    let of = |jitter| {
        let table = contended(&network, 1.0, jitter);
        simulated(&network, &table, &free(), &dp(&network)).iteration.as_secs_f64()
    };
    let ratio = of(0.1) / of(0.0);
    assert!((1.0999..=1.1001).contains(&ratio), "{ratio}");
}

#[test]
fn background_takes_contended_times_and_slows_the_foreground() {
    let (network, link) = (network(), slow());
    let counts: Vec<usize> = (1..network.len()).map(|layer| 1 + usize::from(layer > 5)).collect();
    let of = |factor| {
        let table = contended(&network, factor, 0.0);
        let costs = Costs::new(&network, &table, &link);
        let background = BackgroundCosts::new(&costs, BATCH).unwrap();
        let options = SimulateOptions::default().with_background(Some(background));
        simulate(&program(&network, &counts), &costs, &options).unwrap()
    };
    let (plain, slowed) = (of(1.0), of(2.0));
    assert!(slowed.iteration > plain.iteration.mul_f64(1.5));
    let rates = [&plain, &slowed].map(|of| of.background_samples_per_s);
    assert!(rates[0] > 0.0 && rates[1] < rates[0] * 0.8, "{rates:?}");
}

/// A timeline of simulated times has the times that the costs say.
#[test]
fn observed_times_are_those_of_the_timeline() {
    let (network, link) = (network(), slow());
    let (table, counts) = (alone(&network), dp(&network));
    let program = program(&network, &counts);
    let timeline = simulated(&network, &table, &link, &counts).timeline.unwrap();
    let observed = ObservedTimes::new(&program, &timeline);
    assert_eq!(observed.iterations(), 1);
    let layers = observed.layers(&network);
    let near = |a: Duration, b: Duration| a.abs_diff(b) <= Duration::from_nanos(4);
    for (id, layer) in network.computing_layers() {
        let expected = table.time(layer.name(), BATCH / 2).unwrap();
        for (phase, expected) in [(Phase::Forward, expected.forward), (Phase::Backward, expected.backward)] {
            let times = &layers[&(id, phase)];
            assert!(times.len() == 2 && times.iter().all(|&time| near(time, expected)), "{}", layer.name());
        }
    }
    assert!(near(observed.longest_computing()[0], computing(&table)));
    let costs = Costs::new(&network, &table, &link);
    for (collective, observed) in program.collectives.iter().zip(observed.collectives()) {
        assert!(observed[0].transfer <= costs.collective_time(collective) + Duration::from_nanos(4));
        assert_eq!(observed[0].wait, Duration::ZERO, "{}", collective.label);
    }
}

#[test]
fn ranks_of_this_machine_are_measured() {
    let network = network();
    let options = MeasureOptions::new([1, 32], 2).with_repeats(3);
    let runs = std::cell::Cell::new(0);
    let measured = measure_machine(&network, &options, &|config| train(config, &|_| {}), &|done, all| {
        assert!(done <= all, "{done} of {all} runs");
        runs.set(all - done);
    });
    let measured = measured.unwrap();
    assert_eq!(runs.get(), 0, "the progress ends with the last run");
    let table = measured.profile.for_model(&network).unwrap();
    assert_eq!(ProfileTable::from_json(&table.to_json()).unwrap().contended(), table.contended());
    let contended = table.contended().unwrap();
    for row in table.layers().iter().chain(contended.layers()) {
        assert!(row.times.iter().all(|time| !time.forward.is_zero()), "{}", row.name);
    }
    // On an undisturbed machine, 32 samples take more than ten times as long as one.
    let total = |samples| table.sum_of_layers(samples).unwrap().total();
    assert!(total(32) > total(1), "{:?} {:?}", total(32), total(1));
    let all = network.parameter_count() as u64 * 4;
    assert!(measured.collectives.iter().any(|of| of.bytes == all));
    let is_part =
        |of: &Measurement| of.collective == CollectiveKind::AllReduce && of.bytes > 8 && of.bytes < all;
    assert!(measured.collectives.iter().any(is_part), "buckets of several sizes: {:?}", measured.collectives);
    assert!(measured.link.relative_error().is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// A machine whose layers and links take other times than predicted, by two factors, is
    /// predicted from one run, on which other runs have no effect.
    #[test]
    fn a_run_calibrates_the_next_ones(layers in 0.3..3.0_f64, transfers in 0.3..3.0_f64) {
        let (network, counts) = (network(), dp(&network()));
        // Startup times are not scaled.
        let link = LinkModel::new("slow", Duration::ZERO, Duration::ZERO, 1e9).unwrap();
        let table = alone(&network);
        let truth = table.scaled(layers).unwrap();
        let true_link = link.clone().with_bandwidth_scaled(1.0 / transfers).unwrap();
        let program = program(&network, &counts);
        let us = |simulated: &Simulation| simulated.iteration.as_secs_f64() * 1e6;
        let measured = simulated(&network, &truth, &true_link, &counts);
        let costs = Costs::new(&network, &table, &link);
        let timeline = measured.timeline.as_ref().unwrap();
        let ratios = CostRatios::measured(&program, &costs, timeline).unwrap().unwrap();
        prop_assert!((ratios.layers / layers - 1.0).abs() < 1e-3, "{ratios:?}");
        let mut calibration = Calibration::default();
        let unchanged = (table.scaled(1.0).unwrap(), link.clone());
        prop_assert_eq!(calibration.scaled(&table, link.clone()).unwrap(), unchanged);
        for run in 0..3 {
            let (scaled, scaled_link) = calibration.scaled(&table, link.clone()).unwrap();
            let predicted = us(&simulated(&network, &scaled, &scaled_link, &counts));
            calibration.add(CalibrationRun {
                model: network.name().into(),
                batch: BATCH,
                ranks: 2,
                uncalibrated_us: us(&simulated(&network, &table, &link, &counts)),
                predicted_us: predicted,
                measured_us: us(&measured),
                ratios,
            }).unwrap();
            prop_assert_eq!(calibration.errors().map(|errors| errors.runs), (run > 0).then_some(run));
        }
        let errors = calibration.errors().unwrap();
        prop_assert!(errors.median < 1e-3, "{errors:?} {ratios:?}");
        let again = Calibration::from_json(&calibration.to_json().unwrap()).unwrap();
        prop_assert_eq!(again.factors(), calibration.factors());
    }
}

#[test]
fn damaged_calibrations_are_refused_with_the_path_of_the_field() {
    let run = |ratio: &str| {
        format!(
            r#"{{"schema": "deeppool/calibration/v1", "runs": [{{"model": "m", "batch": 1, "ranks": 2,
            "uncalibrated_us": 1, "predicted_us": 1, "measured_us": 1,
            "ratios": {{"layers": {ratio}, "transfers": null}}}}]}}"#
        )
    };
    assert!(Calibration::from_json(&run("1.5")).is_ok());
    for (text, named) in [
        (run("0"), "runs[0].ratios.layers"),
        (run("1e9"), "runs[0].ratios.layers"),
        (run("1").replace("\"measured_us\": 1", "\"measured_us\": -1"), "runs[0].measured_us"),
        (run("1").replace("calibration/v1", "plan/v2"), "schema"),
        (run("1").replace("\"model\"", "\"name\""), "name"),
        ("[]".into(), "."),
    ] {
        let error = Calibration::from_json(&text).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn measurements_need_several_ranks_and_batches() {
    let network = network();
    let measured = |batches: &[usize], ranks| {
        let options = MeasureOptions::new(batches, ranks);
        measure_machine(&network, &options, &|config| train(config, &|_| {}), &|_, _| {})
    };
    assert!(measured(&[1], 1).unwrap_err().to_string().contains("at least 2"));
    assert!(measured(&[], 2).is_err());
}

#[test]
fn differences_are_of_the_layer_and_the_collective_that_differ() {
    let (network, link) = (network(), slow());
    let (table, counts) = (alone(&network), dp(&network));
    let program = program(&network, &counts);
    let costs = Costs::new(&network, &table, &link);
    let options = SimulateOptions::default();
    let of = |table: &ProfileTable, link: &LinkModel| {
        let measured = simulated(&network, table, link, &counts).timeline.unwrap();
        difference(&program, &costs, &options, &measured).unwrap()
    };
    let same = of(&table, &link);
    assert!(same.len() >= network.len() - 1 && same.iter().all(|row| row.seconds().abs() < 1e-8), "{same:?}");

    let mut rows = table.layers().to_vec();
    let slowed = rows.iter_mut().find(|row| row.name == "conv3").unwrap();
    slowed.times.iter_mut().for_each(|time| time.forward += Duration::from_millis(1));
    let rows = ProfileTable::new(table.model(), table.device(), table.origin(), rows, Vec::new()).unwrap();
    let found = of(&rows, &link);
    assert_eq!((found[0].name.as_str(), found[0].part), ("conv3", IterationPart::Layer));
    assert!((found[0].seconds() - 1e-3).abs() < 1e-6, "{:?}", found[0]);

    let late = LinkModel::new("late", Duration::from_micros(900), Duration::ZERO, 1e9).unwrap();
    let found = of(&table, &late);
    assert_eq!(found[0].part, IterationPart::Transfer);
    assert!(found[0].name.starts_with("all-reduce") && found[0].measured > found[0].simulated);
}
