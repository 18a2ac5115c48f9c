//! Where results go, and how figures are shown.

use std::fmt::Arguments;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use command_line::files::Printer;
use serde_json::Value;

/// A table whose first column is text and whose others are figures.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A time in a unit that suits it.
pub(crate) fn time(time: Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    match us {
        us if us < 1e3 => format!("{us:.1} us"),
        us if us < 1e6 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

pub(crate) fn micros(us: f64) -> String {
    time(Duration::from_secs_f64((us / 1e6).max(0.0)))
}

/// A time with its unit, such as `12ms`, in microseconds.
pub(crate) fn parse_micros(text: &str) -> Result<f64, String> {
    // The unit `s` ends the other two, and is therefore last.
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    let parsed = units.iter().find_map(|(unit, us)| {
        let number = text.strip_suffix(unit)?.trim_end().parse::<f64>().ok()?;
        Some(number * us)
    });
    let is_time = |us: &f64| us.is_finite() && *us > 0.0;
    parsed
        .filter(is_time)
        .ok_or_else(|| "expected a time above 0 with its unit, such as 12ms, 800us or 1.5s".into())
}

/// Ranks as a range where they are one, such as `0 to 3`.
pub(crate) fn ranks(ranks: &[usize]) -> String {
    let listed = || ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
    match ranks {
        [first, .., last] if ranks.windows(2).all(|pair| pair[0] + 1 == pair[1]) => {
            format!("{first} to {last}")
        }
        _ => listed(),
    }
}

/// Bytes in a unit that suits them.
pub(crate) fn byte_size(bytes: u64) -> String {
    match bytes as f64 {
        bytes if bytes < 1e3 => format!("{bytes} B"),
        bytes if bytes < 1e6 => format!("{:.1} kB", bytes / 1e3),
        bytes if bytes < 1e9 => format!("{:.1} MB", bytes / 1e6),
        bytes => format!("{:.2} GB", bytes / 1e9),
    }
}

/// A number of GPUs, such as `1 GPU` or `8 GPUs`.
pub(crate) fn gpus(count: usize) -> String {
    if count == 1 { "1 GPU".into() } else { format!("{count} GPUs") }
}

/// A rate in samples by second.
pub(crate) fn rate(samples_per_s: f64) -> String {
    format!("{samples_per_s:.0} samples/s")
}

/// As `println!`, but to a reader that may go away before the end, such as `head`.
macro_rules! say {
    () => { $crate::output::write_line(format_args!("")) };
    ($($text:tt)*) => { $crate::output::write_line(format_args!($($text)*)) };
}
pub(crate) use say;

/// Whether a result goes to standard output.
static STDOUT_IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Checks where results are to go, before any work. Where one goes to standard output, what is said to people goes to standard error.
pub(crate) fn check_outputs<'a>(
    paths: impl IntoIterator<Item = &'a PathBuf>,
    json: bool,
) -> anyhow::Result<()> {
    let is_taken = command_line::files::check_all(paths, json)? == Printer::Stderr;
    STDOUT_IS_TAKEN.fetch_or(is_taken, Ordering::Relaxed);
    Ok(())
}

/// Prints a line. Where standard output cannot be written to, the command ends: there is nobody to say anything to.
pub(crate) fn write_line(line: Arguments<'_>) {
    let printer = if STDOUT_IS_TAKEN.load(Ordering::Relaxed) { Printer::Stderr } else { Printer::Stdout };
    if let Err(error) = printer.line(line) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

/// Prints one JSON object on stdout.
pub(crate) fn print_json(value: &Value) {
    say!("{value:#}");
}

pub(crate) fn save_json(path: &Path, value: &Value) -> anyhow::Result<()> {
    Ok(command_line::files::write(path, format!("{value:#}\n"))?)
}
