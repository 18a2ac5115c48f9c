//! Commands of the READMEs and of the book.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Experiments that run in a second or two.
const FAST: [&str; 5] = ["list", "fig7", "plans", "partition", "published"];

/// A command line of a page.
struct PageCommand {
    /// Page and line number.
    place: String,
    /// Whether the command builds the program with features.
    has_features: bool,
    /// Arguments of the program.
    arguments: Vec<String>,
}

/// Returns the READMEs and the pages of the book.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pages = vec![root.join("README.md"), root.join("experiments/README.md")];
    let book = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    pages.extend(book.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    pages.sort();
    pages
}

/// Returns the command of a line such as `$ cargo run -p experiments -- plans  # comment`.
fn command(line: &str) -> Option<(bool, Vec<String>)> {
    let line = line.trim_start().trim_start_matches("$ ");
    let (cargo, program) = line.split_once(" -- ")?;
    if !cargo.starts_with("cargo run") || !cargo.contains("-p experiments") {
        return None;
    }
    let words = program.split_whitespace().take_while(|word| !word.starts_with('#'));
    Some((cargo.contains("--features"), words.map(str::to_owned).collect()))
}

fn commands() -> Vec<PageCommand> {
    let mut commands = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for (number, line) in (1..).zip(text.lines()) {
            if let Some((has_features, arguments)) = command(line) {
                let place = format!("{}:{number}", page.display());
                commands.push(PageCommand { place, has_features, arguments });
            }
        }
    }
    commands
}

/// `--help` at the end makes the program parse its command line and exit.
#[test]
fn commands_of_the_pages_are_valid() {
    let commands = commands();
    assert!(commands.len() > 10, "{} commands", commands.len());
    for PageCommand { place, has_features, arguments } in commands {
        let output =
            Command::new(env!("CARGO_BIN_EXE_experiments")).args(&arguments).arg("--help").output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let needs_a_feature = has_features && stderr.contains("--features");
        assert!(output.status.success() || needs_a_feature, "{place}: {arguments:?}: {stderr}");
    }
}

#[test]
fn fast_commands_of_the_pages_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut commands: Vec<PageCommand> =
        commands().into_iter().filter(|command| FAST.contains(&command.arguments[0].as_str())).collect();
    commands.sort_by(|a, b| a.arguments.cmp(&b.arguments));
    commands.dedup_by(|a, b| a.arguments == b.arguments);
    assert!(commands.len() >= FAST.len());
    for PageCommand { place, arguments, .. } in commands {
        let mut command = Command::new(env!("CARGO_BIN_EXE_experiments"));
        command.args(&arguments);
        if arguments[0] != "list" {
            command.arg("--out").arg(folder.path());
        }
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !output.stdout.is_empty(), "{place}: {stderr}");
    }
}

#[test]
fn invalid_commands_are_found() {
    let (_, arguments) =
        command("    $ cargo run --release -p experiments -- plans --gpu 4   # a misspelling").unwrap();
    assert_eq!(arguments, ["plans", "--gpu", "4"]);
    let output =
        Command::new(env!("CARGO_BIN_EXE_experiments")).args(arguments).arg("--help").output().unwrap();
    assert!(!output.status.success());
    assert!(command("cargo run --release -p deeppool-cli -- models").is_none());
}
