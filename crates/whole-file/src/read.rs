use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// What is read of something that is no file.
const MOST_BYTES: u64 = 256 << 20;

/// Reads a file whole. What is no file, such as a pipe, is read up to 256 MiB, since some devices have no end.
///
/// # Errors
/// As [`std::fs::read`], and [`ErrorKind::InvalidData`] when what is no file goes on beyond that.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    if std::fs::metadata(path)?.is_file() {
        return std::fs::read(path);
    }
    let mut content = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MOST_BYTES {
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            "this is no file, and goes on for more than 256 MiB",
        ));
    }
    Ok(content)
}

/// The same of text.
///
/// # Errors
/// Those of [`read`], and [`ErrorKind::InvalidData`] when it is not in UTF-8.
pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    let not_text = |_| io::Error::new(ErrorKind::InvalidData, "stream did not contain valid UTF-8");
    String::from_utf8(read(path)?).map_err(not_text)
}
