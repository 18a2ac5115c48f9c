//! Files, links, devices and pipes.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::thread;

use command_line::files::{
    OutputError, Printer, check, check_all, is_file, is_stdout, is_write_failure, read, read_to_string, write,
};

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn replaced_files_keep_their_permissions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan");
    check(&path).unwrap();
    assert!(names(folder.path()).is_empty(), "a check leaves nothing");
    write(&path, b"long content").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    write(&path, b"short").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"short");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(names(folder.path()), ["plan"]);
}

#[test]
fn links_stay_links() {
    let folder = tempfile::tempdir().unwrap();
    let [file, link, chain, dangling, missing] =
        ["file", "link", "chain", "dangling", "missing"].map(|name| folder.path().join(name));
    fs::write(&file, b"old").unwrap();
    symlink("file", &link).unwrap();
    symlink(&link, &chain).unwrap();
    symlink("missing", &dangling).unwrap();
    for (path, behind) in [(&link, &file), (&chain, &file), (&dangling, &missing)] {
        check(path).unwrap();
        write(path, path.as_os_str().as_encoded_bytes()).unwrap();
        assert!(fs::symlink_metadata(path).unwrap().is_symlink(), "{path:?}");
        assert_eq!(fs::read(behind).unwrap(), path.as_os_str().as_encoded_bytes());
    }
    let circle = folder.path().join("circle");
    symlink("circle", &circle).unwrap();
    // The write may fail or replace the link; it does not hang.
    let _ = write(&circle, b"x");
}

#[test]
fn devices_are_written_to() {
    let is_device = || fs::metadata("/dev/null").unwrap().file_type().is_char_device();
    assert!(is_device());
    check("/dev/null").unwrap();
    write("/dev/null", b"x").unwrap();
    assert!(is_device() && !is_file("/dev/null").unwrap());
    if Path::new("/dev/full").exists() {
        let error = write("/dev/full", b"x").unwrap_err();
        assert!(is_write_failure(&error) && error.to_string().starts_with("/dev/full: "), "{error}");
        assert!(fs::metadata("/dev/full").unwrap().file_type().is_char_device());
    }
}

#[test]
fn pipes_are_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    check(&pipe).unwrap();
    let reader = thread::spawn({
        let pipe = pipe.clone();
        move || {
            let mut read = String::new();
            fs::File::open(pipe).unwrap().read_to_string(&mut read).unwrap();
            read
        }
    });
    write(&pipe, b"through the pipe").unwrap();
    assert_eq!(reader.join().unwrap(), "through the pipe");
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
}

/// Descriptors as of `>(command)` in a shell are appended to.
#[test]
fn an_open_descriptor_is_written_to() {
    use std::os::fd::AsRawFd;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let file = fs::File::create(&path).unwrap();
    write(&path, b"").unwrap();
    let before = fs::File::options().append(true).open(&path).unwrap();
    for descriptor in
        [format!("/dev/fd/{}", before.as_raw_fd()), format!("/proc/self/fd/{}", before.as_raw_fd())]
    {
        check(&descriptor).unwrap();
        write(&descriptor, b"line\n").unwrap();
    }
    drop(file);
    assert_eq!(fs::read(&path).unwrap(), b"line\nline\n");
    assert!(is_stdout("/dev/stdout") && is_stdout("/proc/self/fd/1") && !is_stdout(&path));
}

#[test]
fn unwritable_paths_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none/plan");
    assert!(matches!(check(&missing), Err(OutputError::NoFolder { .. })));
    assert!(matches!(write(folder.path(), b""), Err(OutputError::IsFolder { .. })));
    assert!(matches!(check(folder.path().join("plan/")), Err(OutputError::IsFolder { .. })));
    assert!(matches!(check(""), Err(OutputError::IsFolder { .. })));
    assert!(names(folder.path()).is_empty());
}

#[test]
fn two_results_in_one_place_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let [plan, figure, link] = ["plan", "figure", "link"].map(|name| folder.path().join(name));
    symlink("plan", &link).unwrap();
    let stdout = Path::new("/dev/stdout");
    assert_eq!(check_all([&plan, &figure], true).unwrap(), Printer::Stdout);
    assert_eq!(check_all([plan.as_path(), stdout], false).unwrap(), Printer::Stderr);
    assert_eq!(check_all(["/dev/null", "/dev/null"], false).unwrap(), Printer::Stdout);
    assert!(matches!(check_all([stdout], true), Err(OutputError::BesideJson { .. })));
    let spelled = folder.path().join("./plan");
    for second in [plan.as_path(), &spelled, &link] {
        match check_all([plan.as_path(), second], false) {
            Err(OutputError::Twice { path }) => assert_eq!(path, second),
            other => panic!("{second:?}: {other:?}"),
        }
    }
    let same = check_all(["/dev/stdout", "/proc/self/fd/1"], false);
    assert!(matches!(same, Err(OutputError::Twice { .. })));
    assert_eq!(names(folder.path()), ["link"]);
}

#[test]
fn a_hyphen_is_standard_output() {
    let command =
        clap::Command::new("plan").arg(clap::Arg::new("out").value_parser(command_line::files::argument()));
    for (given, meant) in [("-", "/dev/stdout"), ("plan.json", "plan.json")] {
        let matches = command.clone().try_get_matches_from(["plan", given]).unwrap();
        assert_eq!(matches.get_one::<std::path::PathBuf>("out").unwrap(), Path::new(meant));
    }
}

#[test]
fn reads_of_devices_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "text").unwrap();
    assert_eq!(read_to_string(&path).unwrap(), "text");
    assert_eq!(read("/dev/null").unwrap(), b"");
    fs::write(&path, [0xff]).unwrap();
    assert!(read_to_string(&path).is_err() && read(&path).unwrap() == [0xff]);
    assert!(read(folder.path()).is_err() && read(folder.path().join("none")).is_err());
    if Path::new("/dev/zero").exists() {
        assert!(read("/dev/zero").unwrap_err().to_string().contains("256 MiB"));
    }
}
