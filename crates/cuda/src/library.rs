//! Search for CUDA's libraries, and their loading.
#![allow(unsafe_code)]

use std::env;
use std::path::{Path, PathBuf};

use libloading::Library;

use crate::symbols::words;
use crate::{Error, Result, emulated};

/// Part of the dynamic loader's message for a missing file.
const NOT_FOUND: &str = "No such file";

/// A library that this crate opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// CUDA's driver.
    Driver,
    /// NCCL.
    Nccl,
    /// NVRTC, the compiler of CUDA C++.
    Nvrtc,
    /// cuBLASLt, NVIDIA's products of matrices.
    CublasLt,
    /// cuDNN, NVIDIA's convolutions and attention.
    Cudnn,
}

impl Kind {
    /// Name of the library in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Driver => "CUDA's driver",
            Self::Nccl => "NCCL",
            Self::Nvrtc => "NVRTC",
            Self::CublasLt => "cuBLASLt",
            Self::Cudnn => "cuDNN",
        }
    }

    /// Environment variable with the path of the library. If it is set, no other file is tried.
    fn variable(self) -> &'static str {
        match self {
            Self::Driver => "CUDA_DRIVER_LIBRARY",
            Self::Nccl => "NCCL_LIBRARY",
            Self::Nvrtc => "NVRTC_LIBRARY",
            Self::CublasLt => "CUBLASLT_LIBRARY",
            Self::Cudnn => "CUDNN_LIBRARY",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::Driver => "install the NVIDIA driver",
            Self::Nccl => "install it (for example by the Python package nvidia-nccl-cu13)",
            Self::Nvrtc => "install it (for example by the Python package nvidia-cuda-nvrtc)",
            Self::CublasLt => "install it (for example by the Python package nvidia-cublas)",
            Self::Cudnn => "install it (for example by the Python package nvidia-cudnn-cu13)",
        }
    }

    /// Returns the names of the library's file, and its folders in Python packages.
    fn files(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::Driver => (&["libcuda.so.1", "libcuda.so"], &[]),
            Self::Nccl => (&["libnccl.so.2", "libnccl.so"], &["nccl/lib"]),
            Self::Nvrtc => {
                (&["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"], &["cu13/lib", "cuda_nvrtc/lib"])
            }
            Self::CublasLt => {
                (&["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"], &["cu13/lib", "cublas/lib"])
            }
            Self::Cudnn => (&["libcudnn.so.9"], &["cudnn/lib"]),
        }
    }

    /// Returns the files that are tried, in order: names on the loader's search path, and then in
    /// the folders of the active Python environment and of CUDA.
    fn candidates(self) -> Vec<PathBuf> {
        let (names, _) = self.files();
        let folders = match self {
            // It belongs to the system.
            Self::Driver => Vec::new(),
            _ => self.folders(),
        };
        let named = names.iter().map(PathBuf::from);
        named
            .chain(folders.iter().flat_map(|folder| names.iter().map(move |name| folder.join(name))))
            .collect()
    }

    /// Returns the folders of the active Python environment and of CUDA.
    fn folders(self) -> Vec<PathBuf> {
        let (_, packages) = self.files();
        let mut folders = Vec::new();
        for root in ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(env::var_os) {
            let root = PathBuf::from(root).join("lib");
            let entries = root.read_dir().into_iter().flatten().flatten();
            let pythons = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"));
            let nvidia = pythons.map(|entry| entry.path().join("site-packages/nvidia"));
            folders.extend(nvidia.flat_map(|folder| packages.iter().map(move |name| folder.join(name))));
            folders.push(root);
        }
        let cuda = env::var_os("CUDA_HOME").map_or_else(|| PathBuf::from("/usr/local/cuda"), PathBuf::from);
        folders.push(cuda.join("lib64"));
        folders
    }

    /// Makes the library for a major version of CUDA available to `user`, the file of a library
    /// that opens it by its name: `libnvrtc.so.13`, say. It is the file that the variable names, or
    /// else one beside the user's in a Python package, or else a default one.
    ///
    /// # Errors
    /// The reason why it cannot be opened by that name, in one line.
    pub(crate) fn open_beside(self, user: &Path, cuda: usize) -> std::result::Result<(), String> {
        let (names, packages) = self.files();
        let stem = names[0].split(".so").next().unwrap_or_default();
        let name = format!("{stem}.so.{cuda}");
        // SAFETY: a library with this name is trusted to have its initializers. It is never closed.
        let open = |path: &Path| unsafe { Library::new(path) }.map(std::mem::forget).is_ok();
        let by_name = || open(Path::new(&name));
        let own = user.parent().filter(|folder| folder.components().next().is_some());
        let beside = own.into_iter().flat_map(|folder| {
            let packages = packages.iter().map(move |package| folder.join("../..").join(package));
            [folder.to_path_buf()].into_iter().chain(packages)
        });
        let defaults = beside.chain(self.folders()).map(|folder| folder.join(&name));
        let files: Vec<_> =
            env::var_os(self.variable()).map(PathBuf::from).into_iter().chain(defaults).collect();
        // The loader finds an open library by its name.
        if by_name() || files.iter().any(|file| open(file) && by_name()) {
            return Ok(());
        }
        let places: Vec<_> = files.iter().map(|path| path.display().to_string()).collect();
        Err(format!(
            "{name} was not found on the loader's search path or as {}; {}, or set {} to its file",
            places.join(", "),
            self.remedy(),
            self.variable()
        ))
    }

    /// Opens the file that the library's variable names, or else the library of emulated GPUs if it
    /// is requested, or else the first of the default files that exists.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub(crate) fn open(self) -> Result<(&'static Library, PathBuf)> {
        if let Some(path) = env::var_os(self.variable()) {
            return self.open_first_of(&[PathBuf::from(path)]);
        }
        let emulated = match self {
            Self::Driver | Self::Nccl => emulated::library()?,
            // NVRTC compiles without a GPU, and is not emulated; the others are opened for a
            // device.
            Self::Nvrtc | Self::CublasLt | Self::Cudnn => None,
        };
        match emulated {
            Some(path) => self.open_first_of(&[path]),
            None => self.open_first_of(&self.candidates()),
        }
    }

    /// Opens the library for work on a device: the file that the library's variable names, or else
    /// `emulator`, the library of emulated GPUs if the device is one, or else the first of the
    /// default files that exists.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub(crate) fn open_for(self, emulator: Option<&Path>) -> Result<(&'static Library, PathBuf)> {
        match (env::var_os(self.variable()), emulator) {
            (Some(path), _) => self.open_first_of(&[PathBuf::from(path)]),
            (None, Some(path)) => self.open_first_of(&[path.to_owned()]),
            (None, None) => self.open_first_of(&self.candidates()),
        }
    }

    /// Opens the first of these files that exists. A name without a folder is searched on the
    /// loader's path. The library is never closed, because its threads outlive all objects.
    ///
    /// # Errors
    /// [`Error::Unavailable`]. A file that exists but cannot be used ends the search.
    pub(crate) fn open_first_of(self, candidates: &[PathBuf]) -> Result<(&'static Library, PathBuf)> {
        for path in candidates {
            // SAFETY: a library with one of these names is trusted to have its initializers.
            match unsafe { Library::new(path) } {
                Ok(library) => return Ok((Box::leak(Box::new(library)), path.clone())),
                Err(error) => {
                    let source = std::error::Error::source(&error);
                    let error = source.map_or_else(|| error.to_string(), ToString::to_string);
                    // The file may exist and lack a dependency; then the loader's message names the
                    // dependency.
                    let is_missing = error.starts_with(&*path.to_string_lossy()) && error.contains(NOT_FOUND);
                    if path.exists() || !is_missing {
                        return Err(self.unusable(path, &error));
                    }
                }
            }
        }
        let places: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
        Err(Error::Unavailable {
            library: self.name(),
            reason: format!(
                "the library was not found: looked for {} on the loader's search path (LD_LIBRARY_PATH and \
                 the system's folders); {}, or set {} to its file",
                places.join(", "),
                self.remedy(),
                self.variable()
            ),
        })
    }

    /// Returns the error for a file that cannot be used as this library.
    pub(crate) fn unusable(self, path: &Path, reason: &str) -> Error {
        let reason = format!("{} cannot be used as {}: {}", path.display(), self.name(), words(reason));
        Error::Unavailable { library: self.name(), reason }
    }

    /// Returns the error for a file that lacks functions of this library.
    pub(crate) fn incomplete(self, path: &Path, missing: &[&str]) -> Error {
        self.unusable(path, &format!("it has no {}", missing.join(", ")))
    }
}
