//! Emulated GPUs: a library that this crate opens in place of CUDA's driver and NCCL.
//!
//! With `DEEPPOOL_EMULATED_GPUS=4` in its environment, a program has four emulated GPUs. The
//! library reads the number itself.

mod clock;

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

pub use clock::EmulatedClock;

use crate::{Error, Result};

/// Name of the environment variable with the number of emulated GPUs: 1 to 8. The GPUs of the
/// machine are used if it is 0, empty or not set.
pub const NUMBER_VARIABLE: &str = "DEEPPOOL_EMULATED_GPUS";

/// Name of the environment variable with the path of the library of emulated GPUs.
pub const LIBRARY_VARIABLE: &str = "CUDA_EMULATOR_LIBRARY";

/// Name of a function that only the library of emulated GPUs has.
pub(crate) const OWN_FUNCTION: &str = "cuda_emulator_now";

/// Package of the library.
const PACKAGE: &str = "cuda-emulator";
/// File name of the library, without prefix and extension.
const LIBRARY: &str = "cuda_emulator";

/// Returns the path of the library of emulated GPUs, or `None` if `DEEPPOOL_EMULATED_GPUS` requests
/// no emulated GPUs.
///
/// # Errors
/// [`Error::Unavailable`] if emulated GPUs are requested and the library does not exist.
pub fn library() -> Result<Option<PathBuf>> {
    match env::var_os(NUMBER_VARIABLE) {
        Some(number) if requests_gpus(&number) => find().map(Some),
        _ => Ok(None),
    }
}

/// Returns the path of the library of emulated GPUs, whether or not emulated GPUs are requested.
///
/// It is the path in `CUDA_EMULATOR_LIBRARY`, or else a file in the folder of the running program,
/// in the folder `deps` beside it, or in the folder above.
///
/// # Errors
/// [`Error::Unavailable`] if the library does not exist.
pub fn find() -> Result<PathBuf> {
    if let Some(path) = env::var_os(LIBRARY_VARIABLE).map(PathBuf::from) {
        let reason = || format!("{LIBRARY_VARIABLE} names this file, and it is not there");
        return if path.is_file() { Ok(path) } else { Err(not_found(&path, &reason())) };
    }
    let name = format!("{}{LIBRARY}{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let program = env::current_exe().unwrap_or_default();
    let folder = program.parent().unwrap_or(Path::new("."));
    let above = folder.parent().unwrap_or(folder);
    let places = [folder.join(&name), folder.join("deps").join(&name), above.join(&name)];
    places.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        not_found(
            &folder.join(&name),
            "the library of the emulated GPUs is neither here nor in the folder above",
        )
    })
}

fn not_found(path: &Path, reason: &str) -> Error {
    let path = path.display();
    unavailable(format!(
        "{path}: {reason}; build `{PACKAGE}`, or set {LIBRARY_VARIABLE} to the library's file"
    ))
}

fn unavailable(reason: String) -> Error {
    Error::Unavailable { library: "the library of emulated GPUs", reason }
}

/// Returns whether a value of the variable requests emulated GPUs. The library rejects values that
/// are no numbers.
fn requests_gpus(number: &OsStr) -> bool {
    !number.is_empty() && number != "0"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_and_zero_request_no_emulated_gpus() {
        assert_eq!(
            ["", "0", "1", "8", "many"].map(|number| requests_gpus(OsStr::new(number))),
            [false, false, true, true, true]
        );
    }

    #[test]
    fn not_found_is_one_line_that_names_the_variable() {
        // The library may or may not have been built.
        let message =
            find().map_or_else(|error| error.to_string(), |path| format!("found {}", path.display()));
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.starts_with("found ") || message.contains(LIBRARY_VARIABLE), "{message}");
    }
}
