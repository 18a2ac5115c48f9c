//! The calls into Open MPI that start it, end it and make communicators.
//!
//! MPI is initialised for several threads: whatever moves data is called under the engine's lock all the same, but making
//! a communicator blocks and must not stop the rest of the process, and any thread may have to end the job.
#![allow(clippy::cast_possible_wrap, reason = "ranks, tags and checked lengths fit into a C `int`")]
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use mpi::ffi;

/// The library's name in errors.
pub(super) const NAME: &str = "Open MPI";

const _: () =
    assert!(ffi::OPEN_MPI == 1, "feature `mpi` needs Open MPI: other libraries differ in `MPI_IN_PLACE`");

/// The library's message for a call that failed.
#[derive(Debug)]
pub(super) struct Failure(pub(super) String);

/// A call's return code as a result.
#[inline]
pub(super) fn check(code: c_int) -> Result<(), Failure> {
    if code == ffi::MPI_SUCCESS as c_int { Ok(()) } else { Err(failure(code)) }
}

#[cold]
fn failure(code: c_int) -> Failure {
    let mut text: [c_char; ffi::MPI_MAX_ERROR_STRING as usize + 1] =
        [0; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut len = 0;
    // SAFETY: the text has room for the longest string that the library promises, and a zero beyond it.
    let known =
        unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr(), &raw mut len) } == ffi::MPI_SUCCESS as c_int;
    // SAFETY: the text ends with a zero, by its last element at the latest.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) };
    Failure(if known { text.to_string_lossy().into_owned() } else { format!("error {code}") })
}

/// A communicator of the library, which lives until it is freed or the process leaves MPI.
#[derive(Debug, Clone, Copy)]
pub(super) struct Comm(pub(super) ffi::MPI_Comm);

// SAFETY: a handle without state of its own, and MPI lets all threads use it.
unsafe impl Send for Comm {}
// SAFETY: as above.
unsafe impl Sync for Comm {}

/// What initialisation gives.
pub(super) struct World {
    /// All ranks, apart from what the program itself may do with MPI's own communicator.
    pub(super) comm: Comm,
    pub(super) rank: usize,
    pub(super) size: usize,
    /// The largest tag of a message.
    pub(super) largest_tag: c_int,
}

/// Bytes that Open MPI sends at once within a host, in messages of [`EAGER_LIMIT`] with its own header.
pub(super) const EAGER_BYTES: usize = EAGER_LIMIT - 112;

/// Twice Open MPI's default.
const EAGER_LIMIT: usize = 8 << 10;

/// Open MPI's parameter for it, as an environment variable: the one way to set it in a process that `mpirun` did not give it.
const EAGER_LIMIT_VARIABLE: &str = "OMPI_MCA_btl_vader_eager_limit";

/// Initialises MPI, which a process can do once.
pub(super) fn initialise() -> Result<World, Failure> {
    let mut initialised = 0;
    // SAFETY: may be called at any time; the argument is a live integer.
    check(unsafe { ffi::MPI_Initialized(&raw mut initialised) })?;
    if initialised != 0 {
        return Err(Failure("this process has initialised MPI before: clone the communicator".into()));
    }
    if std::env::var_os(EAGER_LIMIT_VARIABLE).is_none() {
        // SAFETY: nothing else may use the environment just now, as the initialisation below asks too: it sets variables of its
        // own.
        unsafe { std::env::set_var(EAGER_LIMIT_VARIABLE, EAGER_LIMIT.to_string()) };
    }
    let mut provided = 0;
    // SAFETY: not initialised yet; MPI takes null for both arguments, and the last one is a live integer.
    check(unsafe {
        ffi::MPI_Init_thread(ptr::null_mut(), ptr::null_mut(), ffi::RSMPI_THREAD_MULTIPLE, &raw mut provided)
    })?;
    // SAFETY: constants of the library.
    if provided < unsafe { ffi::RSMPI_THREAD_MULTIPLE } {
        return Err(Failure("it was built without MPI_THREAD_MULTIPLE".into()));
    }
    // SAFETY: initialised; every out argument is live.
    unsafe {
        let everyone = ffi::RSMPI_COMM_WORLD;
        check(ffi::MPI_Comm_set_errhandler(everyone, ffi::RSMPI_ERRORS_RETURN))?;
        let mut comm = ffi::RSMPI_COMM_NULL;
        check(ffi::MPI_Comm_dup(everyone, &raw mut comm))?;
        let (mut rank, mut size) = (0, 0);
        check(ffi::MPI_Comm_rank(comm, &raw mut rank))?;
        check(ffi::MPI_Comm_size(comm, &raw mut size))?;
        Ok(World {
            comm: returning_errors(comm)?,
            rank: rank as usize,
            size: size as usize,
            largest_tag: largest_tag()?,
        })
    }
}

