//! Sorts the lines of standard input into a file, a device, a pipe or standard output.
//!
//!     cargo run -p command-line --example sort_lines -- sorted.txt < names.txt
//!     cargo run -p command-line --example sort_lines -- /dev/stdout < names.txt

use std::error::Error;
use std::io::Read;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("give the file to write to")?;
    command_line::files::check(&path)?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let sorted: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
    command_line::files::write(&path, sorted)?;
    Ok(())
}
