//! Plans as pictures, and published numbers.

use crate::command::run;
use crate::figures::records;
use crate::svg::{attribute, elements};

/// Each run of GPUs of each layer has a rectangle at the recorded place, and each split its name.
#[test]
fn rectangles_match_their_records() {
    let folder = tempfile::tempdir().unwrap();
    let text = run(folder.path(), &["plans", "--model", "vgg16", "--batch", "32"]);
    assert!(text.contains("layers on all GPUs"), "{text}");
    let records = records(&folder.path().join("plans.csv"));
    for (all_splits, name) in [("false", "plans-vgg16.svg"), ("true", "plans-vgg16-all-splits.svg")] {
        let records: Vec<_> = records.iter().filter(|record| record["all_splits"] == all_splits).collect();
        let svg = std::fs::read_to_string(folder.path().join(name)).unwrap();
        let mut counts: Vec<&str> = records.iter().map(|record| record["layer_gpus"].as_str()).collect();
        counts.sort_unstable();
        counts.dedup();
        let mut splits: Vec<&str> = records.iter().map(|record| record["split"].as_str()).collect();
        splits.retain(|split| !split.is_empty());
        assert_eq!(splits.is_empty(), all_splits == "false", "{splits:?}");
        for split in splits {
            assert!(svg.contains(split) && text.contains(split), "{split}");
        }
        // The legend is drawn first.
        let is_drawn = |line: &&str| !line.contains("#FFFFFF");
        let rectangles: Vec<&str> =
            elements(&svg, "<rect", "").into_iter().filter(is_drawn).skip(counts.len()).collect();
        let mut drawn = rectangles.iter();
        let (mut top, mut bottom) = (f64::INFINITY, 0.0_f64);
        for line in &rectangles {
            top = top.min(attribute(line, "y"));
            bottom = bottom.max(attribute(line, "y") + attribute(line, "height"));
        }
        let rank_height = (bottom - top) / 8.0;
        for record in records {
            for run in record["ranks"].split(' ') {
                let (first, last) = run.split_once('-').unwrap_or((run, run));
                let [first, last] = [first, last].map(|rank| rank.parse::<f64>().unwrap());
                let line = drawn.next().unwrap();
                assert!((attribute(line, "y") - top - first * rank_height).abs() < 3.0, "{record:?}: {line}");
                let height = (last - first + 1.0) * rank_height;
                assert!((attribute(line, "height") - height).abs() < 3.0, "{record:?}: {line}");
            }
        }
        assert!(drawn.next().is_none());
    }
}

#[test]
fn published_numbers_are_compared_with_ours() {
    let folder = tempfile::tempdir().unwrap();
    let text = run(folder.path(), &["published"]);
    for expected in ["13.57", "1.2 to 2.3", "11.23", "763.52", "not published", "ours / published"] {
        assert!(text.contains(expected), "no {expected} in\n{text}");
    }
    for record in records(&folder.path().join("published.csv")) {
        let number = |field: &str| record[field].parse::<f64>().ok();
        let ratio = number("published").filter(|_| record["published_most"].is_empty());
        let ratio = ratio.map(|published| number("ours").unwrap() / published);
        assert_eq!(ratio.is_some(), number("ratio").is_some(), "{record:?}");
        assert!(ratio.is_none_or(|ratio| (ratio - number("ratio").unwrap()).abs() < 1e-12), "{record:?}");
    }
}
