//! Table of the functions of NCCL that the backend uses.
//!
//! Result codes are plain integers, because a newer library has codes that cudarc's enumeration
//! lacks.
#![allow(unsafe_code)]
// The arguments are NCCL's.
#![allow(clippy::too_many_arguments)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;

use cudarc::nccl::sys;
use libloading::Library;

/// Result code of a function of NCCL: `SUCCESS`, `IN_PROGRESS` or an error.
pub(super) type Code = c_uint;

/// Result code of a call that is complete.
pub(super) const SUCCESS: Code = sys::ncclResult_t::ncclSuccess as Code;
/// Result code of a call that is not complete yet.
pub(super) const IN_PROGRESS: Code = sys::ncclResult_t::ncclInProgress as Code;

/// NCCL's handle of a communicator on one rank.
pub(super) type Handle = sys::ncclComm_t;

/// Handle of a CUDA stream.
pub(super) type RawStream = sys::cudaStream_t;

/// Identifier of a new communicator, 128 bytes, which its first rank creates and sends to the
/// others.
pub(super) type UniqueId = sys::ncclUniqueId;

macro_rules! functions {
    ($($method:ident = $symbol:literal ($($argument:ident: $type:ty),*);)*) => {
        /// Functions of the library.
        ///
        /// Each has the safety requirements of NCCL's function of that name: handles are
        /// alive, pointers are valid for the written values, and streams belong to the
        /// handle's device.
        pub(super) struct Functions {
            $($method: unsafe extern "C" fn($($type),*) -> Code,)*
            error_string: unsafe extern "C" fn(Code) -> *const c_char,
            last_error: unsafe extern "C" fn(Handle) -> *const c_char,
        }

        impl Functions {
            /// Looks up all functions. An error if the library lacks one of them.
            ///
            /// # Safety
            /// `library` is NCCL and is never closed.
            pub(super) unsafe fn load(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: the signatures are those of nccl.h.
                unsafe {
                    Ok(Self {
                        $($method: *library.get($symbol)?,)*
                        error_string: *library.get(b"ncclGetErrorString\0")?,
                        last_error: *library.get(b"ncclGetLastError\0")?,
                    })
                }
            }
        }

        impl Functions {
            $(pub(super) unsafe fn $method(&self, $($argument: $type),*) -> Code {
                // SAFETY: as the caller promises.
                unsafe { (self.$method)($($argument),*) }
            })*

            /// Returns the meaning of a code.
            fn error_string(&self, code: Code) -> String {
                // SAFETY: NCCL returns a static string for any code.
                unsafe { text((self.error_string)(code)) }
            }

            /// Returns the last message about a communicator, or about anything for a null handle.
            unsafe fn last_error(&self, comm: Handle) -> String {
                // SAFETY: as the caller promises; the string is copied before NCCL writes the next
                // one.
                unsafe { text((self.last_error)(comm)) }
            }
        }
    };
}

functions! {
    get_version = b"ncclGetVersion\0" (version: *mut c_int);
    get_unique_id = b"ncclGetUniqueId\0" (id: *mut UniqueId);
    init_rank = b"ncclCommInitRankConfig\0"
        (comm: *mut Handle, ranks: c_int, id: UniqueId, rank: c_int, config: *mut sys::ncclConfig_t);
    split = b"ncclCommSplit\0"
        (comm: Handle, color: c_int, key: c_int, new: *mut Handle, config: *mut sys::ncclConfig_t);
    async_error = b"ncclCommGetAsyncError\0" (comm: Handle, state: *mut Code);
    finalize = b"ncclCommFinalize\0" (comm: Handle);
    destroy = b"ncclCommDestroy\0" (comm: Handle);
    abort = b"ncclCommAbort\0" (comm: Handle);
    group_start = b"ncclGroupStart\0" ();
    group_end = b"ncclGroupEnd\0" ();
    all_reduce = b"ncclAllReduce\0"
        (send: *const c_void, receive: *mut c_void, count: usize, element: c_uint, op: c_uint, comm: Handle,
         stream: RawStream);
    broadcast = b"ncclBroadcast\0"
        (send: *const c_void, receive: *mut c_void, count: usize, element: c_uint, root: c_int, comm: Handle,
         stream: RawStream);
    all_gather = b"ncclAllGather\0"
        (send: *const c_void, receive: *mut c_void, count: usize, element: c_uint, comm: Handle,
         stream: RawStream);
    reduce_scatter = b"ncclReduceScatter\0"
        (send: *const c_void, receive: *mut c_void, count: usize, element: c_uint, op: c_uint, comm: Handle,
         stream: RawStream);
    send = b"ncclSend\0"
        (buffer: *const c_void, count: usize, element: c_uint, peer: c_int, comm: Handle, stream: RawStream);
    receive = b"ncclRecv\0"
        (buffer: *mut c_void, count: usize, element: c_uint, peer: c_int, comm: Handle, stream: RawStream);
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NCCL")
    }
}

/// Converts a string of the library to one line.
///
/// # Safety
/// `string` is null or a C string.
unsafe fn text(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: not null, so a C string.
    let string = unsafe { CStr::from_ptr(string) }.to_string_lossy();
    string.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the meaning of a result code, and the library's last message about the communicator
/// `comm` if there is one. Errors without a communicator pass null.
///
/// # Safety
/// `comm` is null or alive.
pub(super) unsafe fn describe(api: &Functions, code: Code, comm: Handle) -> String {
    let meaning = api.error_string(code);
    // SAFETY: as the caller promises.
    let detail = unsafe { api.last_error(comm) };
    if detail.is_empty() { meaning } else { format!("{meaning}: {detail}") }
}
