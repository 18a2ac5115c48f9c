//! Names as people type them. A typed name refers to the known name that it equals up to case,
//! spaces and punctuation.

use std::fmt::Display;
use std::path::Path;

use crate::InputError;
use crate::files::read_text_as;
pub use crate::spelling::{find, hint};

/// Returns the result of `get` for the known name that `typed` refers to, as [`find`] finds it.
///
/// If there is none, `get` is called with `typed` itself, and a suggestion is appended to its
/// error.
///
/// ```
/// use command_line::names::get_by_name;
///
/// let side = |name: &str| match name {
///     "left" => Ok(-1),
///     "right" => Ok(1),
///     _ => Err(format!("unknown side `{name}`")),
/// };
/// assert_eq!(get_by_name("Left", ["left", "right"], side)?, -1);
/// let error = get_by_name("rihgt", ["left", "right"], side).unwrap_err();
/// assert_eq!(error.to_string(), "unknown side `rihgt`; did you mean `right`?");
/// # Ok::<(), command_line::InputError>(())
/// ```
///
/// # Errors
/// The error of `get`, as an [`InputError`].
pub fn get_by_name<T, E: Display>(
    typed: &str,
    known: impl IntoIterator<Item = impl AsRef<str>>,
    get: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, InputError> {
    let known: Vec<_> = known.into_iter().collect();
    let names = || known.iter().map(AsRef::as_ref);
    match find(typed, names()) {
        Some(name) => get(name).map_err(|error| InputError(error.to_string())),
        None => get(typed).map_err(|error| InputError(format!("{error}{}", hint(typed, names())))),
    }
}

/// Returns the value of a known name as [`get_by_name`] does, or the value that `parse` makes of
/// the text of a file.
///
/// The argument is a file if it ends in `.json`, or if it is the path of an existing file and no
/// known name.
///
/// # Errors
/// Those of [`get_by_name`] and [`read_text_as`].
pub fn get_by_name_or_file<T, E: Display>(
    typed: &str,
    known: impl IntoIterator<Item = impl AsRef<str>>,
    get: impl FnOnce(&str) -> Result<T, E>,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, InputError> {
    let path = Path::new(typed);
    if path.extension().is_some_and(|extension| extension == "json") {
        return read_text_as(path, parse);
    }
    get_by_name(typed, known, get)
        .or_else(|unknown| if path.exists() { read_text_as(path, parse) } else { Err(unknown) })
}
