//! A file of the finished results of a long command. If the command is stopped and run again, it
//! takes these results from the file.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use command_line::files::LockedFile;
use indicatif::ProgressBar;
use rayon::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::machine::hardware;
use crate::progress::progress_bar;

/// Results of an unfinished command, or of a part of it such as one experiment of `all`, stored in
/// a file.
#[derive(Clone)]
pub(crate) struct Journal {
    store: Arc<JournalFile>,
    /// Prefix of the keys of the part.
    part: String,
    is_quiet: bool,
}

/// A journal file: a header that identifies the command and the program, and then one result a
/// line.
struct JournalFile {
    file: Mutex<LockedFile>,
    results: HashMap<String, Value>,
    /// Whether the file has any results.
    has_results: AtomicBool,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct JournalHeader {
    /// Size and modification time of the program's file, since another build may give other
    /// results.
    program: String,
    /// The machine, since measurements of one machine do not hold for another.
    machine: String,
    command: Vec<String>,
    /// Size and modification time of the files that the command names.
    files: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    key: String,
    result: Value,
}

impl JournalHeader {
    fn new(command: &[String]) -> Self {
        let stamp = |path: &Path| {
            let metadata = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
            Some(format!("{} bytes of {:?}", metadata.len(), metadata.modified().ok()?))
        };
        let program = std::env::current_exe().ok().and_then(|path| stamp(&path)).unwrap_or_default();
        let value = |argument: &String| {
            argument.split_once('=').map_or_else(|| argument.clone(), |(_, value)| value.to_owned())
        };
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let (processor, cores) = hardware();
        let machine = format!("{}, {processor}, {cores} cores", host.trim());
        let files = command.iter().filter_map(|argument| stamp(Path::new(&value(argument)))).collect();
        Self { program, machine, command: command.to_vec(), files }
    }
}

impl Journal {
    /// Runs the work of the command `name` with a journal in `folder`. If the folder has a journal
    /// of the same command line, program and input files, its results are used. The file is removed
    /// when the work is done, or when it has failed without any result.
    ///
    /// # Errors
    /// If the work fails, if another run of the command writes to the folder, or if the file cannot
    /// be created or removed.
    pub(crate) fn with_journal<T>(
        folder: &Path,
        name: &str,
        command: &[String],
        work: impl FnOnce(&Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let store = JournalFile::open(&folder.join(format!(".{name}.unfinished")), command)?;
        let journal = Self { store: Arc::new(store), part: String::new(), is_quiet: false };
        let done = work(&journal);
        let store = &journal.store;
        if done.is_ok() || !store.has_results.load(Ordering::Relaxed) {
            let removed = store.file.lock().unwrap_or_else(PoisonError::into_inner).remove();
            // If the work failed, its error is the one to report.
            return done.and_then(|done| removed.map(|()| done).map_err(anyhow::Error::from));
        }
        done
    }

    /// Returns the journal of a named part of the command, in the same file.
    pub(crate) fn part(&self, name: &str) -> Self {
        Self { part: format!("{}{name}/", self.part), ..self.clone() }
    }

    /// Returns the journal without progress bars, for callers that show one.
    pub(crate) fn quiet(&self) -> Self {
        Self { is_quiet: true, ..self.clone() }
    }

    /// Computes the results of all inputs in parallel, except for those that the journal has, and
    /// returns them in the order of the inputs. `name` labels the progress bar and, with the
    /// input's index, identifies the results.
    ///
    /// # Errors
    /// If `compute` fails for an input, or if a result cannot be stored.
    pub(crate) fn results<I: Sync, R: Serialize + DeserializeOwned + Send>(
        &self,
        name: &str,
        inputs: &[I],
        compute: impl Fn(&I) -> anyhow::Result<R> + Sync,
    ) -> anyhow::Result<Vec<R>> {
        // Names the part of a longer command.
        let of = self.part.strip_suffix('/').map_or_else(String::new, |part| format!(" of {part}"));
        let bar = if self.is_quiet {
            ProgressBar::hidden()
        } else {
            progress_bar(inputs.len(), &format!("{name}{of}"))
        };
        let results = inputs.par_iter().enumerate().map(|(index, input)| {
            let result = self.result(&format!("{name} {index}"), || compute(input));
            bar.inc(1);
            result
        });
        let results = results.collect();
        bar.finish_and_clear();
        results
    }

    /// Returns the journal's result of a key, or computes and stores it.
    ///
    /// # Errors
    /// If `compute` fails, or if its result cannot be stored.
    pub(crate) fn result<R: Serialize + DeserializeOwned>(
        &self,
        key: &str,
        compute: impl FnOnce() -> anyhow::Result<R>,
    ) -> anyhow::Result<R> {
        let key = format!("{}{key}", self.part);
        // A result in the format of another version cannot be parsed and is ignored.
        let stored = self.store.results.get(&key).and_then(|stored| R::deserialize(stored).ok());
        if let Some(stored) = stored {
            return Ok(stored);
        }
        let result = compute()?;
        self.store.append(&Entry { key, result: serde_json::to_value(&result)? })?;
        Ok(result)
    }
}

impl JournalFile {
    fn open(path: &Path, command: &[String]) -> anyhow::Result<Self> {
        let header = JournalHeader::new(command);
        let mut locked = LockedFile::open(path)?;
        let cannot = || format!("{}: cannot store results in this file", path.display());
        let (found, mut results) = read_results(locked.file());
        if found.as_ref() != Some(&header) && !results.is_empty() {
            eprintln!(
                "warning: {}: discarded {} results that another command line, build or machine has \
                 left unfinished",
                path.display(),
                results.len()
            );
            results.clear();
        }
        let file = locked.file_mut();
        if results.is_empty() {
            file.set_len(0).with_context(cannot)?;
            writeln!(file, "{}", serde_json::to_string(&header)?).with_context(cannot)?;
        } else {
            // The last line may be incomplete if the command was stopped while writing it.
            writeln!(file).with_context(cannot)?;
            eprintln!("resuming with {} results of the same command, which was stopped", results.len());
        }
        let has_results = AtomicBool::new(!results.is_empty());
        Ok(Self { file: Mutex::new(locked), results, has_results })
    }

    fn append(&self, line: &Entry) -> anyhow::Result<()> {
        let line = serde_json::to_string(line)? + "\n";
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = file.file_mut().write_all(line.as_bytes());
        written.with_context(|| format!("{}: cannot write to this file", file.path().display()))?;
        self.has_results.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// Returns the header of a file, if its first line is one, and the results. Incomplete lines are
/// ignored.
fn read_results(file: &File) -> (Option<JournalHeader>, HashMap<String, Value>) {
    let mut lines = BufReader::new(file).lines().map_while(Result::ok);
    let header = lines.next().and_then(|line| serde_json::from_str(&line).ok());
    let results = lines.filter_map(|line| serde_json::from_str::<Entry>(&line).ok());
    (header, results.map(|line| (line.key, line.result)).collect())
}
