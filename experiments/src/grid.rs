//! Sweeps: one run of an experiment for every combination of the option values in a TOML file. A
//! *point* is one such combination.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rayon::prelude::*;
use serde_json::{Map, Value, json};
use toml::Table;

use crate::catalog::Single;
use crate::journal::Journal;
use crate::options::{OutputOptions, make_folder};
use crate::outcome;
use crate::part::Part;
use crate::progress::progress_bar;
use crate::report::SCHEMA;

/// Maximum number of combinations of a file.
const MAX_POINTS: usize = 10_000;
/// Key of the array of tables whose values belong together, such as GPU counts and their batches.
const POINTS: &str = "points";

/// Option values by option name.
type GridPoint = Vec<(String, String)>;

/// Runs the experiment `name` for every point of a file. Writes the files of each point into its
/// folder, and one CSV file of all points. Returns the text to print. `line` is the command line
/// without the program's name.
///
/// A key of the file is the name of an option without its dashes; its value is a number, a string,
/// or a list of them. Each table of the array `points` is combined with the values above it.
///
/// # Errors
/// If the file is invalid, or if a point fails; then the results of the other points are written.
pub(crate) fn run(
    name: &str,
    file: &Path,
    output: &OutputOptions,
    line: &[String],
) -> anyhow::Result<String> {
    let in_file = || file.display().to_string();
    let points = points(name, file).with_context(in_file)?;
    let mut parts = Vec::with_capacity(points.len());
    for point in &points {
        let line = with_options(line, point)?;
        parts.push(
            Part::new(stem(point), line).with_context(|| format!("{}: {}", in_file(), described(point)))?,
        );
    }
    let stems: HashSet<&str> = parts.iter().map(|part| part.stem.as_str()).collect();
    if stems.len() < parts.len() {
        bail!(
            "{}: two combinations are equal, or their values differ only in the folders of files",
            in_file()
        );
    }
    make_folder(&output.out)?;
    // Before the work, so that a folder that cannot be written to ends the command at once.
    parts.iter().try_for_each(|part| make_folder(&output.out.join(&part.stem)))?;
    // The journal also checks the files that options name.
    let words: Vec<String> = line.iter().chain(parts.iter().flat_map(|part| &part.line)).cloned().collect();
    let csv = output.out.join(name).with_extension("csv");
    let found = Journal::with_journal(&output.out, name, &words, |journal| {
        let results = run_parts(parts, name, output, &journal.quiet());
        // The results of the other points are kept when a point fails.
        let mut found: Vec<(&GridPoint, PointResult)> = Vec::with_capacity(points.len());
        let mut first_error = None;
        for (point, result) in points.iter().zip(results) {
            match result {
                Ok(of_point) => found.push((point, of_point)),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        command_line::files::write(&csv, &joined(&found)?)?;
        let Some(error) = first_error else { return Ok(found) };
        let (all, failed) = (points.len(), points.len() - found.len());
        let csv = csv.display();
        Err(error.context(format!(
            "{failed} of {all} points failed; the results of the others are in {csv}; the first error"
        )))
    })?;
    if output.json {
        let values = |point: &GridPoint| -> Map<String, Value> {
            point.iter().map(|(key, value)| (key.clone(), Value::from(value.clone()))).collect()
        };
        let sweep =
            found.into_iter().map(|(point, found)| json!({"point": values(point), "report": found.report}));
        let sweep: Vec<Value> = sweep.collect();
        return Ok(format!("{:#}\n", json!({"schema": SCHEMA, "experiment": name, "sweep": sweep})));
    }
    let lines =
        found.iter().map(|(point, found)| format!("{}  ({})\n", described(point), found.folder.display()));
    let lines = lines.collect::<String>();
    Ok(format!("{name} for each of these, by {}:\n{lines}wrote {}\n", in_file(), csv.display()))
}

/// Result of a point.
struct PointResult {
    folder: PathBuf,
    csv: Vec<u8>,
    report: Value,
}

/// Runs all points in parallel, or one after another if they measure this machine, and writes their
/// files.
fn run_parts(
    parts: Vec<Part>,
    name: &str,
    output: &OutputOptions,
    journal: &Journal,
) -> Vec<anyhow::Result<PointResult>> {
    let bar = progress_bar(parts.len(), "points");
    let run = |part: Part| -> anyhow::Result<PointResult> {
        let folder = output.out.join(&part.stem);
        let done = part.run(journal)?;
        outcome::save(&*done.outcome, name, &folder, output.style)?;
        bar.inc(1);
        Ok(PointResult {
            folder,
            csv: done.outcome.csv()?,
            report: serde_json::from_str(&done.outcome.to_json()?)?,
        })
    };
    let found = if parts.iter().any(|part| part.is_measured) {
        parts.into_iter().map(run).collect()
    } else {
        parts.into_par_iter().map(run).collect()
    };
    bar.finish_and_clear();
    found
}

/// Returns all combinations, in the order of the file.
fn points(experiment: &str, file: &Path) -> anyhow::Result<Vec<GridPoint>> {
    let text = command_line::files::read_to_string(file).context("cannot read this file")?;
    let mut table: Table = toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
        anyhow::anyhow!("line {line}: {}", error.message())
    })?;
    let tables = match table.remove(POINTS) {
        None => vec![Table::new()],
        Some(toml::Value::Array(points)) if !points.is_empty() => {
            let table = |value| match value {
                toml::Value::Table(table) => Ok(table),
                other => {
                    bail!("`{POINTS}` holds tables, each of them [[{POINTS}]], not {}", other.type_str())
                }
            };
            points.into_iter().map(table).collect::<anyhow::Result<_>>()?
        }
        Some(other) => bail!("`{POINTS}` holds tables, each of them [[{POINTS}]], not {}", other.type_str()),
    };
    let mut points = Vec::new();
    for of_table in tables {
        if let Some(key) = of_table.keys().find(|key| table.contains_key(*key)) {
            bail!("`{key}` is set above [[{POINTS}]] and in one of its tables");
        }
        let all = table.clone().into_iter().chain(of_table);
        let axes =
            all.map(|(key, value)| axis(experiment, key, value)).collect::<anyhow::Result<Vec<_>>>()?;
        points.extend(combinations(&axes)?);
        if points.len() > MAX_POINTS {
            bail!("more than {MAX_POINTS} combinations: split the file");
        }
    }
    if points.iter().any(Vec::is_empty) {
        bail!("the file has no values: add one, such as `gpus = [8, 16]`");
    }
    Ok(points)
}

