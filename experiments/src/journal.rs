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

use crate::machine::Machine;
use crate::progress::progress_bar;

/// Answers of a command that has not finished: a file of a line an answer, after a line that says which command of which program it is.
/// It is removed when the command has finished.
pub(crate) struct Journal {
    path: PathBuf,
    file: Mutex<File>,
    kept: HashMap<String, Value>,
    /// What the keys begin with.
    part: String,
    is_quiet: bool,
    /// Whether anything is kept, by this one or a part of it.
    is_worth_keeping: Arc<AtomicBool>,
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
        let Machine { processor, cores, .. } = Machine::here();
        let machine = format!("{}, {processor}, {cores} cores", host.trim());
        let files = command.iter().filter_map(|argument| stamp(Path::new(&value(argument)))).collect();
        Self { program, machine, command: command.to_vec(), files }
    }
}

impl Journal {
    /// The journal of a command in its folder: with the answers that are there already, if it is the same command of the same program on
    /// the same files.
    pub(crate) fn open(folder: &Path, name: &str, command: &[String]) -> anyhow::Result<Self> {
        let path = folder.join(format!(".{name}.unfinished"));
        let header = Header::new(command);
        let kept = kept(&path, &header);
        let cannot = || format!("{}: cannot keep answers in this file", path.display());
        if kept.is_empty() {
            // Another command that still writes to the old file must not write to this one.
            let _ = std::fs::remove_file(&path);
        }
        let mut file = OpenOptions::new().create(true).append(true).open(&path).with_context(cannot)?;
        if kept.is_empty() {
            writeln!(file, "{}", serde_json::to_string(&header)?).with_context(cannot)?;
        } else {
            // What was being written when the command was stopped may lack its end.
            writeln!(file).with_context(cannot)?;
            eprintln!("going on with {} answers of the same command, which was stopped", kept.len());
        }
        let is_worth_keeping = Arc::new(AtomicBool::new(!kept.is_empty()));
        Ok(Self {
            path,
            file: Mutex::new(file),
            kept,
            part: String::new(),
            is_quiet: false,
            is_worth_keeping,
        })
    }

    /// The same file for a part of the command.
    pub(crate) fn part(&self, name: &str) -> anyhow::Result<Self> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner).try_clone()?;
        let part = format!("{}{name}/", self.part);
        let of_part = self.kept.iter().filter(|(key, _)| key.starts_with(&part));
        let kept = of_part.map(|(key, answer)| (key.clone(), answer.clone())).collect();
        Ok(Self {
            path: self.path.clone(),
            file: Mutex::new(file),
            kept,
            part,
            is_quiet: self.is_quiet,
            is_worth_keeping: Arc::clone(&self.is_worth_keeping),
        })
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

    /// The same without bars, where another one is shown.
    pub(crate) fn quiet(self) -> Self {
        Self { is_quiet: true, ..self }
    }

    /// The answer to one question, if it is not known.
    pub(crate) fn answer<A: Serialize + DeserializeOwned>(
        &self,
        key: &str,
        answer: impl FnOnce() -> anyhow::Result<A>,
    ) -> anyhow::Result<A> {
        let key = format!("{}{key}", self.part);
        // What another version has written in another form is not an answer.
        if let Some(known) = self.kept.get(&key).and_then(|known| serde_json::from_value(known.clone()).ok())
        {
            return Ok(known);
        }
        let answer = answer()?;
        let line = serde_json::to_string(&Line { key, answer: serde_json::to_value(&answer)? })? + "\n";
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = file.write_all(line.as_bytes());
        written.with_context(|| format!("{}: cannot write to this file", self.path.display()))?;
        self.is_worth_keeping.store(true, Ordering::Relaxed);
        Ok(answer)
    }

    /// The command has failed: without answers there is nothing to go on with.
    pub(crate) fn give_up(self) {
        if !self.is_worth_keeping.load(Ordering::Relaxed) {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// The command has finished: there is nothing to go on with.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        match std::fs::remove_file(&self.path) {
            // Another command in the same folder was faster.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.with_context(|| format!("{}: cannot remove this file", self.path.display())),
        }
    }
}

/// The answers in a file of this header. A line that is not whole is none.
fn kept(path: &Path, header: &Header) -> HashMap<String, Value> {
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
