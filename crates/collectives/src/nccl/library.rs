//! Finding and opening NCCL.
#![allow(unsafe_code)]

use std::env;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::Library;

use super::api::{Functions, SUCCESS, UniqueId, describe};
use crate::{Error, Result};

/// The variable that names NCCL's file.
const PATH_VARIABLE: &str = "COLLECTIVES_NCCL";

/// The oldest release that can split a communicator: 2.18, as `ncclGetVersion` writes it.
const OLDEST: i32 = 21_800;

/// NCCL, opened and never closed.
///
/// Its file is opened by this crate and not by cudarc, which asks for `libnccl.so` only and panics without it: what
/// packages install is `libnccl.so.2`.
#[derive(Debug, Clone)]
pub struct NcclLibrary {
    pub(super) api: Arc<Functions>,
}

impl NcclLibrary {
    /// Opens the first of these that there is: the file that the variable `COLLECTIVES_NCCL` names, and no other if it
    /// is set; the emulated library, if `DEEPPOOL_EMULATED_GPUS` asks for it, and no other; `libnccl.so.2` and `libnccl.so` where the loader looks (`LD_LIBRARY_PATH`, the system's folders); the
    /// Python package `nvidia-nccl-cu13` or `-cu12` of the active environment; CUDA's folder.
    ///
    /// # Errors
    /// [`Error::Unavailable`], in one line: what was looked for, where, and what to do.
    pub fn open() -> Result<Self> {
        if let Some(path) = env::var_os(PATH_VARIABLE) {
            return Self::open_first_of(&[PathBuf::from(path)]);
        }
        match emulated_gpus::library().map_err(|error| unavailable(error.to_string()))? {
            Some(path) => Self::open_first_of(&[path]),
            None => Self::open_first_of(&usual_places()),
        }
    }

    /// Opens the first of these files that there is. A name without a folder is looked for where the loader looks.
    ///
    /// # Errors
    /// As [`open`](Self::open). A file that is there but cannot be used ends the search.
    pub fn open_first_of(candidates: &[PathBuf]) -> Result<Self> {
        for path in candidates {
            // SAFETY: the initialisers of a library that calls itself NCCL are taken to be NCCL's.
            match unsafe { Library::new(path) } {
                Ok(library) => return Self::from_library(&ManuallyDrop::new(library), path),
                Err(error) if path.is_file() => return Err(unavailable(unusable(path, &error))),
                Err(_) => {}
            }
        }
        let places: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
        Err(unavailable(format!(
            "the library was not found: looked for {}; install it (the Python package nvidia-nccl-cu13 brings it) and \
             add its folder to LD_LIBRARY_PATH, or set {PATH_VARIABLE} to its file",
            places.join(", ")
        )))
    }

    /// Its threads outlive any communicator, which is why it is not closed.
    fn from_library(library: &ManuallyDrop<Library>, path: &Path) -> Result<Self> {
        // SAFETY: it has NCCL's name, and is never dropped.
        let functions =
            unsafe { Functions::load(library) }.map_err(|error| unavailable(unusable(path, &error)))?;
        let opened = Self { api: Arc::new(functions) };
        let version = opened.version()?;
        if version < OLDEST {
            let version = readable(version);
            return Err(unavailable(format!(
                "{} is NCCL {version}, which is older than 2.18",
                path.display()
            )));
        }
        Ok(opened)
    }

    /// The library's release, as NCCL writes it: 22809 is 2.28.9.
    ///
    /// # Errors
    /// What the library reports.
    pub fn version(&self) -> Result<i32> {
        let mut version = 0;
        // SAFETY: `version` is written.
        let code = unsafe { self.api.get_version(&raw mut version) };
        self.check(code).map(|()| version)
    }

    /// What the ranks of a new communicator have to share.
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
        // SAFETY: no communicator is named.
        Err(unavailable(unsafe { describe(&self.api, code, std::ptr::null_mut()) }))
    }
}

/// Where NCCL is looked for by default.
fn usual_places() -> Vec<PathBuf> {
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

fn readable(version: i32) -> String {
    // Up to 2.8 a minor release had two digits less.
    let major = if version < 10_000 { 1_000 } else { 10_000 };
    format!("{}.{}.{}", version / major, version % major / 100, version % 100)
}
