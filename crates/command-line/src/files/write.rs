//! Writing of a result, and checks of its path.

use std::io::{ErrorKind, Write};
use std::path::Path;

use super::error::OutputError;
use super::target::Target;

/// Writes `content` as the result at `path`. A file is replaced in one step, so that readers see
/// the old content or the new content.
///
/// A reader of a pipe or of standard output that closes it before the end is no error.
///
/// # Errors
/// Those of [`check`], and [`OutputError::Write`] if writing fails, for example because the disk is
/// full. An existing file then keeps its content.
pub fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<(), OutputError> {
    let (path, content) = (path.as_ref(), content.as_ref());
    let failed = |error| OutputError::Write { path: path.into(), error };
    match Target::of(path)? {
        Target::Stdout => write_all(&mut std::io::stdout().lock(), content).map_err(failed),
        Target::Special => {
            let file = std::fs::OpenOptions::new().append(true).open(path);
            file.and_then(|mut file| write_all(&mut file, content)).map_err(failed)
        }
        Target::File(target) => target.replace(content).map_err(failed),
    }
}

/// Checks that a result can be written to `path`, without changing anything. A pipe is not opened.
///
/// Call it before the work that produces the result.
///
/// # Errors
/// [`OutputError::NoFolder`] if the folder does not exist, [`OutputError::IsFolder`] if `path` is a
/// folder, and [`OutputError::Write`] if no file can be made in the folder.
pub fn check(path: impl AsRef<Path>) -> Result<(), OutputError> {
    let path = path.as_ref();
    match Target::of(path)? {
        Target::Stdout | Target::Special => Ok(()),
        Target::File(target) => {
            target.probe().map_err(|error| OutputError::Write { path: path.into(), error })
        }
    }
}

/// Returns whether [`write()`] would create or replace a regular file at `path`, and not write to a
/// device, a pipe or standard output.
///
/// # Errors
/// [`OutputError::NoFolder`] and [`OutputError::IsFolder`] as [`check`].
pub fn is_file(path: impl AsRef<Path>) -> Result<bool, OutputError> {
    Ok(matches!(Target::of(path.as_ref())?, Target::File(_)))
}

/// Returns whether [`write()`] would write to standard output. False for a path that cannot be
/// used.
#[must_use]
pub fn is_stdout(path: impl AsRef<Path>) -> bool {
    matches!(Target::of(path.as_ref()), Ok(Target::Stdout))
}

/// Writes `content` to a stream and flushes it. A reader that has closed the pipe is no error.
///
/// # Errors
/// That of the operating system.
pub(super) fn write_all(file: &mut impl Write, content: &[u8]) -> std::io::Result<()> {
    match file.write_all(content).and_then(|()| file.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
