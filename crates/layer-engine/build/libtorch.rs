//! Finds libtorch and compiles the C++ part of `TorchEngine` against it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The only version that `tch` 0.24 supports.
const VERSION: &str = "2.11.0";

/// Python code that prints the folder of an installed PyTorch.
const PYTORCH: &str = "import torch, pathlib; print(pathlib.Path(torch.__file__).parent)";

pub(crate) fn build() -> Result<(), String> {
    for variable in ["LIBTORCH", "LIBTORCH_INCLUDE", "LIBTORCH_USE_PYTORCH", "LIBTORCH_CXX11_ABI"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let sources = ["ffi.cpp", "kernels.cpp", "device.cpp"].map(|file| Path::new("src/torch").join(file));
    println!("cargo::rerun-if-changed=src/torch/ffi.h");
    for source in &sources {
        println!("cargo::rerun-if-changed={}", source.display());
    }
    // Documentation is built without libtorch.
    if env::var_os("DOCS_RS").is_some() {
        return Ok(());
    }
    let include = include_folder()?;
    let found = version(&include.join("torch/headeronly/version.h"));
    if found != VERSION {
        let folder = include.display();
        return Err(format!(
            "feature `torch` needs libtorch {VERSION}, found {found} in {folder}: \
             `scripts/libtorch.sh` fetches it"
        ));
    }
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .pic(true)
        .opt_level(2)
        .define("_GLIBCXX_USE_CXX11_ABI", env::var("LIBTORCH_CXX11_ABI").as_deref().unwrap_or("1"))
        // As system headers, so that their warnings are not shown.
        .flag("-isystem")
        .flag(include.as_os_str())
        .flag("-isystem")
        .flag(include.join("torch/csrc/api/include").as_os_str())
        .files(sources)
        .try_compile("layer_engine_torch")
        .map_err(|error| format!("the C++ part of feature `torch` does not compile: {error}"))
}

/// Returns the folder of libtorch's headers, found in the same way as by `tch`.
fn include_folder() -> Result<PathBuf, String> {
    let missing = |why: &str| {
        format!(
            "feature `torch` needs libtorch {VERSION}, and {why}: run `scripts/libtorch.sh` and export the \
             two variables that it prints"
        )
    };
    let folder = if env::var_os("LIBTORCH_USE_PYTORCH").is_some() {
        let python = if env::var_os("VIRTUAL_ENV").is_some() { "python" } else { "python3" };
        let output = Command::new(python).args(["-c", PYTORCH]).output();
        let output = output.ok().filter(|output| output.status.success());
        let output = output.ok_or_else(|| missing(&format!("`{python}` has no PyTorch")))?;
        PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
    } else if let Some(folder) = env::var_os("LIBTORCH_INCLUDE").or_else(|| env::var_os("LIBTORCH")) {
        PathBuf::from(folder)
    } else if Path::new("/usr/lib/libtorch.so").exists() {
        PathBuf::from("/usr")
    } else {
        return Err(missing("LIBTORCH is not set"));
    };
    let include = folder.join("include");
    if include.join("torch").is_dir() {
        Ok(include)
    } else {
        Err(missing(&format!("{} has no include/torch", folder.display())))
    }
}

/// Returns the version that libtorch's header defines.
fn version(header: &Path) -> String {
    let text = fs::read_to_string(header).unwrap_or_default();
    let part = |name: &str| {
        let start = format!("#define TORCH_VERSION_{name} ");
        text.lines().find_map(|line| line.strip_prefix(&start)).map(str::trim)
    };
    match (part("MAJOR"), part("MINOR"), part("PATCH")) {
        (Some(major), Some(minor), Some(patch)) => format!("{major}.{minor}.{patch}"),
        _ => "an older version".into(),
    }
}
