//! Plans with layers that are split.

use tempfile::TempDir;

use crate::command::{json, succeed};

const PLAN: &str = "plan --model vgg16 --device a100 --gpus 8 --batch 32";

#[test]
fn plans_name_the_split_of_each_run() {
    let folder = TempDir::new().unwrap();
    let text = succeed(folder.path(), &format!("{PLAN} --splits features,inputs --explain --dot plan.dot"));
    let (path, explained) = text.split_once("\nWhat layers on the same ranks").unwrap();
    let column = path.lines().find(|line| line.trim_start().starts_with("layers")).unwrap();
    assert!(column.contains("ranks") && column.contains(" split "), "{column}");
    let row = |text: &str, first: &str| {
        text.lines().find(|line| line.trim_start().starts_with(first)).unwrap_or_default().to_owned()
    };
    assert!(row(path, "classifier.0").contains(" 8 by features "), "{path}");
    assert!(row(explained, "classifier.0").contains("(8 by features)"), "{explained}");
    // The linear layers end a run: the convolutions have the same ranks and no split.
    assert!(row(path, "features.0").contains(" .. flatten"), "{path}");
    assert!(!row(path, "features.0").contains(" by "), "{path}");
    let dot = std::fs::read_to_string(folder.path().join("plan.dot")).unwrap();
    assert!(dot.contains(r#"n33 [label="classifier.0\n8 GPUs, ranks 0 to 7\nsplit 8 by features""#), "{dot}");
    assert!(dot.contains("n32 -> n33 [style=bold];") && dot.contains("n33 -> n34;"), "{dot}");
}

#[test]
fn explanations_as_json_have_the_division() {
    let folder = TempDir::new().unwrap();
    let plan = json(folder.path(), &format!("{PLAN} --splits features --explain --json"));
    let runs = plan["explanations"].as_array().unwrap();
    let split = runs.iter().find(|run| run["first"] == "classifier.0").unwrap();
    assert_eq!(split["division"], serde_json::json!({"split": "features", "parts": 8}));
    assert!(runs.iter().any(|run| run.get("division").is_none()));
}

#[test]
fn plans_without_splits_have_no_column_for_them() {
    let folder = TempDir::new().unwrap();
    let text = succeed(folder.path(), &format!("{PLAN} --explain --dot plan.dot"));
    assert!(!text.contains("split"), "{text}");
    assert!(!std::fs::read_to_string(folder.path().join("plan.dot")).unwrap().contains("split"));
}
