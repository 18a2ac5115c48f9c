//! Values by name or from a file.

use std::io::ErrorKind;
use std::path::Path;

use command_line::files::{is_write_failure, read, read_as, read_text_as, read_to_string, write};
use command_line::names::get_by_name_or_file;

fn number(text: &str) -> Result<i32, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is no number"))
}

fn named(name: &str) -> Result<i32, String> {
    match name {
        "three" => Ok(3),
        "seven" => Ok(7),
        _ => Err(format!("unknown number `{name}`")),
    }
}

fn value(typed: &str) -> Result<i32, String> {
    get_by_name_or_file(typed, ["three", "seven"], named, number).map_err(|error| error.to_string())
}

#[test]
fn a_value_has_a_known_name_or_is_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    write(path("four.json"), "4").unwrap();
    write(path("five"), "5\n").unwrap();
    write(path("bad.json"), "x").unwrap();
    assert_eq!(value("Three"), Ok(3));
    assert_eq!(value(&path("four.json")), Ok(4));
    assert_eq!(value(&path("five")), Ok(5));
    assert_eq!(value("sevn"), Err("unknown number `sevn`; did you mean `seven`?".into()));
    assert_eq!(value(&path("bad.json")), Err(format!("{}: `x` is no number", path("bad.json"))));
    let missing = value(&path("none.json")).unwrap_err();
    assert!(missing.starts_with(&format!("{}: ", path("none.json"))), "{missing}");
}

#[test]
fn errors_name_the_file_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    write(&path, [0xff]).unwrap();
    let length = |content: Vec<u8>| Ok::<_, String>(content.len());
    assert_eq!(read_as(&path, length).unwrap(), 1);
    let error = read_text_as(&path, number).unwrap_err().to_string();
    assert_eq!(error, format!("{}: stream did not contain valid UTF-8", path.display()));
}

#[test]
fn errors_of_missing_files_suggest_a_similar_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("network.onnx");
    write(folder.path().join("profile.json"), "{}").unwrap();
    let error = |path: &Path| {
        let error = read(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        error.to_string()
    };
    assert_eq!(error(&path), "no such file: check the path");
    write(folder.path().join("netwrok.onnx"), "").unwrap();
    assert_eq!(error(&path), "no such file: check the path; did you mean `netwrok.onnx`?");
    let below = error(&folder.path().join("none/file"));
    assert!(below.starts_with("the folder `") && below.ends_with("none` does not exist: check the path"));
    assert_eq!(error(Path::new("")), "no such file: check the path");
}

#[test]
fn byte_order_marks_of_text_files_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    write(path("marked.json"), "\u{feff}4\r\n").unwrap();
    assert_eq!(value(&path("marked.json")), Ok(4));
    write(path("empty"), "\u{feff}").unwrap();
    assert_eq!(read_to_string(path("empty")).unwrap(), "");
    write(path("twice"), "\u{feff}\u{feff}4").unwrap();
    assert_eq!(read_to_string(path("twice")).unwrap(), "\u{feff}4");
    for content in [&b"\xff\xfe4\0"[..], b"\xfe\xff\x004"] {
        write(path("wide.json"), content).unwrap();
        let error = value(&path("wide.json")).unwrap_err();
        assert!(error.ends_with("the text is UTF-16: save it as UTF-8"), "{error}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn only_failed_writes_are_write_failures() {
    let full = write("/dev/full", "content").unwrap_err();
    assert!(is_write_failure(&full), "{full}");
    let missing = write("/no/such/folder/file", "content").unwrap_err();
    assert!(!is_write_failure(&missing), "{missing}");
}
