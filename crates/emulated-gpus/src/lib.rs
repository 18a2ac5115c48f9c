#![doc = include_str!("../README.md")]
#[cfg(feature = "open")]
mod clock;
#[cfg(feature = "open")]
mod open;

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

#[cfg(feature = "open")]
pub use clock::EmulatedClock;
#[cfg(feature = "open")]
pub use open::{OpenError, open};
use thiserror::Error;

/// The variable that says how many emulated GPUs there are: 1 to 8, or 0 for those of the machine.
pub const NUMBER_VARIABLE: &str = "DEEPPOOL_EMULATED_GPUS";

/// The variable that says which file the library is.
pub const LIBRARY_VARIABLE: &str = "CUDA_EMULATOR_LIBRARY";

/// There is no library where it is looked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}: {why}; build `{PACKAGE}`, or set {LIBRARY_VARIABLE} to the library's file", path.display())]
pub struct NotFound {
    /// The file that is lacking.
    pub path: PathBuf,
    why: String,
}

/// The package that the library comes from, and the library's name as Cargo makes it.
const PACKAGE: &str = "cuda-emulator";
const LIBRARY: &str = "cuda_emulator";

/// The library to open in place of CUDA's driver and of NCCL, if `DEEPPOOL_EMULATED_GPUS` asks for emulated GPUs.
///
/// # Errors
/// [`NotFound`], in one line: what was looked for, and what to do.
pub fn library() -> Result<Option<PathBuf>, NotFound> {
    match env::var_os(NUMBER_VARIABLE) {
        Some(number) if asks(&number) => find().map(Some),
        _ => Ok(None),
    }
}

/// Where the library is, whether or not it is asked for: in the variable `CUDA_EMULATOR_LIBRARY`; or else beside the running program or in
/// the folder `deps` beside it, or in the folder above.
///
/// # Errors
/// [`NotFound`], in one line: what was looked for, and what to do.
pub fn find() -> Result<PathBuf, NotFound> {
    if let Some(path) = env::var_os(LIBRARY_VARIABLE).map(PathBuf::from) {
        let why = format!("{LIBRARY_VARIABLE} names this file, and it is not there");
        return if path.is_file() { Ok(path) } else { Err(NotFound { path, why }) };
    }
    let name = format!("{}{LIBRARY}{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let program = env::current_exe().unwrap_or_default();
    let folder = program.parent().unwrap_or(Path::new("."));
    let above = folder.parent().unwrap_or(folder);
    let places = [folder.join(&name), folder.join("deps").join(&name), above.join(&name)];
    places.into_iter().find(|path| path.is_file()).ok_or_else(|| NotFound {
        path: folder.join(&name),
        why: "the library of the emulated GPUs is neither here nor in the folder above".to_owned(),
    })
}

/// Whether a value of the variable asks for emulated GPUs: what is no number is for the library to refuse.
fn asks(number: &OsStr) -> bool {
    !number.is_empty() && number != "0"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_and_zero_are_the_machines_own() {
        assert_eq!(
            ["", "0", "1", "8", "many"].map(|number| asks(OsStr::new(number))),
            [false, false, true, true, true]
        );
    }

    #[test]
    fn what_is_lacking_is_one_line_with_a_way_out() {
        // This crate's tests do not build the library.
        let message =
            find().map_or_else(|error| error.to_string(), |path| format!("found {}", path.display()));
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.starts_with("found ") || message.contains(LIBRARY_VARIABLE), "{message}");
    }
}
