//! Laws of the rows of reports.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};

use serde_json::Value;

pub(crate) struct Report {
    pub(crate) rows: Vec<Value>,
}

impl Report {
    /// Runs an experiment, once for all tests with the same options.
    pub(crate) fn of(experiment: &str, options: &[&str]) -> Arc<Self> {
        static KNOWN: Mutex<BTreeMap<String, Arc<OnceLock<Arc<Report>>>>> = Mutex::new(BTreeMap::new());
        let command = format!("{experiment} {}", options.join(" "));
        let known = Arc::clone(KNOWN.lock().unwrap().entry(command).or_default());
        Arc::clone(known.get_or_init(|| Arc::new(Self::made(experiment, options))))
    }

    fn made(experiment: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_experiments"))
            .args([experiment, "--json", "--out", folder.path().to_str().unwrap()])
            .args(options)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["schema"], "deeppool/report/v1");
        assert_eq!(report["experiment"], experiment);
        assert_eq!(report["simulated"], true);
        let device = options.iter().skip_while(|option| **option != "--device").nth(1);
        assert_eq!(report["device"], *device.unwrap_or(&"a100"));
        assert_eq!(report["origin"], "modelled");
        assert_eq!(report["link"], "dgx-a100");
        Self { rows: report["rows"].as_array().unwrap().clone() }
    }

    /// Returns the rows of each model.
    pub(crate) fn by_model(&self) -> impl Iterator<Item = &[Value]> {
        self.rows.chunk_by(|a, b| a["model"] == b["model"])
    }
}

pub(crate) fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or_else(|| panic!("{field} is not a number in {row}"))
}

/// Returns the first row of a mode, whose layers are not split.
pub(crate) fn find<'a>(rows: &'a [Value], mode: &str, overlap: bool) -> &'a Value {
    rows.iter().find(|row| row["mode"] == mode && row["overlap"] == overlap).unwrap()
}

/// Returns the row of a mode whose layers may be split in all ways.
pub(crate) fn find_split<'a>(rows: &'a [Value], mode: &str) -> &'a Value {
    rows.iter().find(|row| row["mode"] == mode && row["all_splits"] == true).unwrap()
}

/// Checks the laws of a row, which hold in every experiment.
pub(crate) fn check_row(row: &Value, limit: f64) {
    let (gpus, busy) = (number(row, "gpus"), number(row, "gpu_busy_fraction"));
    assert!(busy > 0.0 && busy <= 1.0 + 1e-9, "{row}");
    assert!(number(row, "foreground_gpus") <= gpus && number(row, "background_gpus") <= gpus, "{row}");
    let parts = ["computing_fraction", "communicating_fraction", "idle_fraction"];
    let sum: f64 = parts.map(|part| number(row, part)).iter().sum();
    assert!((sum - 1.0).abs() < 1e-6, "{row}");
    let rates = ["computing", "communicating", "idle"];
    let rates = rates.map(|state| number(row, &format!("background_{state}_samples_per_s")));
    let all = number(row, "background_samples_per_s");
    assert!((rates.iter().sum::<f64>() - all).abs() <= 1e-6 * all, "{row}");
    assert_eq!(number(row, "foreground_gpus") > 0.0, number(row, "foreground_samples_per_s") > 0.0, "{row}");
    if row["mode"] == "bg" {
        for field in
            ["iteration_us", "planned_iteration_us", "amplification", "foreground_slowdown", "overlap"]
        {
            assert!(row[field].is_null(), "{field} in {row}");
        }
        return;
    }
    let from_iteration = number(row, "batch") / number(row, "iteration_us") * 1e6;
    let throughput = number(row, "foreground_samples_per_s");
    if row["background_gpus"] == 0 {
        // Alone, the simulation agrees with the plan.
        let ratio = number(row, "iteration_us") / number(row, "planned_iteration_us");
        assert!((ratio - 1.0).abs() < 1e-3, "{row}");
    }
    assert!((throughput / from_iteration - 1.0).abs() < 1e-5, "{row}");
    // With contention, the launch time of a collective decides whether it is served before or after
    // a layer. The foreground alone is launched further ahead, which can take slightly longer.
    let tolerance = if row["experiment"] == "qos" { 2e-3 } else { 1e-9 };
    assert!(number(row, "foreground_slowdown") >= 1.0 - tolerance, "{row}");
    assert!(number(row, "planned_iteration_us") > 0.0, "{row}");
    if row["mode"] == "bp" || row["mode"] == "bp+col" {
        let own_limit = number(row, "amplification_limit");
        assert!(row["limit_is_dp"] == true || (own_limit - limit).abs() < 1e-12, "{row}");
        assert!(number(row, "amplification") <= own_limit * (1.0 + 1e-9), "{row}");
        assert!(row["all_splits"] == true || number(row, "gap") >= -1e-9, "{row}");
    } else {
        assert!(row["amplification_limit"].is_null(), "{row}");
    }
}

