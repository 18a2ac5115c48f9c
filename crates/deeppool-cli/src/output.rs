//! Output of results, and formatting of figures. A result is a file that a command writes, and a
//! message is a line that it prints.

use std::fmt::Arguments;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use command_line::files::Printer;
use serde_json::Value;

/// Returns an empty text table with the given header, a left-aligned first column and right-aligned
/// others.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Formats a time in us, ms or s.
pub(crate) fn time(time: Duration) -> String {
    micros(time.as_secs_f64() * 1e6)
}

/// Formats a time, given in microseconds, in us, ms or s. A negative time is shown as 0.
pub(crate) fn micros(us: f64) -> String {
    match us.max(0.0) {
        us if us < 1e3 => format!("{us:.1} us"),
        us if us < 1e6 => format!("{:.2} ms", us / 1e3),
        us if us < 1e15 => format!("{:.2} s", us / 1e6),
        us => format!("{:.2e} s", us / 1e6),
    }
}

/// Parses a time with its unit (us, ms or s), such as `12ms`, and returns it in microseconds.
///
/// # Errors
/// A message if it is not a time above 0 with a unit.
pub(crate) fn parse_micros(text: &str) -> Result<f64, String> {
    // `s` is last, because it is a suffix of the other units.
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

/// Formats ranks as a range, such as `0 to 3`, if they are consecutive and at least two, or as a
/// list.
pub(crate) fn ranks(ranks: &[usize]) -> String {
    let listed = || ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
    match ranks {
        [first, .., last] if ranks.windows(2).all(|pair| pair[0] + 1 == pair[1]) => {
            format!("{first} to {last}")
        }
        _ => listed(),
    }
}

/// Formats a number of bytes in B, kB, MB or GB (powers of 1000).
pub(crate) fn byte_size(bytes: u64) -> String {
    match bytes as f64 {
        bytes if bytes < 1e3 => format!("{bytes} B"),
        bytes if bytes < 1e6 => format!("{:.1} kB", bytes / 1e3),
        bytes if bytes < 1e9 => format!("{:.1} MB", bytes / 1e6),
        bytes => format!("{:.2} GB", bytes / 1e9),
    }
}

/// Formats a number of GPUs: `1 GPU`, `8 GPUs`.
pub(crate) fn gpus(count: usize) -> String {
    if count == 1 { "1 GPU".into() } else { format!("{count} GPUs") }
}

/// Formats a rate in samples per second, rounded to a whole number.
pub(crate) fn rate(samples_per_s: f64) -> String {
    format!("{samples_per_s:.0} samples/s")
}

/// Prints a message like `println!`, to standard error if a result goes to standard output. A
/// reader that closes the pipe early, such as `head`, is no error.
macro_rules! print_message {
    () => { $crate::output::write_line(format_args!("")) };
    ($($text:tt)*) => { $crate::output::write_line(format_args!($($text)*)) };
}
pub(crate) use print_message;

/// Whether a result goes to standard output, so that messages go to standard error.
static RESULT_ON_STDOUT: AtomicBool = AtomicBool::new(false);

/// Checks before any work that results can be written to the given paths. If one is standard
/// output, later messages go to standard error. `json` says whether the command prints a JSON
/// object.
///
/// # Errors
/// If a path cannot be written to, two results have the same path, or one goes to standard output
/// beside the JSON object.
pub(crate) fn check_outputs<'a>(
    paths: impl IntoIterator<Item = &'a PathBuf>,
    json: bool,
) -> anyhow::Result<()> {
    let is_stdout = command_line::files::check_all(paths, json)? == Printer::Stderr;
    RESULT_ON_STDOUT.fetch_or(is_stdout, Ordering::Relaxed);
    Ok(())
}

/// Prints a message, for the macro `print_message`. Exits the process with code 1 if standard
/// output cannot be written to.
pub(crate) fn write_line(line: Arguments<'_>) {
    let printer = if RESULT_ON_STDOUT.load(Ordering::Relaxed) { Printer::Stderr } else { Printer::Stdout };
    if let Err(error) = printer.line(line) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

/// Prints one indented JSON object.
pub(crate) fn print_json(value: &Value) {
    print_message!("{value:#}");
}

/// Writes one indented JSON value and a line break to a file.
///
/// # Errors
/// If writing fails.
pub(crate) fn save_json(path: &Path, value: &Value) -> anyhow::Result<()> {
    Ok(command_line::files::write(path, format!("{value:#}\n"))?)
}
