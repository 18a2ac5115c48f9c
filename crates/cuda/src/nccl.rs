//! NCCL's functions with plain result codes. The communicators, their waits and time-outs belong to
//! the user.
#![allow(unsafe_code)]
// The arguments are NCCL's.
#![allow(clippy::too_many_arguments)]

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cudarc::nccl::sys::{self, ncclResult_t};
pub use cudarc::nccl::sys::{ncclComm_t, ncclConfig_t, ncclDataType_t, ncclRedOp_t, ncclUniqueId};

use crate::library::Kind;
use crate::symbols::{Symbol, call, functions, one_line};
use crate::{Error, Result, Stream};

pub use crate::symbols::Code;

/// Result code of a call that is complete.
pub const SUCCESS: Code = ncclResult_t::ncclSuccess as Code;
/// Result code of a call that is not complete yet.
pub const IN_PROGRESS: Code = ncclResult_t::ncclInProgress as Code;

/// Result code for a function that the library lacks, which is not called.
const MISSING: Code = ncclResult_t::ncclInternalError as Code;

/// Oldest supported release, the first that can split a communicator: 2.18, in the format of
/// `ncclGetVersion`.
const MIN_VERSION: c_int = 21_800;

functions! {
    /// Functions of NCCL.
    NcclFunctions {
        ncclAllGather ncclAllReduce ncclBroadcast ncclCommAbort ncclCommDestroy ncclCommFinalize
        ncclCommGetAsyncError ncclCommInitRankConfig ncclCommSplit ncclGetErrorString ncclGetLastError
        ncclGetUniqueId ncclGetVersion ncclGroupEnd ncclGroupStart ncclRecv ncclReduceScatter ncclSend
    }
    optional {}
}

/// NCCL, loaded and never closed. A clone is another handle of it.
///
/// Each unsafe method has the safety conditions of NCCL's function of that name: handles are alive,
/// pointers are valid for the written values, addresses are memory of the communicator's device of
/// the given number of elements, and streams belong to that device.
#[derive(Clone)]
pub struct Nccl(Arc<NcclFunctions>);

