//! Sorts the lines of standard input into a file, or whatever else the path stands for.
//!
//!     cargo run -p whole-file --example sort_lines -- sorted.txt < names.txt
//!     cargo run -p whole-file --example sort_lines -- /dev/stdout < names.txt

use std::error::Error;
use std::io::Read;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("give the file to write to")?;
    // Before the work: a folder that does not exist is found now.
    whole_file::check(&path)?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let sorted: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
    whole_file::write(&path, sorted)?;
    Ok(())
}
