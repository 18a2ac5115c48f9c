//! Files that one process at a time appends to.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::thread;

use command_line::files::{LockedFile, OutputError, is_write_failure};

#[test]
fn a_file_is_open_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let mut first = LockedFile::open(&path).unwrap();
    assert!(first.is_new());
    first.file_mut().write_all(b"one\n").unwrap();
    let error = LockedFile::open(&path).unwrap_err();
    assert!(matches!(error, OutputError::InUse { .. }) && !is_write_failure(&error));
    let message = error.to_string();
    assert!(message.starts_with(&format!("{}: another run is writing", path.display())), "{message}");
    drop(first);

    let mut second = LockedFile::open(&path).unwrap();
    assert!(!second.is_new());
    second.file_mut().write_all(b"two\n").unwrap();
    let mut text = String::new();
    fs::File::open(&path).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "one\ntwo\n");
    second.remove().unwrap();
    second.remove().unwrap();
    let third = LockedFile::open(&path).unwrap();
    assert!(third.is_new(), "the lock of a deleted file does not hinder others");
}

#[test]
fn the_content_of_a_regular_file_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    fs::write(&path, "old\n").unwrap();
    let mut file = LockedFile::open(&path).unwrap();
    let mut text = String::new();
    file.file_mut().read_to_string(&mut text).unwrap();
    assert_eq!(text, "old\n");
    file.file_mut().set_len(0).unwrap();
    file.file_mut().write_all(b"new\n").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new\n");
}

#[test]
fn devices_are_not_locked() {
    let (first, second) = (LockedFile::open("/dev/null").unwrap(), LockedFile::open("/dev/null").unwrap());
    assert!(!first.is_new() && first.path() == second.path());
}

#[test]
fn files_that_cannot_be_opened_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(LockedFile::open(folder.path()), Err(OutputError::IsFolder { .. })));
    let missing = LockedFile::open(folder.path().join("none/journal"));
    assert!(matches!(missing, Err(OutputError::NoFolder { .. })));
    let long = LockedFile::open(folder.path().join("x".repeat(300))).unwrap_err();
    assert!(is_write_failure(&long), "{long}");
}

/// Takes turns with other threads: each opens the file, checks that it is the only one, and deletes
/// the file.
fn take_turns(path: &Path) -> usize {
    let mut turns = 0;
    for _ in 0..2000 {
        match LockedFile::open(path) {
            Ok(mut file) => {
                let mut text = String::new();
                file.file_mut().read_to_string(&mut text).unwrap();
                assert_eq!(text, "", "a deleted file is not written to");
                file.file_mut().write_all(b"mine").unwrap();
                assert_eq!(fs::read_to_string(path).unwrap(), "mine");
                file.remove().unwrap();
                turns += 1;
            }
            Err(OutputError::InUse { .. }) => {}
            Err(OutputError::Write { error, .. }) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => panic!("{error}"),
        }
    }
    turns
}

#[test]
fn deleted_files_have_one_writer_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let turns: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| take_turns(&path))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(turns > 100, "{turns}");
    assert!(!path.exists());
}
