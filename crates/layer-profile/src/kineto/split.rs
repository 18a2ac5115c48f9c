//! Division of the text of a trace into its events, so that one of them is in memory at a time.

use std::io::{ErrorKind, Read};

/// Maximum number of bytes of an event.
const MAX_EVENT: usize = 4 << 20;

/// Maximum number of bytes of the text beside the events.
const MAX_REST: usize = 64 << 20;

/// Passes the text of each object in the list `traceEvents` of a JSON object to `event`, which
/// returns an error message if it is invalid. Returns the text with `{}` in place of these objects.
/// It is not checked.
///
/// # Errors
/// A message if reading fails, an event is invalid or incomplete, an event has more than 4 MiB, or
/// the rest of the text has more than 64 MiB. The message names the event.
pub(super) fn split_events(
    mut text: impl Read,
    mut event: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<Vec<u8>, String> {
    let mut buffer = vec![0u8; 1 << 16];
    let (mut splitter, mut count) = (Splitter::default(), 0);
    loop {
        let read = match text.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.to_string()),
        };
        let mut chunk = &buffer[..read];
        while let Some(rest) = splitter.next(chunk) {
            let of_event = |problem| format!("`traceEvents[{count}]`: {problem}");
            event(&splitter.event).map_err(of_event)?;
            splitter.event.clear();
            count += 1;
            chunk = rest;
        }
        if splitter.event.len() > MAX_EVENT {
            return Err(format!("`traceEvents[{count}]`: more than 4 MiB"));
        }
        if splitter.rest.len() > MAX_REST {
            return Err("more than 64 MiB beside the events".into());
        }
    }
    if splitter.region == Region::Event {
        return Err(format!("`traceEvents[{count}]`: EOF while parsing an event"));
    }
    Ok(splitter.rest)
}

/// Part of the text.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Region {
    /// Beside the list of events.
    #[default]
    Beside,
    /// Between events.
    Between,
    /// In an event.
    Event,
}

/// State of the division.
#[derive(Default)]
struct Splitter {
    /// Number of arrays and objects that are open.
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
    region: Region,
    /// Text of the current event so far.
    event: Vec<u8>,
    /// Text beside the events so far.
    rest: Vec<u8>,
}

impl Splitter {
    /// Takes text up to the end of an event. Returns the text after it, or `None` if all of the
    /// text was taken and no event ended.
    fn next<'a>(&mut self, text: &'a [u8]) -> Option<&'a [u8]> {
        let (mut start, mut i) = (0, 0);
        while i < text.len() {
            if self.is_in_string {
                i += self.end_of_string(&text[i..]);
                continue;
            }
            match text[i] {
                b'"' => self.is_in_string = true,
                b'{' if self.region == Region::Between && self.depth == 2 => {
                    self.keep(&text[start..i]);
                    self.rest.extend(b"{}");
                    (start, self.region) = (i, Region::Event);
                    self.depth += 1;
                }
                b'[' if self.depth == 1 => {
                    self.keep(&text[start..i]);
                    start = i;
                    if is_key_of_events(&self.rest) {
                        self.region = Region::Between;
                    }
                    self.depth += 1;
                }
                b'[' | b'{' => self.depth += 1,
                b']' | b'}' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.region == Region::Event && self.depth == 2 {
                        self.keep(&text[start..=i]);
                        self.region = Region::Between;
                        return Some(&text[i + 1..]);
                    }
                    if self.depth < 2 {
                        self.keep(&text[start..i]);
                        (start, self.region) = (i, Region::Beside);
                    }
                }
                _ => {}
            }
            i += 1;
        }
        self.keep(&text[start..]);
        None
    }

    /// Returns the number of bytes of a string that are taken: up to its end, an escaped character
    /// or the end of the text.
    fn end_of_string(&mut self, text: &[u8]) -> usize {
        if self.is_escaped {
            self.is_escaped = false;
            return 1;
        }
        match text.iter().position(|&byte| byte == b'"' || byte == b'\\') {
            Some(end) => {
                self.is_escaped = text[end] == b'\\';
                self.is_in_string = self.is_escaped;
                end + 1
            }
            None => text.len(),
        }
    }

    /// Keeps text of the current event, or beside the events. Between events, white space is left
    /// out.
    fn keep(&mut self, text: &[u8]) {
        match self.region {
            Region::Event => self.event.extend(text),
            Region::Between => self.rest.extend(text.iter().filter(|byte| !byte.is_ascii_whitespace())),
            Region::Beside => self.rest.extend(text),
        }
    }
}

/// Returns whether a text ends in the key of the list of events.
fn is_key_of_events(text: &[u8]) -> bool {
    let key = text.trim_ascii_end().strip_suffix(b":").map(<[u8]>::trim_ascii_end);
    key.is_some_and(|key| key.ends_with(b"\"traceEvents\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reader that returns one byte at a time.
    struct Bytewise<'a>(&'a [u8]);

    impl Read for Bytewise<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.0.len().min(1);
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn split(text: &str) -> Result<(Vec<String>, String), String> {
        let mut events = Vec::new();
        let mut add = |event: &[u8]| {
            events.push(String::from_utf8(event.to_vec()).unwrap());
            Ok(())
        };
        let rest = split_events(Bytewise(text.as_bytes()), &mut add)?;
        let whole = split_events(text.as_bytes(), |_| Ok(()))?;
        assert_eq!(rest, whole);
        Ok((events, String::from_utf8(rest).unwrap()))
    }

    #[test]
    fn events_are_separated_from_the_rest() {
        let text = r#"{"a": [{"x": 1}], "traceEvents" : [
            {"name": "}\"{", "args": {"b": [{}, [2]]}}, 7,
            {} ], "traceName": "\\"}"#;
        let (events, rest) = split(text).unwrap();
        assert_eq!(events, [r#"{"name": "}\"{", "args": {"b": [{}, [2]]}}"#, "{}"]);
        assert_eq!(rest, r#"{"a": [{"x": 1}], "traceEvents" : [{},7,{}], "traceName": "\\"}"#);
    }

    #[test]
    fn incomplete_and_long_events_are_errors() {
        let error = split(r#"{"traceEvents": [{}, {"name": ["#).unwrap_err();
        assert_eq!(error, "`traceEvents[1]`: EOF while parsing an event");
        let long = format!("{{\"traceEvents\": [{{\"name\": \"{}", "x".repeat(5 << 20));
        assert_eq!(
            split_events(long.as_bytes(), |_| Ok(())).unwrap_err(),
            "`traceEvents[0]`: more than 4 MiB"
        );
        let invalid = split_events(&b"{\"traceEvents\": [{}]}"[..], |_| Err("no".into()));
        assert_eq!(invalid.unwrap_err(), "`traceEvents[0]`: no");
    }
}
