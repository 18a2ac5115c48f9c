//! Readers of files: each accepts all of n records, or is refused with the first unusable one.
//! Nothing is skipped, merged or replaced by a default. The readers of traces have the same test in
//! `cluster-scheduler`.

mod documents;
mod other_files;

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use documents::DOCUMENTS;
use other_files::OTHER_FILES;

/// A reader of files.
struct Reader {
    /// File of the source in `crates`, and function.
    name: &'static str,
    /// Valid record.
    valid: &'static str,
    /// Unusable records, each with a part of the error's message.
    unusable: &'static [(&'static str, &'static str)],
    /// Maximum number of records. 1 for documents without a list.
    max_records: usize,
    /// Reads a file with these records. Returns the number of accepted records.
    read: fn(&[String]) -> Result<usize, String>,
}

/// Returns all readers except those of traces.
fn readers() -> impl Iterator<Item = &'static Reader> {
    DOCUMENTS.iter().chain(OTHER_FILES)
}

/// Parts of the signatures of functions that read the content of a file.
const INPUTS: [&str; 5] =
    ["(text: &str)", "content: &[u8]", "bytes: &[u8]", "bytes: Vec<u8>", "fn load(folder: &Path"];
/// The reader of safetensors files of data also has the network.
const DATA_OF_A_NETWORK: &str = "fn load(path: &Path, network";

/// Returns the functions of a source file that read the content of a file: public ones, and the
/// loaders of data sets.
fn readers_of(path: &Path, root: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let file = path.strip_prefix(root).unwrap().display().to_string();
    let functions = text.split("pub").skip(1).filter_map(|item| {
        let signature = item.split('{').next()?;
        let (visibility, rest) = signature.split_once("fn ")?;
        let name = rest.split(['(', '<']).next()?;
        let is_public = visibility.trim().is_empty() || name == "load";
        let reads = INPUTS.iter().chain([&DATA_OF_A_NETWORK]).any(|input| signature.contains(input));
        (is_public && reads && signature.contains("Result<")).then(|| format!("{file}:{name}"))
    });
    functions.collect()
}

fn source_files(folder: PathBuf, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            source_files(path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_reader_is_registered() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates").canonicalize().unwrap();
    let mut files = Vec::new();
    for krate in fs::read_dir(&root).unwrap() {
        source_files(krate.unwrap().path().join("src"), &mut files);
    }
    let mut found: Vec<String> = files.iter().flat_map(|file| readers_of(file, &root)).collect();
    found.sort();
    let mut registered: Vec<&str> = readers().map(|reader| reader.name).collect();
    registered.sort_unstable();
    assert_eq!(found, registered);
}

/// Returns a record or an expected part of a message: `#` stands for the record's index from 0, and
/// `@` for its number from 1.
fn at(text: &str, index: usize) -> String {
    text.replace('#', &index.to_string()).replace('@', &(index + 1).to_string())
}

/// Checks that a reader accepts all records at the given places, or names the first unusable one.
/// All unusable records have the same fault, because a document's types are checked before its
/// values.
fn check(reader: &Reader, places: &[bool], fault: usize) -> Result<(), TestCaseError> {
    let Reader { name, valid, unusable, max_records, read } = reader;
    let places = &places[..places.len().min(*max_records)];
    let (bad, message) = unusable[fault % unusable.len()];
    let record = |(index, is_bad): (usize, &bool)| at(if *is_bad { bad } else { valid }, index);
    let records: Vec<String> = places.iter().enumerate().map(record).collect();
    match (read(&records), places.iter().position(|&is_bad| is_bad)) {
        (Ok(accepted), None) => prop_assert_eq!(accepted, places.len(), "{}", name),
        (Err(error), Some(first)) => {
            let expected = at(message, first);
            prop_assert!(error.contains(&expected), "{name}: expected {expected:?} of {bad}: {error}");
            prop_assert!(!error.contains('\n'), "{name}: {error}");
        }
        (result, first) => prop_assert!(false, "{name}: {result:?}, first {first:?}: {records:?}"),
    }
    Ok(())
}

/// Checks each fault of each reader once, which random cases may miss.
#[test]
fn each_fault_is_named() {
    let faults = readers().flat_map(|reader| (0..reader.unusable.len()).map(move |fault| (reader, fault)));
    let checks = faults.flat_map(|(reader, fault)| {
        [&[true][..], &[false, true, false, true, false]].map(|places| check(reader, places, fault))
    });
    let failed: Vec<String> = checks.filter_map(Result::err).map(|failure| failure.to_string()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn readers_accept_all_records_or_name_the_first_unusable_one(
        places in prop::collection::vec(prop::bool::weighted(0.2), 1..12), fault in 0usize..12,
    ) {
        for reader in readers() {
            check(reader, &places, fault)?;
        }
    }
}
