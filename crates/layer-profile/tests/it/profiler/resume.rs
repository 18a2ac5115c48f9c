//! Interrupted profiles: resumption, and errors on journals that do not match.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use layer_engine::Precision;
use layer_graph::{Conv2d, Division, Layer, LayerGraph, LayerKind, Linear, NetworkSplits, Shape, Split};
use layer_profile::{ProfileError, ProfileRun, ProfileTable, Profiler};

use super::virtual_engine::VirtualEngine;

const BATCHES: [usize; 3] = [1, 2, 8];

fn network(name: &str, channels: usize, extra: bool) -> LayerGraph {
    let build = || {
        let mut net = LayerGraph::new(name, Shape::image(2, 6, 6))?;
        let conv = net.add("conv", Conv2d::new(channels, 3), [net.input()])?;
        let mut relu = net.add("relu", LayerKind::Relu, [conv])?;
        if extra {
            relu = net.add("again", LayerKind::Relu, [relu])?;
        }
        let flat = net.add("flatten", LayerKind::Flatten, [relu])?;
        let fc = net.add("fc", Linear::new(3), [flat])?;
        net.add("loss", LayerKind::CROSS_ENTROPY, [fc])?;
        Ok::<_, layer_graph::GraphError>(net)
    };
    build().expect("a valid network")
}

fn small() -> LayerGraph {
    network("small", 3, false)
}

/// Returns the parts of a linear layer that is divided by its inputs. One of them has a bias.
fn parts(network: &LayerGraph) -> [Layer; 2] {
    let division = Division { split: Split::Inputs, parts: 2 };
    let part = |index| NetworkSplits::new(network).part(network.find("fc")?, division, index).ok();
    [0, 1].map(|index| part(index).expect("a part").layer)
}

/// Number of measurements of the small network: five layers, two parts and the whole network, at
/// each batch size.
const MEASUREMENTS: usize = 8 * BATCHES.len();

fn run(engine: &VirtualEngine, path: &Path) -> Result<ProfileRun, ProfileError> {
    profile_to(&Profiler::new(engine).batches(BATCHES).parts(parts(&small())), &small(), path)
}

/// Measures with a journal beside the file of the profile, and removes it after the profile is
/// saved.
fn profile_to(
    profiler: &Profiler<'_, VirtualEngine>,
    network: &LayerGraph,
    path: &Path,
) -> Result<ProfileRun, ProfileError> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).append(true).create(true).open(journal_path(path)).expect("a journal");
    let run = profiler.profile_with_journal(network, Some(&mut file))?;
    std::fs::write(path, run.table.to_json()).expect("written");
    std::fs::remove_file(journal_path(path)).expect("there");
    Ok(run)
}

fn journal_path(profile: &Path) -> PathBuf {
    profile.with_extension("json.partial")
}

/// Returns a folder with the journal of an interrupted profile.
fn stopped() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("profile.json");
    run(&VirtualEngine::failing_after(200), &path).expect_err("it fails");
    (folder, path)
}

fn journal(path: &Path) -> String {
    std::fs::read_to_string(journal_path(path)).expect("a journal")
}

fn rewrite_journal(path: &Path, text: &str) {
    std::fs::write(journal_path(path), text).expect("written");
}

