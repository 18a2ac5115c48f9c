//! The NCCL backend as a user meets it: without the library, and on one GPU where there is one.

use std::path::PathBuf;

use collectives::{Error, NcclLibrary};

/// What is said when none of these files can be opened.
fn complaint(candidates: &[PathBuf]) -> String {
    let error = NcclLibrary::open_first_of(candidates).unwrap_err();
    assert!(matches!(error, Error::Unavailable { backend: "NCCL", .. }), "{error:?}");
    let message = error.to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[test]
fn without_the_library_one_line_says_what_was_looked_for_and_what_to_do() {
    let places = ["/nowhere/libnccl.so.2", "libnccl-of-nobody.so.2"];
    let message = complaint(&places.map(PathBuf::from));
    for part in places.into_iter().chain(["nvidia-nccl-cu13", "LD_LIBRARY_PATH", "COLLECTIVES_NCCL"]) {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn a_file_that_is_not_the_library_is_named_with_the_loaders_reason() {
    let text = PathBuf::from(env!("CARGO_MANIFEST_PATH"));
    let message = complaint(&[PathBuf::from("/nowhere/libnccl.so.2"), text]);
    assert!(message.contains("Cargo.toml cannot be used as NCCL: "), "{message}");
}

#[cfg(target_os = "linux")]
#[test]
fn another_library_is_not_taken_for_nccl() {
    let message = complaint(&[PathBuf::from("libc.so.6")]);
    assert!(
        message.contains("libc.so.6 cannot be used as NCCL: ") && message.contains("ncclGetVersion"),
        "{message}"
    );
}
