//! The published measurements beside the workspace: the fit of the built-in device models,
//! repeated, and the table of README.md.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::command::run;
use crate::rows::quoted_table;

#[test]
fn fits_reproduce_the_built_in_models_and_the_readme_quotes_their_errors() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    if !root.join("../shared/data/published").is_dir() {
        println!("SKIPPED: the published measurements are not beside the workspace");
        return;
    }
    let folder = TempDir::new().unwrap();
    let option = |name: &str, path: &str| [format!("--{name}"), root.join(path).display().to_string()];
    let mut arguments = vec!["published".to_owned(), "--fit".into(), folder.path().display().to_string()];
    arguments.extend(option("data", "../shared/data/published"));
    arguments.extend(option("profiles", "../shared/data/a100-profiles"));
    arguments.extend(option("h200", "benchmarks/2026-11-27-nvidia-h200"));
    run(folder.path(), &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let built_in = root.join("crates/layer-profile/src/device");
    let mut models = 0;
    for entry in std::fs::read_dir(built_in).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let [fitted, built_in] = [folder.path().join(path.file_name().unwrap()), path.clone()]
                .map(|path| std::fs::read_to_string(path).unwrap());
            assert_eq!(fitted, built_in, "{}: run `experiments published --fit` again", path.display());
            models += 1;
        }
    }
    assert_eq!(models, 9);

    let report = std::fs::read(folder.path().join("published.json")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    let errors = report["errors"].as_array().unwrap();
    let expected = errors.iter().filter(|row| row["group"] == "held out" || row["by"] == "GPU").map(|row| {
        let percent = |field: &str| 100.0 * row[field].as_f64().unwrap();
        let group = row["group"].as_str().unwrap().replace("held out", "all");
        vec![
            group,
            row["questions"].to_string(),
            format!("{:+.0}%", percent("median")),
            format!("{:.1}%", percent("median_magnitude")),
            format!("{:.0}%", percent("within")),
            format!("{:.0}%", percent("p90")),
        ]
    });
    let quoted = quoted_table(include_str!("../../../README.md"), "published");
    assert_eq!(quoted, expected.collect::<Vec<_>>());
}
