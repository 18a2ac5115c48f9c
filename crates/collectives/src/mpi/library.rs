//! Calls of Open MPI that initialize and finalize it and create communicators. A function returns
//! `LibraryFailure`, the library's message, if a call fails.
//!
//! MPI is initialized for several threads. Calls that move data are made under the lock of
//! `SharedOperations`, but the creation of a communicator blocks and must not stop the rest of the
//! process, and any thread may have to abort the job.
#![allow(clippy::cast_possible_wrap, reason = "ranks, tags and checked lengths fit into a C `int`")]
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use mpi::ffi;

/// Name of the library in errors.
pub(super) const NAME: &str = "Open MPI";

const _: () =
    assert!(ffi::OPEN_MPI == 1, "feature `mpi` needs Open MPI: other libraries differ in `MPI_IN_PLACE`");

/// Message of the library about a failed call.
#[derive(Debug)]
pub(super) struct LibraryFailure(pub(super) String);

/// Checks the return code of a call.
#[inline]
pub(super) fn check(code: c_int) -> Result<(), LibraryFailure> {
    if code == ffi::MPI_SUCCESS as c_int { Ok(()) } else { Err(failure(code)) }
}

#[cold]
fn failure(code: c_int) -> LibraryFailure {
    let mut text: [c_char; ffi::MPI_MAX_ERROR_STRING as usize + 1] =
        [0; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut len = 0;
    // SAFETY: the text has room for the library's longest message and a zero.
    let known =
        unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr(), &raw mut len) } == ffi::MPI_SUCCESS as c_int;
    // SAFETY: the text ends with a zero, at the latest in its last element.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) };
    LibraryFailure(if known { text.to_string_lossy().into_owned() } else { format!("error {code}") })
}

/// Handle of a communicator of the library. It is valid until the communicator is freed or MPI is
/// finalized.
#[derive(Debug, Clone, Copy)]
pub(super) struct Comm(pub(super) ffi::MPI_Comm);

// SAFETY: a handle without state, which MPI lets all threads use.
unsafe impl Send for Comm {}
// SAFETY: as above.
unsafe impl Sync for Comm {}

/// Communicator of all ranks and its properties, known after the initialization.
pub(super) struct WorldInfo {
    /// Communicator of all ranks, separate from the `MPI_COMM_WORLD` that the program may use.
    pub(super) comm: Comm,
    /// This rank's number in the communicator.
    pub(super) rank: usize,
    /// Number of ranks of the communicator.
    pub(super) size: usize,
    /// Largest tag that the library supports for a message.
    pub(super) max_tag: c_int,
}

/// Maximum number of bytes of a message that Open MPI sends eagerly (without a handshake) within a
/// host: the eager limit that this crate sets, without Open MPI's own header of 112 bytes.
pub(super) const EAGER_BYTES: usize = EAGER_LIMIT - 112;

/// Eager limit in bytes: twice Open MPI's default.
const EAGER_LIMIT: usize = 8 << 10;

/// Environment variable of Open MPI's eager limit. Only this sets it in a process to which `mpirun`
/// did not pass it.
const EAGER_LIMIT_VARIABLE: &str = "OMPI_MCA_btl_vader_eager_limit";

/// Initializes MPI for several threads. A process can do so once.
pub(super) fn initialize() -> Result<WorldInfo, LibraryFailure> {
    let mut initialized = 0;
    // SAFETY: may be called at any time; the argument is a live integer.
    check(unsafe { ffi::MPI_Initialized(&raw mut initialized) })?;
    if initialized != 0 {
        return Err(LibraryFailure("this process has initialized MPI before: clone the communicator".into()));
    }
    if std::env::var_os(EAGER_LIMIT_VARIABLE).is_none() {
        // SAFETY: the caller does not access the environment in other threads, as the
        // initialization below also requires, because it sets variables itself.
        unsafe { std::env::set_var(EAGER_LIMIT_VARIABLE, EAGER_LIMIT.to_string()) };
    }
    let mut provided = 0;
    // SAFETY: not initialized yet; both arguments may be null, and the last one is a live integer.
    check(unsafe {
        ffi::MPI_Init_thread(ptr::null_mut(), ptr::null_mut(), ffi::RSMPI_THREAD_MULTIPLE, &raw mut provided)
    })?;
    // SAFETY: constants of the library.
    if provided < unsafe { ffi::RSMPI_THREAD_MULTIPLE } {
        return Err(LibraryFailure("it was built without MPI_THREAD_MULTIPLE".into()));
    }
    // SAFETY: initialized; every out argument is live.
    unsafe {
        let everyone = ffi::RSMPI_COMM_WORLD;
        check(ffi::MPI_Comm_set_errhandler(everyone, ffi::RSMPI_ERRORS_RETURN))?;
        let mut comm = ffi::RSMPI_COMM_NULL;
        check(ffi::MPI_Comm_dup(everyone, &raw mut comm))?;
        let (mut rank, mut size) = (0, 0);
        check(ffi::MPI_Comm_rank(comm, &raw mut rank))?;
        check(ffi::MPI_Comm_size(comm, &raw mut size))?;
        Ok(WorldInfo {
            comm: returning_errors(comm)?,
            rank: rank as usize,
            size: size as usize,
            max_tag: max_tag()?,
        })
    }
}

