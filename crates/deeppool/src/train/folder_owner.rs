//! The owner of a folder of checkpoints: the one run that writes to it.
//!
//! A run creates the file `owner.json` in the folder, which names its host and process, and removes
//! it at its end. A file that a killed run has left does not hinder the next run: on the same host
//! the owner exists while its process exists, and on other hosts while the file is renewed, which
//! the owner does every 30 seconds. Of a run on several processes, rank 0 owns the folder.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use super::CheckpointConfig;
use super::checkpoint_files::{checkpoint_error, checkpoint_write_error, list};
use super::owner::{Owner, STALE};
use crate::Error;

/// Name of the file that names the owner.
const FILE: &str = "owner.json";
/// Interval at which the owner renews the file.
const RENEWAL: Duration = Duration::from_secs(30);
/// Maximum number of attempts to become the owner while other runs end or try the same.
const ATTEMPTS: usize = 20;

/// Content of the file of an owner.
struct Found {
    bytes: Vec<u8>,
    /// The owner; `None` if the file is incomplete, such as while it is created.
    owner: Option<Owner>,
    /// Time since it was renewed, by the clock of the file system.
    age: Duration,
}

impl Found {
    /// Reads the file of a folder's owner. Returns `None` if the folder has none.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if it cannot be read.
    fn read(folder: &Path) -> Result<Option<Self>, Error> {
        let path = folder.join(FILE);
        let read = || -> std::io::Result<Self> {
            let bytes = fs::read(&path)?;
            let renewed = fs::metadata(&path)?.modified()?;
            let age = file_system_time(folder).duration_since(renewed).unwrap_or_default();
            Ok(Self { owner: serde_json::from_slice(&bytes).ok(), bytes, age })
        };
        match read() {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(checkpoint_error(&path, error)),
        }
    }

    fn is_alive(&self, own: &Owner) -> bool {
        self.owner.as_ref().map_or(self.age < STALE, |owner| owner.is_alive(own, self.age))
    }

    /// Checks that the run `own` may replace this owner.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if the owner's run has not ended, and `own` does not take the folder
    /// over.
    fn check_replaceable(&self, config: &CheckpointConfig, own: &Owner) -> Result<(), Error> {
        if config.take_over || !self.is_alive(own) {
            return Ok(());
        }
        let owner = self.owner.as_ref().map_or_else(|| "another run".into(), ToString::to_string);
        let problem = format!(
            "{owner} writes its checkpoints here: give each run its own folder, or take this one over with \
             --take-over if that run has ended"
        );
        Err(checkpoint_error(&config.folder, problem))
    }

    /// Removes the file, unless it is that of another owner by now.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if the file system fails.
    fn remove(&self, folder: &Path, own: &Owner) -> Result<(), Error> {
        let path = folder.join(FILE);
        let aside = folder.join(format!("{FILE}.{}-{}", own.process, own.run));
        // Of several runs, one renames a file.
        let removed = fs::rename(&path, &aside).and_then(|()| {
            if fs::read(&aside)? != self.bytes {
                // This keeps a file that was created meanwhile.
                fs::hard_link(&aside, &path)?;
            }
            fs::remove_file(&aside)
        });
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(checkpoint_error(&path, error)),
            _ => Ok(()),
        }
    }
}

/// Returns the current time by the clock of a folder's file system, or, if no file can be created
/// in the folder, by that of this host.
fn file_system_time(folder: &Path) -> SystemTime {
    probe(folder).unwrap_or_else(|_| SystemTime::now())
}

/// Creates and removes an empty file in a folder. Returns the time of its creation.
fn probe(folder: &Path) -> std::io::Result<SystemTime> {
    static PROBES: AtomicU64 = AtomicU64::new(0);
    let number = PROBES.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!(".probe-{}-{number}", std::process::id()));
    let created = File::create(&path).and_then(|file| file.metadata()?.modified());
    fs::remove_file(&path).and(created)
}

impl CheckpointConfig {
    /// Checks, before the work that precedes a run, that the folder can be written to, that no
    /// other run owns it, and that it has no checkpoints that the run does not resume from. Creates
    /// nothing. The run checks the same at its start.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if that is not so.
    pub fn check(&self) -> Result<(), Error> {
        let folder = &self.folder;
        // Folders that do not exist are created in the nearest one that exists.
        let parents =
            folder.ancestors().map(|at| if at.as_os_str().is_empty() { Path::new(".") } else { at });
        let existing =
            parents.into_iter().find(|at| fs::symlink_metadata(at).is_ok()).unwrap_or(Path::new("."));
        if !existing.is_dir() {
            return Err(checkpoint_error(existing, "this is not a folder: give another one"));
        }
        probe(existing).map_err(|error| not_writable(existing, &error))?;
        if existing != folder {
            return Ok(());
        }
        if let Some(found) = Found::read(folder)? {
            found.check_replaceable(self, &Owner::of_this_process())?;
        }
        check_unused(self)
    }
}

/// Checks that the folder has no checkpoints, if the run does not resume.
///
/// # Errors
/// [`Error::Checkpoint`] if it has, since the run would overwrite them, or if the folder cannot be
/// read.
pub(super) fn check_unused(config: &CheckpointConfig) -> Result<(), Error> {
    if config.resume {
        return Ok(());
    }
    match list(&config.folder)?.pop() {
        Some(newest) => {
            let problem = "the folder has checkpoints: resume from them, or give another folder";
            Err(checkpoint_error(&newest.path, problem))
        }
        None => Ok(()),
    }
}