#[test]
fn throughput_has_ten_valid_rows_for_each_model() {
    for (options, limit) in [(&["--amplification", "1.3"][..], 1.3), (&["--gpus", "3"], 2.0), (&[], 2.0)] {
        let report = Report::of("throughput", options);
        assert_eq!(report.rows.len(), 30);
        report.rows.iter().for_each(|row| check_row(row, limit));
        for rows in report.by_model() {
            let modes: Vec<_> = rows.iter().map(|row| row["mode"].as_str().unwrap()).collect();
            assert_eq!(modes, ["dp", "dp", "bp", "bp", "bp", "dp+col", "bp+col", "bp+col", "bp+col", "bg"]);
            let iteration = |mode, overlap| number(find(rows, mode, overlap), "iteration_us");
            assert!(iteration("dp", true) <= iteration("dp", false));
            assert!(iteration("bp", true) <= iteration("bp+col", true));
            assert!(iteration("dp", true) <= iteration("dp+col", true));
            let background_alone = number(&rows[9], "background_samples_per_s");
            // With at most the GPU time of data parallelism, a burst plan is at least as fast.
            let as_dp = rows.iter().find(|row| row["mode"] == "bp" && row["limit_is_dp"] == true).unwrap();
            assert!(number(as_dp, "iteration_us") <= iteration("dp", true) * (1.0 + 1e-6), "{as_dp}");
            // With more ways to divide layers, a burst plan is at least as fast.
            let split = find_split(rows, "bp");
            assert!(number(split, "iteration_us") <= iteration("bp", true) * (1.0 + 1e-6), "{split}");
            for row in rows {
                let background = number(row, "background_samples_per_s");
                assert!(background <= background_alone, "{row}");
                // Background jobs need GPUs.
                assert!(number(row, "background_gpus") > 0.0 || background == 0.0, "{row}");
            }
        }
    }
}

/// Returns the cells of the table between `<!-- NAME -->` and `<!-- end of NAME -->` of a page,
/// trimmed.
pub(crate) fn quoted_table(page: &str, name: &str) -> Vec<Vec<String>> {
    let table = page.split_once(&format!("<!-- {name} -->\n")).unwrap().1;
    let table = table.split_once(&format!("<!-- end of {name} -->")).unwrap().0;
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    table.lines().skip(2).map(cells).collect()
}

#[test]
fn readme_table_equals_the_throughput_report() {
    let report = Report::of("throughput", &[]);
    let expected: Vec<Vec<String>> = report
        .by_model()
        .map(|rows| {
            let [dp, bp, shared] = ["dp", "bp", "bp+col"].map(|mode| find(rows, mode, true));
            let [split, split_shared] = ["bp", "bp+col"].map(|mode| find_split(rows, mode));
            let total =
                |row| number(row, "foreground_samples_per_s") + number(row, "background_samples_per_s");
            let ratio = |ratio: f64| format!("{ratio:.2}");
            let milliseconds = |row| format!("{:.2}", number(row, "iteration_us") / 1e3);
            vec![
                dp["model"].as_str().unwrap().to_owned(),
                dp["batch"].to_string(),
                milliseconds(dp),
                milliseconds(bp),
                milliseconds(split),
                ratio(number(bp, "amplification") / number(dp, "amplification")),
                ratio(total(shared) / total(dp)),
                ratio(total(split_shared) / total(dp)),
                ratio(total(&rows[9]) / total(dp)),
            ]
        })
        .collect();
    let mut quoted = quoted_table(include_str!("../../../README.md"), "fig7");
    for (row, expected) in quoted.iter_mut().zip(&expected) {
        // The report has the model's name, the page its title.
        row[0].clone_from(&expected[0]);
    }
    assert_eq!(quoted, expected);
}

