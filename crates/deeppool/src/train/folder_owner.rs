//! The owner of a folder of checkpoints: the one run that writes to it.
//!
//! A run creates the file `owner.json` in the folder, which names its host and process, and removes
//! it at its end. A file that a killed run has left does not hinder the next run: on the same host
//! the owner exists while its process exists, and on other hosts while the file is renewed, which
//! the owner does every 30 seconds. Of a run on several processes, rank 0 owns the folder.

use std::fmt::{self, Display, Formatter};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::CheckpointConfig;
use super::checkpoint_files::{checkpoint_error, checkpoint_write_error, list};
use crate::Error;

/// Name of the file that names the owner.
const FILE: &str = "owner.json";
/// Identifier of the format of the file.
const SCHEMA: &str = "deeppool/checkpoint-owner/v1";
/// Interval at which the owner renews the file.
const RENEWAL: Duration = Duration::from_secs(30);
/// Age of the file from which on an owner on another host counts as ended.
const STALE: Duration = Duration::from_secs(120);
/// Maximum number of attempts to become the owner while other runs end or try the same.
const ATTEMPTS: usize = 20;

/// Description of a run that owns a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    schema: String,
    /// Name of the host.
    host: String,
    /// Boot of the host and namespace of its process ids; `None` if they are not known. Process ids
    /// are comparable if hosts and spaces are equal.
    process_space: Option<String>,
    /// Process id.
    process: u32,
    /// Start of the process, in clock ticks since the boot; `None` if it is not known.
    started: Option<u64>,
    /// Job of Slurm that the process belongs to; `None` outside of Slurm.
    job: Option<SlurmJob>,
    /// Number that differs between the runs of a process.
    run: u64,
}

/// A job of Slurm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SlurmJob {
    /// Name of the cluster and number of the job.
    id: String,
    /// Number of times that the job was requeued. Its earlier processes have ended.
    requeued: u64,
}

impl SlurmJob {
    fn from_env() -> Option<Self> {
        let variable = |name| std::env::var(name).ok();
        let number = variable("SLURM_JOB_ID")?;
        let cluster = variable("SLURM_CLUSTER_NAME").unwrap_or_default();
        let requeued = variable("SLURM_RESTART_COUNT").and_then(|count| count.parse().ok()).unwrap_or(0);
        Some(Self { id: format!("{cluster}/{number}"), requeued })
    }
}

impl Owner {
    /// Describes a new run of this process.
    fn of_this_process() -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let host = fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let host = host.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default().trim().to_owned();
        let process_space = || {
            let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
            let space = fs::read_link("/proc/self/ns/pid").ok()?;
            Some(format!("{} {}", boot.trim(), space.display()))
        };
        let process = std::process::id();
        Self {
            schema: SCHEMA.into(),
            host,
            process_space: process_space(),
            process,
            started: start_time(process),
            job: SlurmJob::from_env(),
            run: RUNS.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Returns whether this run has not ended yet, from the point of view of the run `of`. `age` is
    /// the age of the file that describes this run.
    fn is_alive(&self, of: &Self, age: Duration) -> bool {
        if let (Some(job), Some(own)) = (&self.job, &of.job) {
            if job.id == own.id && job.requeued < own.requeued {
                return false;
            }
        }
        let is_here = self.host == of.host && self.process_space == of.process_space;
        if is_here && of.process_space.is_some() && self.started.is_some() && are_processes_visible() {
            return start_time(self.process) == self.started;
        }
        age < STALE
    }
}

impl Display for Owner {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on host `{}`", self.process, self.host)?;
        match &self.job {
            Some(job) => write!(f, " (Slurm job {})", job.id.trim_start_matches('/')),
            None => Ok(()),
        }
    }
}

/// Returns the start of a process in clock ticks since the boot. `None` if there is no such
/// process, it has ended, or the system has no `/proc`.
fn start_time(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may have spaces. The state follows it, and 19 fields later the start.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X");
    fields.nth(18)?.parse().ok().filter(|_| !has_ended)
}

/// Returns whether the processes of other users are visible in `/proc`.
fn are_processes_visible() -> bool {
    start_time(1).is_some()
}

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

    /// Returns the error of a run that cannot use the folder because of this owner.
    fn refusal(&self, folder: &Path) -> Error {
        let owner = self.owner.as_ref().map_or_else(|| "another run".into(), ToString::to_string);
        let problem = format!(
            "{owner} writes its checkpoints here: give each run its own folder, or take this one over with \
             --take-over if that run has ended"
        );
        checkpoint_error(folder, problem)
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
        let not_writable =
            |error| checkpoint_error(existing, format!("cannot write to this folder: {error}"));
        probe(existing).map_err(not_writable)?;
        if existing != folder {
            return Ok(());
        }
        match Found::read(folder)? {
            Some(found) if !self.take_over && found.is_alive(&Owner::of_this_process()) => {
                Err(found.refusal(folder))
            }
            _ => check_unused(self),
        }
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
        let failed =
            |error: std::io::Error| checkpoint_error(folder, format!("cannot write to this folder: {error}"));
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
            if !config.take_over && found.is_alive(&owner) {
                return Err(found.refusal(folder));
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(host: &str, process: u32, job: Option<(&str, u64)>) -> Owner {
        Owner {
            host: host.into(),
            process_space: Some("boot space".into()),
            process,
            started: Some(1),
            job: job.map(|(id, requeued)| SlurmJob { id: id.into(), requeued }),
            ..Owner::of_this_process()
        }
    }

    const RENEWED: Duration = Duration::from_secs(40);

    #[test]
    fn owners_on_other_hosts_are_alive_while_they_renew_their_file() {
        let own = owner("here", 2, None);
        let there = owner("there", 2, None);
        assert!(there.is_alive(&own, RENEWED) && !there.is_alive(&own, STALE));
        // Another container, or the same host after a reboot.
        let elsewhere = Owner { process_space: Some("other".into()), ..owner("here", 2, None) };
        assert!(elsewhere.is_alive(&own, RENEWED) && !elsewhere.is_alive(&own, STALE));
        let unknown = Owner { process_space: None, ..own.clone() };
        assert!(unknown.is_alive(&unknown, RENEWED) && !unknown.is_alive(&unknown, STALE));
    }

    #[test]
    fn a_requeued_job_replaces_its_earlier_processes() {
        let there = owner("there", 2, Some(("cluster/7", 0)));
        assert!(!there.is_alive(&owner("here", 3, Some(("cluster/7", 1))), RENEWED));
        assert!(there.is_alive(&owner("here", 3, Some(("cluster/7", 0))), RENEWED));
        assert!(there.is_alive(&owner("here", 3, Some(("cluster/8", 1))), RENEWED));
        assert!(there.is_alive(&owner("here", 3, None), RENEWED));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn owners_on_this_host_are_alive_while_their_process_exists() {
        let own = Owner::of_this_process();
        assert!(own.started.is_some());
        assert!(own.is_alive(&Owner::of_this_process(), STALE));
        // The process id is that of a later process.
        let reused = Owner { started: own.started.map(|started| started + 1), ..own.clone() };
        assert!(!reused.is_alive(&own, Duration::ZERO));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = child.id();
        // The state is that of a zombie until it is waited for.
        while start_time(process).is_some() {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(Path::new(&format!("/proc/{process}")).exists());
        child.wait().unwrap();
        assert!(!Owner { process, ..own.clone() }.is_alive(&own, Duration::ZERO));
    }
}
