//! Finding and opening CUDA's driver.
#![allow(unsafe_code)]

use std::env;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::Library;

use super::error::{Error, Result};
use super::result::{Driver, written};
use super::sys::Functions;

/// The variable that names the driver's file.
const PATH_VARIABLE: &str = "GPU_MUX_CUDA";

/// How the loader says that there is no file.
const NOT_FOUND: &str = "No such file";

/// CUDA's driver, opened, initialised and never closed.
#[derive(Debug, Clone)]
pub struct CudaLibrary {
    pub(super) driver: Arc<Driver>,
}

impl CudaLibrary {
    /// Opens the file that the variable `GPU_MUX_CUDA` names, and no other if it is set; or else the emulated driver, if
    /// `DEEPPOOL_EMULATED_GPUS` asks for it; or else `libcuda.so.1`, or `libcuda.so`, where the loader looks.
    ///
    /// # Errors
    /// [`Error::Unavailable`], in one line: what was looked for, where, and what to do.
    pub fn open() -> Result<Self> {
        if let Some(path) = env::var_os(PATH_VARIABLE) {
            return Self::open_first_of(&[PathBuf::from(path)]);
        }
        match emulated_gpus::library().map_err(|error| Error::Unavailable(error.to_string()))? {
            Some(path) => Self::open_first_of(&[path]),
            None => Self::open_first_of(&["libcuda.so.1".into(), "libcuda.so".into()]),
        }
    }

    /// Opens the first of these files that there is. A name without a folder is looked for where the loader looks.
    ///
    /// # Errors
    /// As [`open`](Self::open). A file that is there but cannot be used ends the search.
    pub fn open_first_of(candidates: &[PathBuf]) -> Result<Self> {
        for path in candidates {
            // SAFETY: the initialisers of a library that calls itself CUDA's driver are taken to be the driver's.
            match unsafe { Library::new(path) } {
                Ok(library) => return Self::from_library(&ManuallyDrop::new(library), path),
                Err(error) => {
                    let error = std::error::Error::source(&error)
                        .map_or_else(|| error.to_string(), ToString::to_string);
                    // Not there, or there and without something that it needs: the loader names what it misses.
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
            "the library was not found: looked for {} where the loader looks (LD_LIBRARY_PATH, the system's folders); \
             install the NVIDIA driver, or set {PATH_VARIABLE} to its file",
            places.join(", ")
        )))
    }

    /// The driver's threads outlive any context, which is why it is not closed.
    fn from_library(library: &ManuallyDrop<Library>, path: &Path) -> Result<Self> {
        // SAFETY: it has the driver's name, and is never dropped.
        let functions = unsafe { Functions::load(library) }
            .map_err(|lacking| unusable(path, &format!("it has no {}", lacking.join(", "))))?;
        let driver = Driver::new(functions);
        // SAFETY: the only flags that there are.
        unsafe { driver.init(0) }.map_err(|error| Error::Unavailable(error.to_string()))?;
        Ok(Self { driver: Arc::new(driver) })
    }

    /// How many devices there are.
    pub fn devices(&self) -> Result<usize> {
        // SAFETY: the count is written.
        let count = written(|count| unsafe { self.driver.device_count(count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// The driver's release, as CUDA writes it: 13000 is 13.0.
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
