//! Names as people type them. A typed name refers to the known name that it equals up to case,
//! spaces and punctuation.

use std::fmt::Display;
use std::path::Path;

use crate::InputError;
use crate::files::read_text_as;

/// Minimum Jaro-Winkler similarity, from 0 to 1, of a typed name and a known name that is suggested
/// for it.
const MIN_SIMILARITY: f64 = 0.85;

/// Returns the known name that equals `typed`, or else the first one that equals it up to case and
/// characters that are neither letters nor digits; `None` if there is neither.
#[must_use]
pub fn find<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut found = None;
    for known in known {
        if known == typed {
            return Some(known);
        }
        if found.is_none() && !plain(typed).is_empty() && plain(known) == plain(typed) {
            found = Some(known);
        }
    }
    found
}

/// Returns the end of an error message about an unknown name: a suggestion, such as "; did you mean
/// `vgg16`?", if one known name is similar and more so than all others, and otherwise an empty
/// string.
#[must_use]
pub fn hint<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let similarity = |known: &'a str| (strsim::jaro_winkler(&plain(typed), &plain(known)), known);
    let mut similar: Vec<(f64, &str)> = known.into_iter().map(similarity).collect();
    similar.sort_by(|a, b| b.0.total_cmp(&a.0));
    match similar[..] {
        [(best, meant), ref others @ ..]
            if best >= MIN_SIMILARITY && others.first().is_none_or(|(next, _)| *next < best) =>
        {
            format!("; did you mean `{meant}`?")
        }
        _ => String::new(),
    }
}

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

fn plain(name: &str) -> String {
    name.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::{find, hint};

    #[test]
    fn names_are_found_up_to_case_and_punctuation() {
        let known = ["a100", "a100-80gb", "inception-v3", "a10-0"];
        for (typed, meant) in [
            ("A100", Some("a100")),
            ("a10-0", Some("a10-0")),
            ("A100_80GB", Some("a100-80gb")),
            ("Inception v3", Some("inception-v3")),
            ("inception", None),
            ("", None),
            ("-", None),
        ] {
            assert_eq!(find(typed, known), meant, "{typed}");
        }
    }

    #[test]
    fn only_a_unique_most_similar_name_is_suggested() {
        assert_eq!(hint("vgg", ["vgg16", "vgg19"]), "");
        assert_eq!(hint("vgg61", ["vgg16", "gpt2"]), "; did you mean `vgg16`?");
        assert_eq!(hint("x", []), "");
    }
}
