//! Finds and opens the library of the CUDA driver (`libcuda.so`). If a call of the opened driver
//! fails, functions return the error of that call.
#![allow(unsafe_code)]

use std::env;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::Library;

use super::error::{Error, Result};
use super::result::{Driver, written};
use super::sys::Functions;

/// Environment variable with the path of the CUDA driver.
const PATH_VARIABLE: &str = "GPU_MUX_CUDA";

/// Part of the dynamic loader's message for a missing file.
const NOT_FOUND: &str = "No such file";

/// Opened and initialized CUDA driver. It is never closed.
#[derive(Debug, Clone)]
pub struct CudaLibrary {
    /// Functions of the CUDA driver.
    pub(super) driver: Arc<Driver>,
}

impl CudaLibrary {
    /// Opens the CUDA driver. If the environment variable `GPU_MUX_CUDA` is set, opens the file
    /// that it names and no other; otherwise the emulated driver, if `DEEPPOOL_EMULATED_GPUS`
    /// requests it; otherwise `libcuda.so.1` or `libcuda.so` on the loader's search path.
    ///
    /// # Errors
    /// [`Error::Unavailable`], which names what was looked for, where, and the remedy.
    pub fn open() -> Result<Self> {
        if let Some(path) = env::var_os(PATH_VARIABLE) {
            return Self::open_first_of(&[PathBuf::from(path)]);
        }
        match emulated_gpus::library().map_err(|error| Error::Unavailable(error.to_string()))? {
            Some(path) => Self::open_first_of(&[path]),
            None => Self::open_first_of(&["libcuda.so.1".into(), "libcuda.so".into()]),
        }
    }

    /// Opens the first of these files that exists. A name without a directory is looked for on the
    /// loader's search path.
    ///
    /// # Errors
    /// [`Error::Unavailable`]. A file that exists but cannot be used ends the search.
    pub fn open_first_of(candidates: &[PathBuf]) -> Result<Self> {
        for path in candidates {
            // SAFETY: a library with the driver's name is trusted to have the driver's
            // initializers.
            match unsafe { Library::new(path) } {
                Ok(library) => return Self::from_library(&ManuallyDrop::new(library), path),
                Err(error) => {
                    let error = std::error::Error::source(&error)
                        .map_or_else(|| error.to_string(), ToString::to_string);
                    // The file may exist and lack a dependency; then the loader's message names the
                    // dependency.
                    if path.exists()
                        || !(error.starts_with(&*path.to_string_lossy()) && error.contains(NOT_FOUND))
                    {
                        return Err(unusable(path, &error));
                    }
                }
            }
        }
        let places: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
        Err(Error::Unavailable(format!(
            "the library was not found: looked for {} on the loader's search path (LD_LIBRARY_PATH and \
             the system directories); install the NVIDIA driver, or set {PATH_VARIABLE} to its file",
            places.join(", ")
        )))
    }

    /// Initializes the driver. It is not closed, because its threads outlive any context.
    fn from_library(library: &ManuallyDrop<Library>, path: &Path) -> Result<Self> {
        // SAFETY: it has the driver's name, and is never dropped.
        let functions = unsafe { Functions::load(library) }
            .map_err(|lacking| unusable(path, &format!("it has no {}", lacking.join(", "))))?;
        let driver = Driver::new(functions);
        // SAFETY: zero is the only valid value of the flags.
        unsafe { driver.init(0) }.map_err(|error| Error::Unavailable(error.to_string()))?;
        Ok(Self { driver: Arc::new(driver) })
    }

    /// Returns the number of CUDA devices of this host.
    pub fn devices(&self) -> Result<usize> {
        // SAFETY: the count is written.
        let count = written(|count| unsafe { self.driver.device_count(count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Returns the latest CUDA version that the driver supports: 13000 is 13.0.
    pub fn version(&self) -> Result<u32> {
        // SAFETY: the version is written.
        let version = written(|version| unsafe { self.driver.driver_version(version) })?;
        Ok(version.unsigned_abs())
    }
}

fn unusable(path: &Path, reason: &str) -> Error {
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    Error::Unavailable(format!("{} cannot be used as CUDA's driver: {reason}", path.display()))
}
