//! Writes a file whole, and to a device that is never replaced.

use whole_file::{OutputError, check, is_file, write};

fn main() -> Result<(), OutputError> {
    let path = std::env::temp_dir().join(format!("use-whole-file-{}", std::process::id()));
    check(&path)?;
    write(&path, "content\n")?;
    assert!(is_file(&path)?);
    println!("wrote {}", path.display());
    let _ = std::fs::remove_file(path);
    write("/dev/null", "content\n")
}
