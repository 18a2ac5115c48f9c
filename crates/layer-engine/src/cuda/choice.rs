//! Choices among candidates that were made before, and the rule of the fastest.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Choices that were made before, by key, in memory and optionally in a file. A key names the
/// device, the versions of the libraries, the shape and the number format.
#[derive(Debug, Default)]
pub(super) struct Choices {
    file: Option<PathBuf>,
    known: Mutex<BTreeMap<String, String>>,
}

impl Choices {
    /// Reads the choices of a file, if it exists. Lines that are no choices are ignored: a file of
    /// another version only costs the time to choose again.
    pub(super) fn in_file(file: &Path) -> Self {
        let known = Mutex::new(read(file));
        Self { file: Some(file.to_owned()), known }
    }

    /// Returns the name of the candidate that was chosen for a key.
    pub(super) fn get(&self, key: &str) -> Option<String> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Records a choice, unless another process or device has recorded one for the key since that
    /// `is_possible`, and returns the one that is kept. All else that others have written to the
    /// file is kept, too. A file that cannot be written is left as it is: the choice is made again
    /// by the next process.
    pub(super) fn record(&self, key: &str, name: String, is_possible: impl FnOnce(&str) -> bool) -> String {
        // One device of this process at a time reads and writes files.
        static FILES: Mutex<()> = Mutex::new(());
        let _writing = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.file.as_deref().map(read).unwrap_or_default();
        for (key, name) in std::mem::take(&mut *known) {
            all.entry(key).or_insert(name);
        }
        let kept = all.remove(key).filter(|kept| is_possible(kept)).unwrap_or(name);
        all.insert(key.to_owned(), kept.clone());
        *known = all.clone();
        let Some(file) = &self.file else { return kept };
        let lines: Vec<String> = all.iter().map(|(key, name)| format!("{key}\t{name}\n")).collect();
        let part = file.with_extension(format!("{}.part", std::process::id()));
        let written =
            file.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&part, lines.concat()));
        if written.and_then(|()| fs::rename(&part, file)).is_err() {
            let _ = fs::remove_file(&part);
        }
        kept
    }
}

/// Returns the choices of a file; none if it cannot be read.
fn read(file: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once('\t'));
    lines.map(|(key, name)| (key.to_owned(), name.to_owned())).collect()
}

/// Returns the index of the fastest candidate. Times that differ by less than 2% count as equal: of
/// these the first is returned, so that repeated choices agree.
pub(super) fn fastest(times: &[Option<Duration>]) -> Option<usize> {
    let least = times.iter().flatten().min()?;
    times.iter().position(|time| time.is_some_and(|time| time.as_secs_f64() <= 1.02 * least.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_nearly_equal_times_is_fastest() {
        let us = |us| Some(Duration::from_micros(us));
        assert_eq!(fastest(&[us(200), None, us(101), us(100)]), Some(2));
        assert_eq!(fastest(&[None, us(110), us(100)]), Some(2));
        assert_eq!(fastest(&[None, None]), None);
    }

    #[test]
    fn files_keep_the_choices_of_all_processes() {
        let file = std::env::temp_dir().join(format!("choices-{}/kernels.tsv", std::process::id()));
        let [first, second] = [Choices::in_file(&file), Choices::in_file(&file)];
        first.record("a", "own".into(), |_| true);
        second.record("b", "cuDNN engine 1".into(), |_| true);
        // Of two choices for the same key, the first is kept if it is possible.
        assert_eq!(second.record("a", "cuDNN engine 2".into(), |kept| kept == "own"), "own");
        assert_eq!(second.record("b", "own".into(), |kept| kept == "own"), "own");
        second.record("b", "cuDNN engine 1".into(), |_| false);
        fs::write(&file, fs::read_to_string(&file).unwrap() + "no choice\n").unwrap();
        let third = Choices::in_file(&file);
        assert_eq!(third.get("a").as_deref(), Some("own"));
        assert_eq!(third.get("b").as_deref(), Some("cuDNN engine 1"));
        assert_eq!(third.get("no choice"), None);
        fs::remove_dir_all(file.parent().unwrap()).unwrap();
    }
}
