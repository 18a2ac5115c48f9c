//! Figures against the CSV file beside them.

use std::collections::HashMap;
use std::path::Path;

use crate::command::run;
use crate::svg::{attribute, elements};

const FOREGROUND: &str = "#0072B2";
const BACKGROUND: &str = "#E69F00";

/// Returns the widths of a colour's bars in drawing order, without the legend.
fn widths(svg: &str, color: &str) -> Vec<f64> {
    elements(svg, "<rect", color).into_iter().skip(1).map(|bar| attribute(bar, "width")).collect()
}

/// Returns the records of a CSV file by field name.
pub(crate) fn records(csv: &Path) -> Vec<HashMap<String, String>> {
    csv::Reader::from_path(csv).unwrap().deserialize().map(Result::unwrap).collect()
}

/// Each record has one bar of the recorded length, in the order of the records, with its numbers
/// beside it.
#[test]
fn bars_match_their_records() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &["throughput"]);
    for (experiment, folder) in [("throughput", folder.path()), ("qos", crate::qos::folder())] {
        let file = folder.join(experiment);
        let svg = std::fs::read_to_string(file.with_extension("svg")).unwrap();
        let records = records(&file.with_extension("csv"));
        assert!(!records.is_empty());
        for (color, rate) in
            [(FOREGROUND, "foreground_samples_per_s"), (BACKGROUND, "background_samples_per_s")]
        {
            let drawn = widths(&svg, color);
            let of = |record: &HashMap<String, String>| record[rate].parse::<f64>().unwrap();
            let shown: Vec<_> = records.iter().filter(|record| of(record) > 0.0).collect();
            assert_eq!(drawn.len(), shown.len(), "{experiment}: {rate}");
            // Panels of different models and settings have different scales.
            let panel =
                |record: &HashMap<String, String>| (record["model"].clone(), record["setting"].clone());
            let bars: Vec<_> = shown.iter().zip(drawn).collect();
            for of_panel in bars.chunk_by(|(a, _), (b, _)| panel(a) == panel(b)) {
                let longest = of_panel.iter().map(|(record, _)| of(record)).fold(0.0, f64::max);
                let widest = of_panel.iter().map(|(_, width)| *width).fold(0.0, f64::max);
                for (record, width) in of_panel {
                    let expected = of(record) / longest * widest;
                    // Both ends are rounded to whole pixels.
                    assert!(
                        (width - expected).abs() <= 2.5,
                        "{experiment}: {width}, not {expected}: {record:?}"
                    );
                }
            }
        }
        let mut rest = svg.as_str();
        for record in &records {
            let number = |field: &str| record[field].parse::<f64>().ok();
            let [foreground, background] =
                ["foreground_samples_per_s", "background_samples_per_s"].map(|rate| number(rate).unwrap());
            let total = format!("{:.0}", foreground + background);
            let slowdown = number("foreground_slowdown_median").zip(number("foreground_slowdown_p99"));
            let beside = match (slowdown, number("background_share_of_idle")) {
                (Some((median, p99)), Some(share)) if !record["policy"].is_empty() => {
                    let share = share * 100.0;
                    format!(
                        "{total} (FG slowdown {median:.3}, p99 {p99:.3}; BG has {share:.0}% of idle time)"
                    )
                }
                _ => total,
            };
            let place = rest.find(&format!("\n{beside}\n"));
            let place = place.unwrap_or_else(|| panic!("{experiment}: no {beside:?} for {record:?}"));
            rest = &rest[place + beside.len()..];
        }
    }
}

/// Checks the figures that take a second. `scripts/readme-figures` draws all.
#[test]
fn committed_figures_equal_the_experiments() {
    let folder = tempfile::tempdir().unwrap();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/figures");
    for experiment in ["plans", "partition"] {
        run(folder.path(), &[experiment, "--model", "vgg16", "--batch", "32", "--style", "paper"]);
    }
    for name in ["plans-vgg16.svg", "plans-vgg16-all-splits.svg", "partition-vgg16.svg"] {
        let [shown, found] =
            [docs.as_path(), folder.path()].map(|folder| std::fs::read(folder.join(name)).unwrap());
        assert!(shown == found, "run scripts/readme-figures: {name} is out of date");
    }
}
