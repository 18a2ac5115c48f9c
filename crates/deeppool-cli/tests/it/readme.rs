//! Commands of this crate's README.

use tempfile::TempDir;

use crate::command::{files, succeed};
use crate::pages::{commands, read};

#[test]
fn readme_commands_succeed() {
    let folder = TempDir::new().unwrap();
    let commands = commands(&read("crates/deeppool-cli/README.md"));
    assert_eq!(commands.len(), 4);
    for command in commands {
        let arguments = command.strip_prefix("deeppool ").unwrap();
        let printed = succeed(folder.path(), arguments);
        assert!(!printed.is_empty(), "{command}");
    }
    assert_eq!(files(folder.path()), ["plan.json", "run"]);
}