/// Declares a method for each function.
macro_rules! methods {
    ($($(#[$meta:meta])* $method:ident = $name:ident ($($argument:ident: $type:ty),*);)*) => {
        impl Nccl {
            $($(#[$meta])*
            ///
            /// # Safety
            /// That of NCCL's function; see [`Nccl`].
            pub unsafe fn $method(&self, $($argument: $type),*) -> Code {
                // SAFETY: as the caller promises.
                unsafe { call!(self.0, sys::$name($($argument.into_argument()),*)) }.unwrap_or(MISSING)
            })*
        }
    };
}

methods! {
    /// Initializes a communicator.
    init_rank = ncclCommInitRankConfig
        (comm: *mut ncclComm_t, ranks: c_int, id: ncclUniqueId, rank: c_int, config: *mut ncclConfig_t);
    /// Divides a communicator by colors.
    split = ncclCommSplit
        (comm: ncclComm_t, color: c_int, key: c_int, new: *mut ncclComm_t, config: *mut ncclConfig_t);
    /// Completes the enqueued work of a communicator.
    finalize = ncclCommFinalize (comm: ncclComm_t);
    /// Destroys a communicator.
    destroy = ncclCommDestroy (comm: ncclComm_t);
    /// Ends a communicator's kernels without a result, and destroys it.
    abort = ncclCommAbort (comm: ncclComm_t);
    /// Begins a group of calls that are executed together.
    group_start = ncclGroupStart ();
    /// Ends a group of calls.
    group_end = ncclGroupEnd ();
    /// Reduces elements over all ranks.
    all_reduce = ncclAllReduce
        (send: *const c_void, receive: *mut c_void, count: usize, element: ncclDataType_t, op: ncclRedOp_t,
         comm: ncclComm_t, stream: &Stream);
    /// Copies the elements of one rank to all ranks.
    broadcast = ncclBroadcast
        (send: *const c_void, receive: *mut c_void, count: usize, element: ncclDataType_t, root: c_int,
         comm: ncclComm_t, stream: &Stream);
    /// Concatenates the elements of all ranks.
    all_gather = ncclAllGather
        (send: *const c_void, receive: *mut c_void, count: usize, element: ncclDataType_t, comm: ncclComm_t,
         stream: &Stream);
    /// Reduces elements over all ranks, with one chunk of the result on each.
    reduce_scatter = ncclReduceScatter
        (send: *const c_void, receive: *mut c_void, count: usize, element: ncclDataType_t, op: ncclRedOp_t,
         comm: ncclComm_t, stream: &Stream);
    /// Sends elements to a rank.
    send = ncclSend
        (buffer: *const c_void, count: usize, element: ncclDataType_t, peer: c_int, comm: ncclComm_t,
         stream: &Stream);
    /// Receives elements from a rank.
    receive = ncclRecv
        (buffer: *mut c_void, count: usize, element: ncclDataType_t, peer: c_int, comm: ncclComm_t,
         stream: &Stream);
}

impl Nccl {
    /// Opens NCCL: the file that the variable `NCCL_LIBRARY` names, or else that of emulated GPUs
    /// if `DEEPPOOL_EMULATED_GPUS` requests them, or else `libnccl.so` on the loader's search path,
    /// of the active Python environment or in CUDA's folder.
    ///
    /// # Errors
    /// [`Error::Unavailable`], which names what was looked for, where, and the remedy.
    pub fn open() -> Result<Self> {
        Kind::Nccl.open().and_then(|(library, path)| Self::load(library, &path))
    }

    /// Opens the first of these files that exists. A name without a folder is searched on the
    /// loader's path.
    ///
    /// # Errors
    /// [`Error::Unavailable`]. A file that exists but cannot be used ends the search.
    pub fn open_first_of(candidates: &[PathBuf]) -> Result<Self> {
        Kind::Nccl.open_first_of(candidates).and_then(|(library, path)| Self::load(library, &path))
    }

    fn load(library: &libloading::Library, path: &Path) -> Result<Self> {
        let functions =
            NcclFunctions::load(library).map_err(|missing| Kind::Nccl.incomplete(path, &missing))?;
        let nccl = Self(Arc::new(functions));
        let version = nccl.version()?;
        if version < MIN_VERSION {
            let version = format_version(version);
            let reason = format!("{} is NCCL {version}, which is older than 2.18", path.display());
            return Err(Error::Unavailable { library: Kind::Nccl.name(), reason });
        }
        Ok(nccl)
    }

    /// Returns the library's release in NCCL's format: 22809 is 2.28.9.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the error that NCCL reports.
    pub fn version(&self) -> Result<c_int> {
        let mut version = 0;
        // SAFETY: `version` is written.
        let code = unsafe { call!(self.0, sys::ncclGetVersion(&raw mut version)) };
        self.check(code).map(|()| version)
    }

    /// Creates the identifier of a new communicator, which its ranks share.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the error that NCCL reports.
    pub fn unique_id(&self) -> Result<ncclUniqueId> {
        let mut id = ncclUniqueId { internal: [0; 128] };
        // SAFETY: `id` is written.
        let code = unsafe { call!(self.0, sys::ncclGetUniqueId(&raw mut id)) };
        self.check(code).map(|()| id)
    }

    /// Returns the state of the communicator's current call: `SUCCESS`, `IN_PROGRESS` or an error.
    ///
    /// # Safety
    /// The handle is alive.
    pub unsafe fn progress(&self, comm: ncclComm_t) -> Code {
        let mut state = SUCCESS;
        // SAFETY: as the caller promises; `state` is written.
        let code = unsafe { call!(self.0, sys::ncclCommGetAsyncError(comm, (&raw mut state).cast())) };
        match code {
            Some(SUCCESS | IN_PROGRESS) => state,
            code => code.unwrap_or(MISSING),
        }
    }

    /// Returns the meaning of a result code, and the library's last message about the communicator
    /// `comm` if there is one. Errors without a communicator pass null.
    ///
    /// # Safety
    /// `comm` is null or alive.
    pub unsafe fn describe(&self, code: Code, comm: ncclComm_t) -> String {
        // cudarc's function takes its enumeration, which may lack the code.
        type ErrorString = unsafe extern "C" fn(Code) -> *const c_char;
        // cudarc's function does not return a code, for which `call` is made.
        type LastError = unsafe extern "C" fn(ncclComm_t) -> *const c_char;
        let (Some(error_string), Some(last_error)) = (self.0.ncclGetErrorString, self.0.ncclGetLastError)
        else {
            return String::new();
        };
        // SAFETY: the functions have these types. They return static strings, which are copied
        // before NCCL writes the next one.
        let (meaning, detail) = unsafe {
            let error_string = std::mem::transmute::<Symbol, ErrorString>(error_string);
            let last_error = std::mem::transmute::<Symbol, LastError>(last_error);
            (one_line(error_string(code)), one_line(last_error(comm)))
        };
        if detail.is_empty() { meaning } else { format!("{meaning}: {detail}") }
    }

    fn check(&self, code: Option<Code>) -> Result<()> {
        match code.unwrap_or(MISSING) {
            SUCCESS => Ok(()),
            code => {
                // SAFETY: the handle is null.
                let reason = unsafe { self.describe(code, std::ptr::null_mut()) };
                Err(Error::Unavailable { library: Kind::Nccl.name(), reason })
            }
        }
    }
}

impl fmt::Debug for Nccl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NCCL")
    }
}

/// Conversion of an argument of a method to that of NCCL's function.
trait IntoArgument {
    type Argument;
    fn into_argument(self) -> Self::Argument;
}

macro_rules! unchanged {
    ($($type:ty)*) => {
        $(impl IntoArgument for $type {
            type Argument = Self;
            fn into_argument(self) -> Self {
                self
            }
        })*
    };
}
unchanged!(c_int usize ncclUniqueId ncclComm_t ncclDataType_t ncclRedOp_t);
unchanged!(*mut ncclComm_t *mut ncclConfig_t *mut c_void *const c_void);

impl IntoArgument for &Stream {
    type Argument = sys::cudaStream_t;
    fn into_argument(self) -> sys::cudaStream_t {
        self.as_raw().cast()
    }
}

fn format_version(version: c_int) -> String {
    // Up to 2.8 the number of a minor release had two digits less.
    let major = if version < 10_000 { 1_000 } else { 10_000 };
    format!("{}.{}.{}", version / major, version % major / 100, version % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the message for files none of which can be opened.
    fn open_error(candidates: &[&Path]) -> String {
        let candidates: Vec<_> = candidates.iter().map(|path| path.to_path_buf()).collect();
        let error = Nccl::open_first_of(&candidates).unwrap_err();
        assert!(matches!(error, Error::Unavailable { library: "NCCL", .. }), "{error:?}");
        let message = error.to_string();
        assert_eq!(message.lines().count(), 1, "{message}");
        message
    }

    #[test]
    fn a_missing_library_is_one_line_with_the_searched_places_and_the_remedy() {
        let places = ["/nowhere/libnccl.so.2", "libnccl-of-nobody.so.2"];
        let message = open_error(&places.map(Path::new));
        for part in places.into_iter().chain(["nvidia-nccl-cu13", "LD_LIBRARY_PATH", "NCCL_LIBRARY"]) {
            assert!(message.contains(part), "{part}: {message}");
        }
    }

    #[test]
    fn a_file_that_is_no_library_is_named_with_the_loaders_error() {
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
        let message = open_error(&[Path::new("/nowhere/libnccl.so.2"), &text]);
        assert!(message.contains("README.md cannot be used as NCCL: "), "{message}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn another_library_is_refused() {
        let message = open_error(&[Path::new("libc.so.6")]);
        assert!(
            message.contains("libc.so.6 cannot be used as NCCL: ") && message.contains("ncclGetVersion"),
            "{message}"
        );
    }
}
