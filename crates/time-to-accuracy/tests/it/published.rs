//! Published runs, read from `shared/data/convergence` beside the workspace if it exists.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use time_to_accuracy::{
    Configuration, CurveSchema, EpochCurve, EpochCurveDocument, EpochPoint, EpochTime, MeasuredEpochs,
    Origin, scaling_efficiency,
};

type Row = std::collections::HashMap<String, String>;

/// Returns the rows of a table, or prints a line and returns `None` if the file does not exist.
fn rows(name: &str) -> Result<Option<Vec<Row>>, Box<dyn Error>> {
    let path: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/convergence").join(name);
    if !path.exists() {
        println!("SKIPPED: {} is not there", path.display());
        return Ok(None);
    }
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_path(path)?;
    let names = reader.headers()?.clone();
    let row =
        |record: csv::StringRecord| names.iter().map(Into::into).zip(record.iter().map(Into::into)).collect();
    let rows: Vec<Row> = reader.records().map(|record| record.map(row)).collect::<Result<_, _>>()?;
    Ok(Some(rows))
}

fn point(row: &Row, [epochs, min, max, runs]: [&str; 4]) -> Result<EpochPoint, Box<dyn Error>> {
    let batch = row.get("batch").or(row.get("global_batch")).ok_or("a batch")?;
    Ok(EpochPoint {
        batch: batch.parse()?,
        epochs: row[epochs].parse()?,
        epochs_min: Some(row[min].parse()?),
        epochs_max: Some(row[max].parse()?),
        runs: Some(row[runs].parse()?),
        missed: 0,
    })
}

fn curve(mut points: Vec<EpochPoint>, samples_per_epoch: u64) -> EpochCurve {
    points.sort_by_key(|point| point.batch);
    EpochCurve::new(EpochCurveDocument {
        schema: CurveSchema::V1,
        network: "net".into(),
        dataset: "data".into(),
        target: "that of MLPerf".into(),
        origin: Origin::Published,
        source: "MLPerf".into(),
        licence: None,
        note: None,
        samples_per_epoch,
        points,
    })
    .expect("a valid curve")
}

#[test]
fn built_in_gnmt_curve_equals_published_runs() -> Result<(), Box<dyn Error>> {
    let Some(rows) = rows("mlperf_epochs_by_batch.csv")? else { return Ok(()) };
    let systems = [
        ("0.6", "dgx1_ngc19.05_pytorch"),
        ("0.6", "dgx2h_n16_ngc19.05_pytorch"),
        ("0.6", "dgx2h_n24_ngc19.05_pytorch"),
        ("0.7", "dgx2h_n64_ngc20.06_pytorch"),
    ];
    let is_of = |row: &&Row| {
        let is_system = systems.contains(&(row["round"].as_str(), row["system"].as_str()));
        row["benchmark"] == "gnmt" && row["org"] == "NVIDIA" && is_system
    };
    let columns = ["mean_epochs", "min_epochs", "max_epochs", "runs_reached"];
    let points = rows.iter().filter(is_of).map(|row| point(row, columns)).collect::<Result<_, _>>()?;
    let (found, built_in) = (curve(points, 3_975_116), EpochCurve::named("gnmt")?);
    assert_eq!(found.points(), built_in.points());
    for (batch, epochs) in [(2048, 4.1), (8192, 6.2), (12_288, 7.6), (16_384, 9.2)] {
        assert_eq!(found.epochs(batch)?.mean, epochs);
    }
    Ok(())
}

#[test]
fn built_in_resnet_50_curve_equals_reference_points() -> Result<(), Box<dyn Error>> {
    let Some(rows) = rows("mlperf_rcp_epochs.csv")? else { return Ok(()) };
    let is_of = |row: &&Row| row["benchmark"] == "resnet" && row["last_round"] == "training 4.0.0";
    let columns = ["mean", "min", "max", "runs"];
    let points = rows.iter().filter(is_of).map(|row| point(row, columns)).collect::<Result<_, _>>()?;
    let (found, built_in) = (curve(points, 1_281_167), EpochCurve::named("resnet-50")?);
    assert_eq!(found.points(), built_in.points());
    let known = [(1632, 35.0), (4096, 40.0), (8192, 42.0), (13_056, 45.4), (32_768, 56.0), (65_536, 84.5)];
    for (batch, epochs) in known {
        assert_eq!(found.epochs(batch)?.mean, epochs);
    }
    Ok(())
}

#[test]
fn scaling_efficiencies_follow_from_published_epoch_times() -> Result<(), Box<dyn Error>> {
    let Some(rows) = rows("mlperf_epochs_by_batch.csv")? else { return Ok(()) };
    let series = |benchmark: &str, round: &str, samples: u64| -> Result<MeasuredEpochs, Box<dyn Error>> {
        let is_of = |row: &&Row| {
            let of = (row["benchmark"].as_str(), row["round"].as_str(), row["org"].as_str());
            of == (benchmark, round, "NVIDIA") && row["system"].starts_with("dgx2h_")
        };
        let row = |row: &Row| -> Result<EpochTime, Box<dyn Error>> {
            let epoch = Duration::from_secs_f64(row["s_per_epoch"].parse()?);
            Ok(EpochTime { gpus: row["accelerators"].parse()?, batch: row["global_batch"].parse()?, epoch })
        };
        let rows: Vec<EpochTime> = rows.iter().filter(is_of).map(row).collect::<Result<_, _>>()?;
        Ok(MeasuredEpochs::new(samples, rows)?)
    };
    let gnmt = series("gnmt", "0.7", 3_975_116)?;
    let resnet = series("resnet", "0.6", 1_281_167)?;
    let on = Configuration::data_parallel;
    for (steps, reference, of, expected) in [
        (&gnmt, on(16, 3072), on(256, 8192), 0.461),
        (&gnmt, on(16, 3072), on(1024, 16_384), 0.260),
        (&resnet, on(16, 3328), on(512, 33_280), 0.763),
    ] {
        let found = scaling_efficiency(steps, &reference, &of).ok_or("measured")?;
        println!("{of}: scaling efficiency {found:.3} against 16 GPUs");
        assert!((found - expected).abs() < 0.001, "{of}: {found}, expected {expected}");
    }
    Ok(())
}