fn max_tag() -> Result<c_int, LibraryFailure> {
    let (mut attribute, mut found): (*const c_int, c_int) = (ptr::null(), 0);
    let out: *mut *const c_int = &raw mut attribute;
    // SAFETY: initialized; MPI writes the address of one of its integers through `out`.
    check(unsafe {
        ffi::MPI_Comm_get_attr(
            ffi::RSMPI_COMM_WORLD,
            ffi::MPI_TAG_UB as c_int,
            out.cast::<c_void>(),
            &raw mut found,
        )
    })?;
    if found == 0 || attribute.is_null() {
        return Err(LibraryFailure("it does not report its largest tag".into()));
    }
    // SAFETY: not null, and the attribute lives until MPI is finalized.
    Ok(unsafe { *attribute })
}

/// Creates the communicator of some `ranks` of `parent`. Returns when all of them have made the
/// call with the same `tag`.
pub(super) fn create_group(parent: Comm, ranks: &[usize], tag: c_int) -> Result<Comm, LibraryFailure> {
    let ranks: Vec<c_int> = ranks.iter().map(|&rank| rank as c_int).collect();
    // SAFETY: initialized; the list has the given length, its ranks are distinct members of the
    // parent, and both groups are freed on every path.
    unsafe {
        let (mut whole, mut part) = (ffi::RSMPI_GROUP_NULL, ffi::RSMPI_GROUP_NULL);
        let mut comm = ffi::RSMPI_COMM_NULL;
        check(ffi::MPI_Comm_group(parent.0, &raw mut whole))?;
        let mut created =
            check(ffi::MPI_Group_incl(whole, ranks.len() as c_int, ranks.as_ptr(), &raw mut part));
        if created.is_ok() {
            created = check(ffi::MPI_Comm_create_group(parent.0, part, tag, &raw mut comm));
            ffi::MPI_Group_free(&raw mut part);
        }
        ffi::MPI_Group_free(&raw mut whole);
        created.and_then(|()| returning_errors(comm))
    }
}

/// Frees a communicator on which no operation is pending. Open MPI frees this process's part
/// without waiting for other ranks.
pub(super) fn free(mut comm: Comm) -> Result<(), LibraryFailure> {
    // SAFETY: a communicator of `create_group`, and this is its last handle.
    check(unsafe { ffi::MPI_Comm_free(&raw mut comm.0) })
}

/// Makes the library return errors of a communicator instead of aborting.
///
/// # Safety
/// `comm` is a valid communicator.
unsafe fn returning_errors(comm: ffi::MPI_Comm) -> Result<Comm, LibraryFailure> {
    // SAFETY: as the caller promises.
    check(unsafe { ffi::MPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN) })?;
    Ok(Comm(comm))
}

/// Returns the sender (a rank of `comm`) and the number of 64-bit words of the next message with
/// this tag. `None` if none has arrived.
pub(super) fn probe(comm: Comm, tag: c_int) -> Result<Option<(usize, usize)>, LibraryFailure> {
    let (mut found, mut words) = (0, 0);
    // SAFETY: a status consists of integers, for which zero is valid.
    let mut status: ffi::MPI_Status = unsafe { std::mem::zeroed() };
    // SAFETY: a live communicator and live out arguments.
    unsafe {
        check(ffi::MPI_Iprobe(ffi::RSMPI_ANY_SOURCE, tag, comm.0, &raw mut found, &raw mut status))?;
        if found == 0 {
            return Ok(None);
        }
        check(ffi::MPI_Get_count(&raw const status, ffi::RSMPI_UINT64_T, &raw mut words))?;
    }
    Ok(Some((status.MPI_SOURCE as usize, words.max(0) as usize)))
}

/// Finalizes MPI, which waits for all ranks to do so.
pub(super) fn finalize() {
    // SAFETY: initialized, and no operation is pending. No caller is left to report a failure to.
    let _ = unsafe { ffi::MPI_Finalize() };
}

/// Aborts all ranks of the job.
pub(super) fn abort() {
    // SAFETY: initialized and not finalized; any thread may call it.
    let _ = unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, 1) };
}
