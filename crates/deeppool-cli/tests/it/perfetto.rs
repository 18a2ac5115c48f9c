//! Traces are read by the trace processor of Perfetto, in Node. The environment variable
//! `PERFETTO_ENGINE` names the folder with `engine_bundle.js` and `trace_processor.wasm` of a build
//! of its pages.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::command::succeed;

/// Slice or event: process, thread, category, name, start and duration in nanoseconds, and
/// arguments as Perfetto writes them.
type Slice = ([Option<String>; 4], [i64; 2], BTreeSet<(String, String)>);

/// Returns the folder of the engine. Prints a line and returns `None` if there is none.
fn engine() -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("PERFETTO_ENGINE") else {
        println!("SKIPPED: PERFETTO_ENGINE is not set");
        return None;
    };
    if let Err(error) = Command::new("node").arg("--version").stdout(Stdio::null()).status() {
        println!("SKIPPED: there is no node on the PATH: {error}");
        return None;
    }
    Some(folder.into())
}

/// Returns the rows of each query on a trace, as objects.
fn query<const N: usize>(engine: &Path, trace: &Path, queries: [&str; N]) -> [Vec<Value>; N] {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/perfetto/query.mjs");
    let output = Command::new("node").arg(script).args([engine, trace]).args(queries).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<Vec<Value>> = serde_json::from_slice(&output.stdout).unwrap();
    rows.try_into().unwrap()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// Returns the arguments of an event as Perfetto writes them, with a row for each element of a
/// list.
fn flat(arguments: &Value) -> BTreeSet<(String, String)> {
    let plain = |value: &Value| text(value).unwrap_or_else(|| value.to_string());
    let mut found = BTreeSet::new();
    for (key, value) in arguments.as_object().unwrap() {
        match value.as_array() {
            None => {
                found.insert((format!("args.{key}"), plain(value)));
            }
            Some(list) => {
                let place = |(at, element)| (format!("args.{key}[{at}]"), plain(element));
                found.extend(list.iter().enumerate().map(place));
            }
        }
    }
    found
}

/// Returns the events of a trace, with the names of processes and threads.
fn written(trace: &Path) -> Vec<Slice> {
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(trace).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let name_of = |event: &Value, kind: &str, keys: &[&str]| {
        let is_it = |name: &&Value| name["name"] == kind && keys.iter().all(|&key| name[key] == event[key]);
        events.iter().find(is_it).and_then(|name| text(&name["args"]["name"]))
    };
    let nanoseconds = |time_us: &Value| (time_us.as_f64().unwrap() * 1e3).round() as i64;
    let slice = |event: &Value| {
        let process = name_of(event, "process_name", &["pid"]);
        let thread = name_of(event, "thread_name", &["pid", "tid"]);
        let names = [process, thread, text(&event["cat"]), text(&event["name"])];
        (names, ["ts", "dur"].map(|key| nanoseconds(&event[key])), flat(&event["args"]))
    };
    events.iter().filter(|event| event["ph"] == "X").map(slice).collect()
}

/// Opens a trace and returns its slices, after checking that they equal the events of the file.
fn open(engine: &Path, trace: &Path) -> Vec<Slice> {
    let [problems, overlaps, slices, arguments] = query(
        engine,
        trace,
        [
            "SELECT name, idx, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0",
            "SELECT name, ts, dur, next FROM
                (SELECT *, LEAD(ts) OVER (PARTITION BY track_id ORDER BY ts, dur) AS next FROM slice)
                WHERE depth > 0 OR dur < 0 OR ts + dur > next",
            "SELECT process.name AS process, thread.name AS thread, category, slice.name, ts, dur, \
             slice.arg_set_id AS args
                FROM slice JOIN thread_track ON track_id = thread_track.id
                JOIN thread USING (utid) JOIN process USING (upid)",
            "SELECT arg_set_id AS args, key, display_value AS value FROM args",
        ],
    );
    assert_eq!((problems, overlaps), (Vec::new(), Vec::new()), "{}", trace.display());
    let slice = |slice: &Value| {
        let arguments = arguments.iter().filter(|row| row["args"] == slice["args"]);
        (
            ["process", "thread", "category", "name"].map(|key| text(&slice[key])),
            ["ts", "dur"].map(|key| slice[key].as_i64().unwrap()),
            arguments.map(|row| (text(&row["key"]).unwrap(), text(&row["value"]).unwrap())).collect(),
        )
    };
    let mut read: Vec<Slice> = slices.iter().map(slice).collect();
    let mut written = written(trace);
    read.sort();
    written.sort();
    assert_eq!(read.len(), written.len(), "{}", trace.display());
    for (read, written) in read.iter().zip(&written) {
        assert_eq!(read, written, "{}", trace.display());
    }
    read
}

/// Returns the lanes of the ranks in the trace of a program, after checking the arguments of every
/// slice.
fn lanes(slices: &[Slice], origin: &str, background: &str) -> BTreeSet<(String, String)> {
    let mut lanes = BTreeSet::new();
    for ([process, thread, category, name], _, arguments) in slices {
        let rank = process.as_ref().unwrap().strip_prefix("rank ").unwrap();
        let rank = rank.strip_suffix(&format!(" ({origin})")).unwrap();
        assert_eq!(thread, category);
        let thread = thread.as_ref().unwrap();
        let has = |key: &str, value: &str| arguments.contains(&(key.into(), value.into()));
        let count = |key: &str| arguments.iter().filter(|(other, _)| other.starts_with(key)).count();
        match thread.as_str() {
            "communication" => {
                let is_among = (0..4).any(|place| has(&format!("args.ranks[{place}]"), rank));
                assert!(
                    is_among && count("args.ranks[") > 1 && count("args.bytes") == 1,
                    "{name:?}: {arguments:?}"
                );
            }
            "background" => {
                let of_layer =
                    ["forward", "backward", "update"].map(|pass| name.as_ref().unwrap().starts_with(pass));
                assert!(
                    has("args.job", background) && of_layer.contains(&true) == (count("args.layers[") > 0),
                    "{name:?}: {arguments:?}"
                );
            }
            _ => assert!(arguments.is_empty(), "{name:?}: {arguments:?}"),
        }
        lanes.insert((rank.to_owned(), thread.clone()));
    }
    lanes
}

fn every_rank_has(lanes: &[&str]) -> BTreeSet<(String, String)> {
    (0..4).flat_map(|rank| lanes.iter().map(move |&lane| (rank.to_string(), lane.to_owned()))).collect()
}

#[test]
fn a_simulation_opens_in_perfetto() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    succeed(
        path,
        "simulate --model vgg16 --device a100 --gpus 4 --batch 32 --background resnet-18:8 --trace t.json",
    );
    let slices = open(&engine, &path.join("t.json"));
    assert_eq!(
        lanes(&slices, "simulated", "resnet-18"),
        every_rank_has(&["compute", "communication", "background"])
    );
}

#[test]
fn training_opens_in_perfetto() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let train =
        "train --model digits-cnn --data digits --ranks 4 --batch 32 --amplification 1.2 --iterations 50";
    succeed(path, &format!("{train} --background digits-cnn:8 --trace t.json"));
    let lanes = lanes(&open(&engine, &path.join("t.json")), "measured", "digits-cnn");
    assert!(lanes.is_superset(&every_rank_has(&["compute", "communication"])), "{lanes:?}");
    assert!(lanes.iter().any(|(_, lane)| lane == "background"), "{lanes:?}");
}

#[test]
fn plans_open_in_perfetto() {
    let Some(engine) = engine() else { return };
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    succeed(path, "plan --model resnet-18 --device a100 --gpus 4 --batch 32 --trace network.json");
    assert!(!open(&engine, &path.join("network.json")).is_empty());
}