fn largest_tag() -> Result<c_int, Failure> {
    let (mut attribute, mut found): (*const c_int, c_int) = (ptr::null(), 0);
    let out: *mut *const c_int = &raw mut attribute;
    // SAFETY: initialised; MPI writes the address of an integer of its own through `out`.
    check(unsafe {
        ffi::MPI_Comm_get_attr(
            ffi::RSMPI_COMM_WORLD,
            ffi::MPI_TAG_UB as c_int,
            out.cast::<c_void>(),
            &raw mut found,
        )
    })?;
    if found == 0 || attribute.is_null() {
        return Err(Failure("it does not say which tags it has".into()));
    }
    // SAFETY: not null, and the attribute lives as long as MPI does.
    Ok(unsafe { *attribute })
}

/// Makes the communicator of some `ranks` of another one; returns when all of them have called it with the same `tag`.
pub(super) fn create_group(parent: Comm, ranks: &[usize], tag: c_int) -> Result<Comm, Failure> {
    let ranks: Vec<c_int> = ranks.iter().map(|&rank| rank as c_int).collect();
    // SAFETY: initialised; the list is as long as its length says, its ranks are distinct and in the parent, and both
    // groups are freed on every way out.
    unsafe {
        let (mut whole, mut part) = (ffi::RSMPI_GROUP_NULL, ffi::RSMPI_GROUP_NULL);
        let mut comm = ffi::RSMPI_COMM_NULL;
        check(ffi::MPI_Comm_group(parent.0, &raw mut whole))?;
        let mut made = check(ffi::MPI_Group_incl(whole, ranks.len() as c_int, ranks.as_ptr(), &raw mut part));
        if made.is_ok() {
            made = check(ffi::MPI_Comm_create_group(parent.0, part, tag, &raw mut comm));
            ffi::MPI_Group_free(&raw mut part);
        }
        ffi::MPI_Group_free(&raw mut whole);
        made.and_then(|()| returning_errors(comm))
    }
}

/// Frees a communicator in which nothing is pending. Open MPI frees this process's part of it without waiting for other
/// ranks.
pub(super) fn free(mut comm: Comm) -> Result<(), Failure> {
    // SAFETY: a communicator that was made by `create_group`, and whose last handle this is.
    check(unsafe { ffi::MPI_Comm_free(&raw mut comm.0) })
}

/// # Safety
/// `comm` is a communicator.
unsafe fn returning_errors(comm: ffi::MPI_Comm) -> Result<Comm, Failure> {
    // SAFETY: as the caller promises.
    check(unsafe { ffi::MPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN) })?;
    Ok(Comm(comm))
}

/// Whether a message with this tag is there: its sender and how many words it has.
pub(super) fn probe(comm: Comm, tag: c_int) -> Result<Option<(usize, usize)>, Failure> {
    let (mut found, mut words) = (0, 0);
    // SAFETY: a status is plain integers, for which zero is a value.
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

/// Finalises MPI, which waits for all ranks to do so.
pub(super) fn finalise() {
    // SAFETY: initialised, and nothing is pending. There is no caller left to report a failure to.
    let _ = unsafe { ffi::MPI_Finalize() };
}

/// Ends all ranks of the job.
pub(super) fn abort() {
    // SAFETY: initialised and not finalised; any thread may call it.
    let _ = unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, 1) };
}