fn not_writable(folder: &Path, error: &std::io::Error) -> Error {
    checkpoint_error(folder, format!("cannot write to this folder: {error}"))
}

/// Ownership of a folder, which ends when the value is dropped.
pub(super) struct FolderOwner {
    folder: PathBuf,
    owner: Owner,
    bytes: Vec<u8>,
    /// The file, which stays open: another owner has another file.
    file: Arc<Mutex<File>>,
    /// Whether this run created the folder.
    is_new: bool,
    /// The thread that renews the file, and the sender whose end ends it.
    renewal: Option<(Sender<()>, JoinHandle<()>)>,
}

impl FolderOwner {
    /// Becomes the owner of the folder of checkpoints, which is created if it does not exist.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if another run owns the folder and is not to be replaced, or if the
    /// folder cannot be written to.
    pub(super) fn acquire(config: &CheckpointConfig) -> Result<Self, Error> {
        let folder = &config.folder;
        let is_new = !folder.exists();
        fs::create_dir_all(folder).map_err(|error| checkpoint_error(folder, error))?;
        let owner = Owner::of_this_process();
        let failed = |error: std::io::Error| not_writable(folder, &error);
        let bytes = serde_json::to_vec(&owner).map_err(|error| failed(error.into()))?;
        for _ in 0..ATTEMPTS {
            match create(folder, &bytes) {
                Ok(file) => {
                    let file = Arc::new(Mutex::new(file));
                    let renewal = start_renewal(&file, &bytes).map_err(failed)?;
                    let folder = folder.clone();
                    return Ok(Self { folder, owner, bytes, file, is_new, renewal: Some(renewal) });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
            let Some(found) = Found::read(folder)? else { continue };
            found.check_replaceable(config, &owner)?;
            found.remove(folder, &owner)?;
        }
        Err(checkpoint_error(folder, "other runs are starting here: give each run its own folder"))
    }

    /// Checks that this run still owns the folder, and renews its file. A folder that was removed
    /// is created again.
    ///
    /// # Errors
    /// [`Error::CheckpointNotWritten`] if another run has taken the folder over, or the file system
    /// fails.
    pub(super) fn check(&self) -> Result<(), Error> {
        let path = self.folder.join(FILE);
        let failed = |error: std::io::Error| checkpoint_write_error(&path, error);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        match fs::read(&path) {
            Ok(bytes) if bytes == self.bytes => {
                renew(&mut file, &self.bytes);
                return Ok(());
            }
            Ok(_) => {}
            // Without the folder, no other run has removed the file at its end.
            Err(error) if error.kind() == ErrorKind::NotFound && !self.folder.exists() => {
                fs::create_dir_all(&self.folder).map_err(failed)?;
                match create(&self.folder, &self.bytes) {
                    Ok(created) => {
                        *file = created;
                        return Ok(());
                    }
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(failed(error)),
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let found = Found::read(&self.folder)?.and_then(|found| found.owner);
        let other = found.map_or_else(|| "another run".into(), |owner| owner.to_string());
        Err(checkpoint_write_error(
            &self.folder,
            format!("{other} has taken this folder over: this run ends"),
        ))
    }
}

impl Drop for FolderOwner {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.renewal.take() {
            drop(sender);
            // The thread does not panic.
            let _ = thread.join();
        }
        // Failures are ignored: a file that is left does not hinder later runs on this host.
        if let Ok(Some(found)) = Found::read(&self.folder) {
            if found.bytes == self.bytes {
                let _ = found.remove(&self.folder, &self.owner);
            }
        }
        if self.is_new {
            // Fails if the folder has checkpoints.
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

/// Creates the file of a folder's owner.
///
/// # Errors
/// `ErrorKind::AlreadyExists` if the folder has one. That of the operating system.
fn create(folder: &Path, bytes: &[u8]) -> std::io::Result<File> {
    let path = folder.join(FILE);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    if let Err(error) = file.write_all(bytes).and_then(|()| file.sync_all()) {
        // An incomplete file would hinder other runs for two minutes.
        let _ = fs::remove_file(&path);
        return Err(error);
    }
    Ok(file)
}

/// Writes the same content to an owner's file again, which sets its time. Failures are ignored: the
/// next renewal follows.
fn renew(file: &mut File, bytes: &[u8]) {
    let _ = file.rewind().and_then(|()| file.write_all(bytes)).and_then(|()| file.sync_data());
}

/// Starts the thread that renews an owner's file until the sender is dropped.
fn start_renewal(file: &Arc<Mutex<File>>, bytes: &[u8]) -> std::io::Result<(Sender<()>, JoinHandle<()>)> {
    let (file, bytes) = (Arc::clone(file), bytes.to_vec());
    let (sender, ended) = mpsc::channel();
    let thread = thread::Builder::new().name("checkpoint-owner".into()).spawn(move || {
        while ended.recv_timeout(RENEWAL) == Err(RecvTimeoutError::Timeout) {
            renew(&mut file.lock().unwrap_or_else(PoisonError::into_inner), &bytes);
        }
    })?;
    Ok((sender, thread))
}
