//! Search for NCCL's library, and its loading.
#![allow(unsafe_code)]

use std::env;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::Library;

use super::api::{Functions, SUCCESS, UniqueId, describe};
use crate::{Error, Result};

/// Environment variable with the path of NCCL's library.
const PATH_VARIABLE: &str = "COLLECTIVES_NCCL";

/// Oldest supported release, the first that can split a communicator: 2.18, in the format of
/// `ncclGetVersion`.
const MIN_VERSION: i32 = 21_800;

/// NCCL, loaded and never closed.
///
/// This crate opens the file instead of cudarc, which looks for `libnccl.so` only and panics
/// without it: packages install `libnccl.so.2`.
#[derive(Debug, Clone)]
pub struct NcclLibrary {
    /// Table of the library's functions.
    pub(super) api: Arc<Functions>,
}

impl NcclLibrary {
    /// Opens the first library of these that exists:
    ///
    /// 1. The file named by the variable `COLLECTIVES_NCCL`. If it is set, no other is tried.
    /// 2. The emulated library, if `DEEPPOOL_EMULATED_GPUS` requests it. No other is tried then.
    /// 3. `libnccl.so.2` and `libnccl.so` on the loader's path (`LD_LIBRARY_PATH` and the system's
    ///    folders).
    /// 4. The Python package `nvidia-nccl-cu13` or `-cu12` of the active environment.
    /// 5. CUDA's folder.
    ///
    /// # Errors
    /// [`Error::Unavailable`], in one line: the missing item, the places that were searched, and
    /// the remedy.
    pub fn open() -> Result<Self> {
        if let Some(path) = env::var_os(PATH_VARIABLE) {
            return Self::open_first_of(&[PathBuf::from(path)]);
        }
        match emulated_gpus::library().map_err(|error| unavailable(error.to_string()))? {
            Some(path) => Self::open_first_of(&[path]),
            None => Self::open_first_of(&default_paths()),
        }
    }

    /// Opens the first of these files that exists. A name without a folder is searched on the
    /// loader's path.
    ///
    /// # Errors
    /// As [`open`](Self::open). A file that exists but cannot be used ends the search.
    pub fn open_first_of(candidates: &[PathBuf]) -> Result<Self> {
        for path in candidates {
            // SAFETY: the initializers of a library called NCCL are assumed to be NCCL's.
            match unsafe { Library::new(path) } {
                Ok(library) => return Self::from_library(&ManuallyDrop::new(library), path),
                Err(error) if path.is_file() => return Err(unavailable(unusable(path, &error))),
                Err(_) => {}
            }
        }
        let places: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
        Err(unavailable(format!(
            "the library was not found: searched for {}; install it (for example by the Python package \
             nvidia-nccl-cu13) and add its folder to LD_LIBRARY_PATH, or set {PATH_VARIABLE} to its file",
            places.join(", ")
        )))
    }

    /// Loads the functions. The library is never closed, because its threads outlive any
    /// communicator.
    fn from_library(library: &ManuallyDrop<Library>, path: &Path) -> Result<Self> {
        // SAFETY: the library has NCCL's name, and is never dropped.
        let functions =
            unsafe { Functions::load(library) }.map_err(|error| unavailable(unusable(path, &error)))?;
        let opened = Self { api: Arc::new(functions) };
        let version = opened.version()?;
        if version < MIN_VERSION {
            let version = format_version(version);
            return Err(unavailable(format!(
                "{} is NCCL {version}, which is older than 2.18",
                path.display()
            )));
        }
        Ok(opened)
    }

    /// Returns the library's release in NCCL's format: 22809 is 2.28.9.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the error that NCCL reports.
    pub fn version(&self) -> Result<i32> {
        let mut version = 0;
        // SAFETY: `version` is written.
        let code = unsafe { self.api.get_version(&raw mut version) };
        self.check(code).map(|()| version)
    }

    /// Creates the identifier of a new communicator, which its ranks share.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the error that NCCL reports.
    pub(super) fn unique_id(&self) -> Result<UniqueId> {
        let mut id = UniqueId { internal: [0; 128] };
        // SAFETY: `id` is written.
        let code = unsafe { self.api.get_unique_id(&raw mut id) };
        self.check(code).map(|()| id)
    }

    fn check(&self, code: u32) -> Result<()> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: the handle is null.
        Err(unavailable(unsafe { describe(&self.api, code, std::ptr::null_mut()) }))
    }
}

/// Returns the paths at which NCCL is searched by default.
fn default_paths() -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from("libnccl.so.2"), PathBuf::from("libnccl.so")];
    for root in ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(env::var_os) {
        let root = PathBuf::from(root).join("lib");
        places.push(root.join("libnccl.so.2"));
        let packages = root.read_dir().into_iter().flatten().flatten();
        let pythons = packages.filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"));
        places.extend(pythons.map(|entry| entry.path().join("site-packages/nvidia/nccl/lib/libnccl.so.2")));
    }
    let cuda = env::var_os("CUDA_HOME").map_or_else(|| PathBuf::from("/usr/local/cuda"), PathBuf::from);
    places.push(cuda.join("lib64/libnccl.so.2"));
    places
}

fn unavailable(reason: String) -> Error {
    Error::Unavailable { backend: "NCCL", reason }
}

fn unusable(path: &Path, error: &libloading::Error) -> String {
    let error = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    let error = error.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{} cannot be used as NCCL: {error}", path.display())
}

fn format_version(version: i32) -> String {
    // Up to 2.8 the number of a minor release had two digits less.
    let major = if version < 10_000 { 1_000 } else { 10_000 };
    format!("{}.{}.{}", version / major, version % major / 100, version % 100)
}
