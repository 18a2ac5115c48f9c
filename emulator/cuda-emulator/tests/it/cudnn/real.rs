//! The real cuDNN, in a process of its own: it would take the emulated driver for a real one.

use super::Cudnn;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// Version from which engines and statuses are recorded, in the encoding of `cudnnGetVersion`.
const RECORDED: u32 = 91_900;

/// Variable with the path of `libcudnn.so.9`. The libraries of CUDA are beside it, as the wheels
/// are unpacked.
const LIBRARY: &str = "CUDNN_LIBRARY";

/// Variable that is set in the process of the real library.
const CHILD: &str = "CUDNN_TEST_CHILD";

/// Mark of the lines that the process writes.
const MARK: &str = "real cuDNN: ";

fn open(path: &Path) -> Cudnn {
    let load = |path: PathBuf| {
        // SAFETY: the initialisers of CUDA's libraries need nothing of this process.
        unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) }
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let cuda = path.ancestors().nth(3).unwrap().join("cu13/lib");
    for name in ["libcublasLt.so.13", "libnvrtc.so.13"] {
        std::mem::forget(load(cuda.join(name)));
    }
    Cudnn(load(path.to_owned()).into())
}

/// Runs `work`, which returns lines, with the real library in another process: that of the calling
/// test, whose full name is given. Returns the lines there and `None` elsewhere, or if there is no
/// such library, or one of another version.
pub(super) fn lines(test: &str, work: impl FnOnce(&Cudnn) -> Vec<String>) -> Option<Vec<String>> {
    let Some(path) = env::var_os(LIBRARY) else {
        println!("SKIPPED: the real cuDNN: its package is out of reach");
        return None;
    };
    if env::var_os(CHILD).is_some() {
        let cudnn = open(Path::new(&path));
        println!("\n{MARK}{}", cudnn.cudnnGetVersion());
        for line in work(&cudnn) {
            println!("\n{MARK}{line}");
        }
        return None;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(MARK));
    let version = lines.next().expect("the version");
    if version != RECORDED.to_string() {
        println!("SKIPPED: the real cuDNN: it has the version {version} and not {RECORDED}");
        return None;
    }
    Some(lines.map(str::to_owned).collect())
}
