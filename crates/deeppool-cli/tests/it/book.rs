//! The pages of the book: their links, and their commands for one process.
//!
//! Other tests run the remaining commands: `training_page`, `hosts`, `slurm`, the tests of
//! `experiments` and, for PyTorch, those of the Python package.

use std::path::Path;

use tempfile::TempDir;

use crate::command::{deeppool, is_of_run, succeed};
use crate::hf::LLAMA;
use crate::pages::{commands, read};

/// Pages whose commands need no other process, data set or feature.
const PAGES: [&str; 5] =
    ["planning", "clusters", "checkpoints", "partial-backpropagation", "hybrid-parallelism"];

fn deeppool_commands(page: &str) -> Vec<String> {
    let without_comment = |command: &str| command.split(" # ").next().unwrap().trim().to_owned();
    let all = commands(&read(&format!("docs/{page}.md")));
    all.iter().filter_map(|command| command.strip_prefix("deeppool ")).map(without_comment).collect()
}

fn run_page(page: &str) {
    let folder = TempDir::new().unwrap();
    let commands = deeppool_commands(page);
    assert!(!commands.is_empty(), "{page}");
    for mut command in commands {
        if command.starts_with("profile ") {
            // Other tests compute at the same time, which may disturb many attempts.
            command.push_str(" --attempts 50");
        }
        let output = deeppool(folder.path(), &command);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !output.stdout.is_empty(), "{page}: {command}: {errors}");
        // A profile may be disturbed by other tests, which it says in a warning. A resumed run
        // names the settings that differ.
        let is_warning = |line: &str| {
            line.starts_with("warning: the profile was disturbed")
                || line.starts_with("resumed with other settings")
                || is_of_run(line)
        };
        assert!(errors.lines().all(is_warning), "{page}: {command}: {errors}");
    }
}

#[test]
fn commands_of_the_planning_page_work() {
    run_page(PAGES[0]);
}

#[test]
fn commands_of_the_clusters_page_work() {
    run_page(PAGES[1]);
}

#[test]
fn commands_of_the_checkpoints_page_work() {
    run_page(PAGES[2]);
}

#[test]
fn commands_of_the_partial_backpropagation_page_work() {
    run_page(PAGES[3]);
}

#[test]
fn commands_of_the_hybrid_parallelism_page_work() {
    run_page(PAGES[4]);
}

/// But for the ONNX file, which the page on PyTorch makes.
#[test]
fn commands_of_the_readme_work() {
    let folder = TempDir::new().unwrap();
    let commands = commands(&read("README.md"));
    let mut commands: Vec<&str> =
        commands.iter().filter_map(|command| command.strip_prefix("deeppool ")).collect();
    commands.retain(|command| !command.contains("--onnx"));
    assert_eq!(commands.len(), 4, "{commands:?}");
    let config = folder.path().join("llama/config.json");
    std::fs::create_dir(config.parent().unwrap()).unwrap();
    std::fs::write(config, LLAMA).unwrap();
    for command in commands {
        succeed(folder.path(), command);
    }
}

#[cfg(feature = "cuda")]
#[test]
fn commands_of_the_gpus_page_work() {
    let commands = commands(&read("docs/gpus.md"));
    let command =
        commands.iter().find_map(|command| command.strip_prefix("target/release/deeppool ")).unwrap();
    succeed(TempDir::new().unwrap().path(), command);
}

#[test]
fn every_page_is_in_the_summary_and_every_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let summary = read("docs/SUMMARY.md");
    let mut pages: Vec<_> =
        std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    for page in &pages {
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(
            name == "SUMMARY.md" || summary.contains(&format!("({name})")),
            "{name} is not in the summary"
        );
    }
    pages.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root.join(name)));
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let target = link.split('#').next().unwrap();
            if !target.contains("://") && !target.is_empty() {
                assert!(page.parent().unwrap().join(target).exists(), "{}: {link}", page.display());
            }
        }
    }
}
