//! What keeps the answers of long work as they come, so that the same command goes on after it was stopped.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use indicatif::ProgressBar;
use rayon::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::machine::hardware;
use crate::progress::progress_bar;

/// Answers of a command that has not finished, or of a part of it.
#[derive(Clone)]
pub(crate) struct Journal {
    kept: Arc<Kept>,
    /// What the keys of the part begin with.
    part: String,
    is_quiet: bool,
}

/// A file of a line an answer, after a line that says which command of which program it is, and the answers that were there.
struct Kept {
    path: PathBuf,
    file: Mutex<File>,
    answers: HashMap<String, Value>,
    /// Whether there are any answers by now.
    is_worth_keeping: AtomicBool,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    /// Length and time of the program's file: another build may answer otherwise.
    program: String,
    /// What is measured on one machine is no answer for another.
    machine: String,
    command: Vec<String>,
    /// The same of the files that the command names.
    files: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    key: String,
    answer: Value,
}

impl Header {
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
    /// Does the work of a command with its journal in a folder: with the answers that are there already, if it is the same command of the
    /// same program on the same files. When the work is done there is nothing to go on with, and the file is removed; also when it has
    /// failed without an answer.
    pub(crate) fn keep<T>(
        folder: &Path,
        name: &str,
        command: &[String],
        work: impl FnOnce(&Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let kept = Arc::new(Kept::open(folder.join(format!(".{name}.unfinished")), command)?);
        let journal = Self { kept: Arc::clone(&kept), part: String::new(), is_quiet: false };
        let done = work(&journal);
        if done.is_ok() || !kept.is_worth_keeping.load(Ordering::Relaxed) {
            match std::fs::remove_file(&kept.path) {
                // What has failed says why itself, and another command in the same folder may have been faster.
                Err(error) if done.is_ok() && error.kind() != ErrorKind::NotFound => {
                    let cannot = format!("{}: cannot remove this file", kept.path.display());
                    return Err(error).context(cannot);
                }
                _ => {}
            }
        }
        done
    }

    /// The same file for a part of the command.
    pub(crate) fn part(&self, name: &str) -> Self {
        Self { part: format!("{}{name}/", self.part), ..self.clone() }
    }

    /// The same without bars, where another one is shown.
    pub(crate) fn quiet(&self) -> Self {
        Self { is_quiet: true, ..self.clone() }
    }

    /// The answers to questions, which are answered side by side, but for those that are known. On a terminal a bar shows how far it is.
    pub(crate) fn answers<Q: Sync, A: Serialize + DeserializeOwned + Send>(
        &self,
        what: &str,
        questions: &[Q],
        answer: impl Fn(&Q) -> anyhow::Result<A> + Sync,
    ) -> anyhow::Result<Vec<A>> {
        // Which part of a longer command it is.
        let of = self.part.strip_suffix('/').map_or_else(String::new, |part| format!(" of {part}"));
        let bar = if self.is_quiet {
            ProgressBar::hidden()
        } else {
            progress_bar(questions.len(), &format!("{what}{of}"))
        };
        let answers = questions.par_iter().enumerate().map(|(index, question)| {
            let answer = self.answer(&format!("{what} {index}"), || answer(question));
            bar.inc(1);
            answer
        });
        let answers = answers.collect();
        bar.finish_and_clear();
        answers
    }

    /// The answer to one question, if it is not known.
    pub(crate) fn answer<A: Serialize + DeserializeOwned>(
        &self,
        key: &str,
        answer: impl FnOnce() -> anyhow::Result<A>,
    ) -> anyhow::Result<A> {
        let key = format!("{}{key}", self.part);
        // What another version has written in another form is not an answer.
        let known = self.kept.answers.get(&key).and_then(|known| A::deserialize(known).ok());
        if let Some(known) = known {
            return Ok(known);
        }
        let answer = answer()?;
        self.kept.append(&Line { key, answer: serde_json::to_value(&answer)? })?;
        Ok(answer)
    }
}

impl Kept {
    fn open(path: PathBuf, command: &[String]) -> anyhow::Result<Self> {
        let header = Header::new(command);
        let answers = answers_in(&path, &header);
        let cannot = || format!("{}: cannot keep answers in this file", path.display());
        if answers.is_empty() {
            // Another command that still writes to the old file must not write to this one.
            let _ = std::fs::remove_file(&path);
        }
        let mut file = OpenOptions::new().create(true).append(true).open(&path).with_context(cannot)?;
        if answers.is_empty() {
            writeln!(file, "{}", serde_json::to_string(&header)?).with_context(cannot)?;
        } else {
            // What was being written when the command was stopped may lack its end.
            writeln!(file).with_context(cannot)?;
            eprintln!("going on with {} answers of the same command, which was stopped", answers.len());
        }
        let is_worth_keeping = AtomicBool::new(!answers.is_empty());
        Ok(Self { path, file: Mutex::new(file), answers, is_worth_keeping })
    }

    fn append(&self, line: &Line) -> anyhow::Result<()> {
        let line = serde_json::to_string(line)? + "\n";
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = file.write_all(line.as_bytes());
        written.with_context(|| format!("{}: cannot write to this file", self.path.display()))?;
        self.is_worth_keeping.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// The answers in a file of this header. A line that is not whole is none.
fn answers_in(path: &Path, header: &Header) -> HashMap<String, Value> {
    let Ok(file) = File::open(path) else { return HashMap::new() };
    let mut lines = BufReader::new(file).lines().map_while(Result::ok);
    let is_same = lines
        .next()
        .and_then(|line| serde_json::from_str::<Header>(&line).ok())
        .is_some_and(|found| found == *header);
    if !is_same {
        return HashMap::new();
    }
    let answers = lines.filter_map(|line| serde_json::from_str::<Line>(&line).ok());
    answers.map(|line| (line.key, line.answer)).collect()
}
