//! Readers of reports: each accepts all rows, or names the first unusable one. Nothing is skipped.

use std::fs;
use std::path::{Path, PathBuf};

use benches::coll::CollReport;
use benches::mux::MuxReport;
use tempfile::TempDir;

/// A reader of reports.
struct Reader {
    /// File of the source in which it is.
    source: &'static str,
    /// Fields of the document without its rows.
    head: &'static str,
    valid: &'static str,
    /// Changes of a valid row that make it unusable, each with the field that is named.
    unusable: &'static [(&'static str, &'static str, &'static str)],
    /// Returns the number of rows.
    read: fn(&Path) -> anyhow::Result<usize>,
}

const READERS: [Reader; 2] = [
    Reader {
        source: "coll/report.rs",
        head: r#""schema": "deeppool/coll-bench/v1", "machine": {"processor": "p", "cores": 2}"#,
        valid: r#"{"backend": "threads", "op": "all-reduce", "ranks": 2, "bytes": 4, "time_us": 9,
            "time_p10_us": 8, "time_p90_us": 10, "samples": 3, "iterations": 30}"#,
        unusable: &[
            (r#""time_us": 9"#, r#""time_us": 0"#, "time_us"),
            (r#""time_us": 9"#, r#""time_us": 2e25"#, "time_us"),
            (r#""time_us": 9"#, r#""time_us": null"#, "time_us"),
            (r#""ranks": 2"#, r#""ranks": -2"#, "ranks"),
            (r#""op": "all-reduce""#, r#""op": "all-scatter""#, "op"),
            (r#""bytes": 4"#, r#""bytes": 4, "size": 4"#, "size"),
        ],
        read: |path| Ok(CollReport::load(path)?.rows.len()),
    },
    Reader {
        source: "mux/report.rs",
        head: r#""schema": "deeppool/mux-bench/v1", "device": "d", "modelled": true, "workload": "w""#,
        valid: r#"{"policy": "p", "modelled": true, "iterations": 3, "foreground_alone_us": 9,
            "foreground_alone_p99_us": 9, "foreground_us": 9, "foreground_p99_us": 9,
            "foreground_slowdown": 1, "foreground_slowdown_p99": 1, "idle_us": 1,
            "background_share_of_idle": 0, "background_alone_samples_per_s": 1,
            "background_samples_per_s": 1, "background_pieces": 1, "over_long_pieces": 0}"#,
        unusable: &[
            (r#""idle_us": 1"#, r#""idle_us": null"#, "idle_us"),
            (r#""iterations": 3"#, r#""iterations": 0.5"#, "iterations"),
            (r#""iterations": 3"#, r#""iterations": 3, "rounds": 4"#, "rounds"),
        ],
        read: |path| Ok(MuxReport::load(path)?.rows.len()),
    },
];

#[test]
fn reports_are_accepted_with_all_rows_or_the_first_unusable_one_is_named() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("report.json");
    for Reader { source, head, valid, unusable, read } in READERS {
        for (count, bad) in [(1, vec![]), (7, vec![]), (1, vec![0]), (7, vec![2, 5]), (7, vec![6])] {
            for &(field, changed, name) in unusable {
                let other = valid.replacen(field, changed, 1);
                assert_ne!(valid, other, "{source}");
                let rows: Vec<&str> =
                    (0..count).map(|row| if bad.contains(&row) { &*other } else { valid }).collect();
                fs::write(&path, format!("{{{head}, \"rows\": [{}]}}", rows.join(", "))).unwrap();
                match (read(&path), bad.first()) {
                    (Ok(accepted), None) => assert_eq!(accepted, count, "{source}"),
                    (Err(error), Some(first)) => {
                        let (error, place) = (error.to_string(), format!("rows[{first}].{name}"));
                        assert!(error.contains(&place), "{source}: expected {place}: {error}");
                    }
                    (result, first) => panic!("{source}: {result:?}, first {first:?} of {changed}"),
                }
            }
        }
    }
}

#[test]
fn every_reader_is_registered() {
    fn find(folder: PathBuf, root: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                find(path, root, found);
            } else if fs::read_to_string(&path).unwrap().contains("    pub fn load(") {
                found.push(path.strip_prefix(root).unwrap().display().to_string());
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    find(root.clone(), &root, &mut found);
    found.sort();
    assert_eq!(found, READERS.map(|reader| reader.source));
}