#[test]
fn an_engine_failure_loses_at_most_one_measurement() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("profile.json");
    let engine = VirtualEngine::new();
    let whole = run(&engine, &path).expect("uninterrupted");
    assert_eq!((whole.measured, whole.resumed), (MEASUREMENTS, 0));
    let all = engine.timed.get();
    std::fs::remove_file(&path).expect("there");

    let mut failures = 0;
    for samples in (0..all).step_by(23) {
        let failing = VirtualEngine::failing_after(samples);
        let error = run(&failing, &path).expect_err("it fails").to_string();
        assert!(error.starts_with("measuring ") && error.ends_with("the virtual engine failed"), "{error}");
        assert!(!path.exists(), "half a profile was written");
        let finished = journal(&path).lines().count() - 1;

        let engine = VirtualEngine::new();
        let resumed = run(&engine, &path).expect("resumed");
        assert_eq!(resumed.table, whole.table, "stopped after {samples} samples");
        assert_eq!((resumed.measured, resumed.resumed), (MEASUREMENTS - finished, finished));
        // Only samples of the interrupted measurement are taken again.
        let again = samples + engine.timed.get() - all;
        assert!(again <= 66, "{again} samples were taken twice");
        assert_eq!(
            ProfileTable::from_json(&std::fs::read_to_string(&path).expect("saved")).expect("valid"),
            whole.table
        );
        assert_eq!(std::fs::read_dir(&folder).expect("readable").count(), 1, "the journal is left behind");
        std::fs::remove_file(&path).expect("there");
        failures += 1;
    }
    assert!(failures > 20, "only {failures} failures");
}

#[test]
fn a_repeatedly_interrupted_profile_completes() {
    let (_folder, path) = stopped();
    let mut runs = 1;
    let run = loop {
        runs += 1;
        match run(&VirtualEngine::failing_after(150), &path) {
            Ok(run) => break run,
            Err(error) => assert!(runs < 50, "{error}"),
        }
    };
    assert!(runs > 3 && run.resumed + run.measured == MEASUREMENTS, "{runs} runs, {run:?}");
}

#[test]
fn truncated_last_line_is_discarded() {
    let (_folder, path) = stopped();
    let text = journal(&path);
    let finished = text.lines().count() - 1;
    let last = text.trim_end().rfind('\n').expect("several lines") + 1;
    for cut in [last + 1, usize::midpoint(last, text.len()), text.len() - 1] {
        rewrite_journal(&path, &text[..cut]);
        let error = run(&VirtualEngine::failing_after(0), &path).expect_err("it fails");
        assert!(matches!(error, ProfileError::Engine { .. }), "{error}");
        assert_eq!(journal(&path), text[..last]);
    }
    let resumed = run(&VirtualEngine::new(), &path).expect("resumed");
    assert_eq!(resumed.resumed, finished - 1);
}

#[test]
fn truncated_first_line_restarts_the_profile() {
    let (_folder, path) = stopped();
    let text = journal(&path);
    for cut in [0, 1, text.find('\n').expect("a line")] {
        rewrite_journal(&path, &text[..cut]);
        run(&VirtualEngine::failing_after(200), &path).expect_err("it fails");
        assert_eq!(journal(&path), text);
    }
}

