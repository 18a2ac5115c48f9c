//! Error messages of commands.

/// Returns a message as one line, without clap's usage text and its pointer to `--help`.
#[must_use]
pub fn one_line(message: &str) -> String {
    let is_end = |line: &str| line.starts_with("Usage:") || line.starts_with("For more information, try");
    let lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut joined = String::new();
    for line in lines.take_while(|line| !is_end(line)) {
        let (separator, line) = match line.strip_prefix("tip: ") {
            Some(tip) => ("; ", tip),
            None if joined.is_empty() => ("", line),
            None => (" ", line),
        };
        joined.push_str(separator);
        joined.push_str(line);
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn messages_are_one_line() {
        assert_eq!(one_line("one\n\n  two\r\nthree\n"), "one two three");
        assert_eq!(one_line("bad\n\n  tip: use x\n\nUsage: a\nb"), "bad; use x");
        assert_eq!(one_line("bad\n\nFor more information, try '--help'.\n"), "bad");
        assert_eq!(one_line(""), "");
    }
}
