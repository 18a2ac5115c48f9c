//! JSON text with bounded strings and a bounded depth, so that a damaged file is rejected before it
//! fills the memory.

use std::io::{self, Read};

/// Maximum number of bytes of a string.
const MAX_STRING: usize = 1 << 20;

/// Maximum number of nested arrays and objects.
const MAX_DEPTH: usize = 100;

/// Reader of JSON text that fails at a string of more than 1 MiB and at more than 100 nested arrays
/// and objects.
pub(super) struct BoundedText<R> {
    text: R,
    in_string: bool,
    is_escaped: bool,
    /// Length of the current string in bytes.
    length: usize,
    depth: usize,
}

impl<R: Read> BoundedText<R> {
    /// Creates a reader of the given text.
    pub(super) fn new(text: R) -> Self {
        Self { text, in_string: false, is_escaped: false, length: 0, depth: 0 }
    }

    fn check(&mut self, byte: u8) -> io::Result<()> {
        if self.in_string {
            self.length += 1;
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.in_string = false,
                _ if self.length > MAX_STRING => return Err(invalid("a string of more than 1 MiB")),
                _ => {}
            }
            return Ok(());
        }
        match byte {
            b'"' => (self.in_string, self.length) = (true, 0),
            b'[' | b'{' => {
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(invalid("more than 100 nested arrays and objects"));
                }
            }
            b']' | b'}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        Ok(())
    }
}

impl<R: Read> Read for BoundedText<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.text.read(buffer)?;
        for &byte in &buffer[..count] {
            self.check(byte)?;
        }
        Ok(count)
    }
}

fn invalid(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> io::Result<String> {
        let mut read = String::new();
        BoundedText::new(text.as_bytes()).read_to_string(&mut read).map(|_| read)
    }

    #[test]
    fn text_within_the_bounds_is_unchanged() {
        let text = format!("{{\"[[{}\\\"\": {}{}}}", "[".repeat(200), "[".repeat(99), "]".repeat(99));
        assert_eq!(read(&text).unwrap(), text);
    }

    #[test]
    fn long_strings_and_deep_nesting_are_errors() {
        let error = read(&format!("\"\\\"{}\"", "x".repeat(MAX_STRING))).unwrap_err();
        assert_eq!(error.to_string(), "a string of more than 1 MiB");
        let error = read(&"[{".repeat(51)).unwrap_err();
        assert_eq!(error.to_string(), "more than 100 nested arrays and objects");
    }
}