#[test]
fn damage_errors_name_the_line() {
    let (_folder, path) = stopped();
    let text = journal(&path);
    let lines: Vec<&str> = text.lines().collect();
    let with = |number: usize, line: &str| {
        let mut changed = lines.clone();
        changed[number] = line;
        changed.join("\n") + "\n"
    };
    let cases = [
        (with(0, "{}"), "is damaged at line 1: missing field `schema`"),
        (with(1, &lines[1][..40]), "is damaged at line 2: EOF while parsing"),
        (with(1, ""), "is damaged at line 2: EOF while parsing"),
        (with(2, "\0\0\0\0"), "is damaged at line 3: expected value"),
        (with(2, lines[1]), "is damaged at line 3: layer `conv` was measured at batch 1 already"),
        (
            text.replacen(r#""batch":2,"#, r#""batch":3,"#, 1),
            "layer `conv` was not to be measured at batch 3",
        ),
        (
            with(1, &lines[1].replace(r#""conv","#, r#""vonc","#)),
            "there is no layer `vonc` in the first line",
        ),
        (
            with(1, &lines[1].replace("3x4x4", "3x4x5")),
            "layer `conv` has another structure than in the first",
        ),
        (with(1, &lines[1].replace("forward_us\":", "forward_us\":-")), "expected a time in microseconds"),
        (with(1, &lines[1].replace(r#""times":[{"#, r#""colour":1,"times":[{"#)), "unknown field `colour`"),
        (with(0, &lines[0].replace("16 -> 3", "16 -> 4")), "was begun for other parts of split layers"),
        (
            with(0, &lines[0].replace("journal/v1", "journal/v2")),
            "is in the format `deeppool/profile-journal/v2`",
        ),
    ];
    for (damaged, expected) in cases {
        assert_ne!(damaged, text, "{expected}");
        rewrite_journal(&path, &damaged);
        let engine = VirtualEngine::new();
        let message = run(&engine, &path).expect_err(expected).to_string();
        assert!(message.starts_with("the unfinished profile "), "{message}");
        assert!(message.contains(expected), "`{message}` does not contain `{expected}`");
        assert!(message.ends_with("or delete it to start again"), "{message}");
        assert_eq!((engine.prepared.get(), journal(&path)), (0, damaged), "it went on, or changed the file");
    }
}

#[test]
fn profiles_started_under_other_conditions_are_rejected() {
    let (_folder, path) = stopped();
    let text = journal(&path);
    let with = |change: fn(&mut VirtualEngine)| {
        let mut engine = VirtualEngine::new();
        change(&mut engine);
        run(&engine, &path)
    };
    let engine = VirtualEngine::new();
    let on = |network: &LayerGraph| profile_to(&Profiler::new(&engine).batches(BATCHES), network, &path);
    let profiler = || Profiler::new(&engine).batches(BATCHES);
    let libraries = |engine: &mut VirtualEngine, name: &str, version: &str| {
        engine.description.libraries.insert(name.to_owned(), version.to_owned());
    };
    let mut newer = VirtualEngine::new();
    libraries(&mut newer, "virtual", "1.1.0");
    let mut more = VirtualEngine::new();
    libraries(&mut more, "other", "7");
    let cases = [
        (on(&network("large", 3, false)), "is of the network `small`, not `large`"),
        (
            on(&network("small", 4, false)),
            "is of another `small`: its layer `conv` is conv2d(bias=true, groups=1, kernel=[3,3], \
             out_channels=3, padding=[0,0], stride=[1,1]), 2x6x6 -> 3x4x4, but in the network it is \
             conv2d(bias=true, groups=1, kernel=[3,3], out_channels=4,",
        ),
        (
            on(&network("small", 3, true)),
            "is of another `small`: where it has a layer `flatten`, the network has `again`",
        ),
        (
            with(|engine| engine.description.name = "another device".into()),
            "was begun on the device `virtual device`, not `another device`",
        ),
        (run(&newer, &path), "was begun with virtual `1.0.0`, not `1.1.0`"),
        (run(&more, &path), "was begun with other `none`, not `7`"),
        (
            profile_to(&profiler().precision(Precision::Bf16), &small(), &path),
            "was begun in the precision `f32`, not `bf16`",
        ),
        (profile_to(&profiler().repeats(11), &small(), &path), "was begun with 10 repeats, not 11"),
        (
            profile_to(&profiler().batches([1, 2]), &small(), &path),
            "was begun for the batches [1, 2, 8], not [1, 2]",
        ),
    ];
    for (refused, expected) in cases {
        let error = refused.expect_err(expected);
        assert!(matches!(error, ProfileError::Journal { .. }), "{error}");
        assert!(error.to_string().contains(expected), "`{error}` does not contain `{expected}`");
        assert_eq!(journal(&path), text, "the journal was changed");
    }
    // Another version of this crate, simulated by changing the journal.
    rewrite_journal(&path, &text.replacen(r#""profiler":"0"#, r#""profiler":"9"#, 1));
    let message = run(&engine, &path).expect_err("another version").to_string();
    assert!(message.contains("was begun by layer-profile `9."), "{message}");
    assert_eq!((engine.prepared.get(), newer.prepared.get(), more.prepared.get()), (0, 0, 0));

    // The clock is not part of the conditions.
    rewrite_journal(&path, &text);
    assert!(with(|engine| engine.description.clock_mhz = Some(1001)).is_ok());
}
