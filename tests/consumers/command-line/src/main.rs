//! Looks up names, and writes to a file and a device.

use command_line::files::{OutputError, check, is_file, write};
use command_line::names::{find, hint};

fn main() -> Result<(), OutputError> {
    let known = ["red", "green", "blue"];
    for typed in ["Red", "gren", "purple"] {
        match find(typed, known) {
            Some(name) => println!("{name}"),
            None => println!("`{typed}` is not known{}", hint(typed, known)),
        }
    }
    let path = std::env::temp_dir().join(format!("use-command-line-{}", std::process::id()));
    check(&path)?;
    write(&path, "content\n")?;
    assert!(is_file(&path)?);
    println!("wrote {}", path.display());
    let _ = std::fs::remove_file(path);
    write("/dev/null", "content\n")
}