/// The page on planning says how the comparison depends on the number format.
#[test]
fn table_of_number_formats_equals_the_throughput_reports() {
    let formats = [("FP32", "a100-fp32"), ("TF32", "a100"), ("BF16", "a100-bf16")];
    let mut expected = Vec::new();
    for (format, device) in formats {
        for rows in Report::of("throughput", &["--device", device]).by_model() {
            let [dp, bp, shared] = ["dp", "bp", "bp+col"].map(|mode| find(rows, mode, true));
            let as_dp = rows.iter().find(|row| row["mode"] == "bp" && row["limit_is_dp"] == true).unwrap();
            let total =
                |row| number(row, "foreground_samples_per_s") + number(row, "background_samples_per_s");
            let times = [dp, bp, find_split(rows, "bp"), as_dp]
                .map(|row| format!("{:.2}", number(row, "iteration_us") / 1e3));
            let ratios = [shared, &rows[9]].map(|row| format!("{:.2}", total(row) / total(dp)));
            let name = [format.to_owned(), dp["model"].as_str().unwrap().to_owned()];
            expected.push([name.as_slice(), &times, &ratios].concat());
        }
    }
    let quoted = quoted_table(include_str!("../../../docs/planning.md"), "number formats");
    assert_eq!(quoted, expected);
}

#[test]
fn tight_limit_leaves_idle_time_to_the_background() {
    let report = Report::of("throughput", &["--amplification", "1.1"]);
    for rows in report.by_model() {
        assert!(number(find(rows, "dp", true), "amplification") > 1.1);
        assert!(number(find(rows, "bp", true), "gpu_busy_fraction") < 1.0);
        assert!(number(find(rows, "bp+col", true), "background_samples_per_s") > 0.0);
    }
}

#[test]
fn policy_option_changes_collocated_rows_only() {
    let (ours, naive) = (Report::of("throughput", &[]), Report::of("throughput", &["--policy", "naive"]));
    for (ours, naive) in ours.by_model().zip(naive.by_model()) {
        let slowdown = |rows| number(find(rows, "bp+col", true), "foreground_slowdown");
        assert!(slowdown(naive) > slowdown(ours));
        assert_eq!(find(naive, "bp", true), find(ours, "bp", true));
    }
}

#[test]
fn all_plans_are_equal_on_one_gpu() {
    let report = Report::of("throughput", &["--gpus", "1", "--amplification", "1"]);
    report.rows.iter().for_each(|row| check_row(row, 1.0));
    for rows in report.by_model() {
        assert!(rows[..9].iter().all(|row| row["iteration_us"] == rows[0]["iteration_us"]));
    }
}

/// Under a limit that data parallelism keeps, a burst plan is never slower than it. Over all
/// limits, burst plans with background work give at least as much as their parts.
#[test]
fn burst_plans_over_all_limits_are_at_least_their_parts() {
    let limits = Report::of("limits", &[]);
    for rows in limits.by_model() {
        let dp = find(rows, "dp", true);
        let of = |mode: &'static str| rows.iter().filter(move |row| row["mode"] == mode);
        let total =
            |row: &Value| number(row, "foreground_samples_per_s") + number(row, "background_samples_per_s");
        let max = of("bp+col").map(total).fold(0.0, f64::max);
        for mode in ["dp", "dp+col", "bp"] {
            assert!(of(mode).map(total).fold(0.0, f64::max) <= max, "{mode}");
        }
        for burst in of("bp") {
            check_row(burst, number(burst, "amplification_limit"));
            let (limit, dp_has) = (number(burst, "amplification_limit"), number(dp, "amplification"));
            let speed = |row: &Value| number(row, "foreground_samples_per_s");
            assert!(limit < dp_has || speed(burst) >= speed(dp) * (1.0 - 1e-6), "{burst}");
        }
        // A looser limit is never slower.
        let speeds: Vec<f64> = of("bp").map(|row| number(row, "foreground_samples_per_s")).collect();
        assert!(
            speeds.len() > 5 && speeds.windows(2).all(|pair| pair[1] >= pair[0] * (1.0 - 1e-6)),
            "{speeds:?}"
        );
    }
}