/// Returns an option and its values as command-line words.
fn axis(experiment: &str, key: String, value: toml::Value) -> anyhow::Result<(String, Vec<String>)> {
    let names = Single::option_names(experiment);
    if !names.contains(&key) {
        bail!("`{key}` is not an option of {experiment}: expected one of {}", names.join(", "));
    }
    let word = |value: toml::Value| match value {
        toml::Value::String(text) => Ok(text),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        other => bail!("`{key}`: expected numbers or strings, not {}", other.type_str()),
    };
    let words = match value {
        toml::Value::Array(values) => values.into_iter().map(word).collect::<anyhow::Result<Vec<_>>>()?,
        value => vec![word(value)?],
    };
    if words.is_empty() {
        bail!("`{key}` has no values");
    }
    Ok((key, words))
}

fn combinations(axes: &[(String, Vec<String>)]) -> anyhow::Result<Vec<GridPoint>> {
    let count = axes.iter().try_fold(1_usize, |count, (_, words)| count.checked_mul(words.len()));
    if count.is_none_or(|count| count > MAX_POINTS) {
        bail!("more than {MAX_POINTS} combinations: split the file");
    }
    let mut points: Vec<GridPoint> = vec![Vec::new()];
    for (key, words) in axes {
        let with = |point: &GridPoint| {
            let point = point.clone();
            words.iter().map(move |word| [&point[..], &[(key.clone(), word.clone())]].concat())
        };
        points = points.iter().flat_map(with).collect();
    }
    Ok(points)
}

/// Returns the command line with a point's options and without the options that only a sweep has.
fn with_options(line: &[String], point: &GridPoint) -> anyhow::Result<Vec<String>> {
    let mut words = line.iter();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        let (name, has_value) = word.split_once('=').map_or((word.as_str(), false), |(name, _)| (name, true));
        match name {
            "--json" => {}
            "--sweep" | "--out" | "--style" => {
                if !has_value {
                    words.next();
                }
            }
            name => {
                if let Some((key, _)) = point.iter().find(|(key, _)| name.strip_prefix("--") == Some(key)) {
                    bail!("`{key}` is in the file and on the command line: leave one of them out");
                }
                kept.push(word.clone());
            }
        }
    }
    kept.extend(point.iter().map(|(key, value)| format!("--{key}={value}")));
    Ok(kept)
}

/// Returns the name of a point's folder.
fn stem(point: &GridPoint) -> String {
    let plain = |value: &str| -> String {
        let name = value.rsplit('/').next().unwrap_or(value);
        name.chars()
            .map(|letter| if letter.is_ascii_alphanumeric() || "-._".contains(letter) { letter } else { '-' })
            .collect()
    };
    point.iter().map(|(key, value)| format!("{key}={}", plain(value))).collect::<Vec<_>>().join(",")
}

fn described(point: &GridPoint) -> String {
    point.iter().map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>().join(", ")
}

/// Joins the CSV records of all points, each preceded by the values of its point.
fn joined(found: &[(&GridPoint, PointResult)]) -> anyhow::Result<Vec<u8>> {
    let mut keys: Vec<&str> =
        found.iter().flat_map(|(point, _)| *point).map(|(key, _)| key.as_str()).collect();
    let mut seen = HashSet::new();
    keys.retain(|key| seen.insert(*key));
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut has_header = false;
    for (point, PointResult { csv, .. }) in found {
        let mut reader = csv::Reader::from_reader(&csv[..]);
        if !has_header && !reader.headers()?.is_empty() {
            has_header = true;
            let of_point = keys.iter().map(|key| format!("--{key}"));
            writer.write_record(of_point.chain(reader.headers()?.iter().map(str::to_owned)))?;
        }
        let value = |key: &&str| {
            let value = point.iter().find(|(name, _)| name == key);
            value.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        for record in reader.records() {
            let record = record?;
            writer.write_record(keys.iter().map(value).chain(record.iter().map(str::to_owned)))?;
        }
    }
    Ok(writer.into_inner()?)
}
