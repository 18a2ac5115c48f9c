//! Reading of inputs.

use std::fmt::Display;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use super::target::folder;
use crate::InputError;
use crate::spelling::hint;

/// Maximum number of bytes that are read of anything but a regular file.
const MAX_BYTES: u64 = 256 << 20;

/// Maximum number of files among which a similar name is searched.
const MAX_NAMES: usize = 10_000;

/// Byte order mark, with which some editors begin a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Reads the content of a file. Of anything but a regular file, such as a pipe or a device without
/// end, at most 256 MiB are read.
///
/// # Errors
/// Those of [`std::fs::read`]; for [`ErrorKind::NotFound`] the message suggests a file with a
/// similar name. [`ErrorKind::InvalidData`] if something that is no regular file has more than 256
/// MiB.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    if metadata(path)?.is_file() {
        return std::fs::read(path);
    }
    let mut content = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(ErrorKind::InvalidData, "not a regular file, and longer than 256 MiB"));
    }
    Ok(content)
}

/// Opens a file that is too large to be read whole.
///
/// # Errors
/// Those of [`File::open`]; for [`ErrorKind::NotFound`] the message suggests a file with a similar
/// name.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    metadata(path)?;
    File::open(path)
}

/// Returns the metadata of a path that is no folder.
fn metadata(path: &Path) -> io::Result<Metadata> {
    let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => io::Error::new(ErrorKind::NotFound, missing(path)),
        _ => error,
    })?;
    if metadata.is_dir() {
        return Err(io::Error::new(ErrorKind::IsADirectory, "this is a folder: give a file in it"));
    }
    Ok(metadata)
}

/// Describes that a file does not exist, with the name of a similar one in its folder.
fn missing(path: &Path) -> String {
    let folder = folder(path);
    if !folder.is_dir() {
        return format!("the folder `{}` does not exist: check the path", folder.display());
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names: Vec<String> = names.take(MAX_NAMES).collect();
    let typed = path.file_name().unwrap_or_default().to_string_lossy();
    format!("no such file: check the path{}", hint(&typed, names.iter().map(String::as_str)))
}

/// Reads the content of a text file, as [`read`] does. A byte order mark at its beginning is
/// removed.
///
/// # Errors
/// Those of [`read`], and [`ErrorKind::InvalidData`] if the content is not UTF-8.
pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    let content = read(path)?;
    let is_utf_16 = content.starts_with(b"\xff\xfe") || content.starts_with(b"\xfe\xff");
    let problem =
        if is_utf_16 { "the text is UTF-16: save it as UTF-8" } else { "stream did not contain valid UTF-8" };
    let mut text = String::from_utf8(content).map_err(|_| io::Error::new(ErrorKind::InvalidData, problem))?;
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len_utf8());
    }
    Ok(text)
}

/// Reads a file, as [`read`] does, and returns the value that `parse` makes of its bytes.
///
/// # Errors
/// [`InputError`] with the path, and the error of reading or of `parse`.
pub fn read_as<T, E: Display>(
    path: impl AsRef<Path>,
    parse: impl FnOnce(Vec<u8>) -> Result<T, E>,
) -> Result<T, InputError> {
    let path = path.as_ref();
    let content = read(path).map_err(|error| in_file(path, error))?;
    parse(content).map_err(|error| in_file(path, error))
}

/// Opens a file, as [`open`] does, and returns the value that `parse` makes of it.
///
/// # Errors
/// [`InputError`] with the path, and the error of opening or of `parse`.
pub fn open_as<T, E: Display>(
    path: impl AsRef<Path>,
    parse: impl FnOnce(File) -> Result<T, E>,
) -> Result<T, InputError> {
    let path = path.as_ref();
    let file = open(path).map_err(|error| in_file(path, error))?;
    parse(file).map_err(|error| in_file(path, error))
}

/// Reads a text file, as [`read_to_string`] does, and returns the value that `parse` makes of its
/// text.
///
/// # Errors
/// [`InputError`] with the path, and the error of reading or of `parse`.
pub fn read_text_as<T, E: Display>(
    path: impl AsRef<Path>,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, InputError> {
    let path = path.as_ref();
    let text = read_to_string(path).map_err(|error| in_file(path, error))?;
    parse(&text).map_err(|error| in_file(path, error))
}

fn in_file(path: &Path, reason: impl Display) -> InputError {
    InputError(format!("{}: {reason}", path.display()))
}
