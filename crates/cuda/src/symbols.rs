//! Functions of CUDA's libraries, looked up by name in an opened file.
//!
//! Their types, and those of their arguments, are cudarc's. They are not called through cudarc, for
//! three reasons that hold for every function:
//!
//! - cudarc returns results as Rust enumerations. Newer libraries return codes that the
//!   enumerations lack, which is undefined behaviour, and every function may return the error of
//!   earlier work on the device. Here a result is an integer.
//! - cudarc's loader searches fixed names, and not `libnccl.so.2`. Here a library is a file, which
//!   may be that of emulated GPUs.
//! - cudarc panics if a library, or a function that the library lacks, is called. Here both are
//!   errors.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};
use std::mem;

use cudarc::cublaslt::sys::cublasStatus_t;
use cudarc::cudnn::sys::cudnnStatus_t;
use cudarc::driver::sys::CUresult;
use cudarc::nccl::sys::ncclResult_t;
use cudarc::nvrtc::sys::nvrtcResult;

/// Result code of a function.
pub type Code = u32;

/// Function of unknown type.
pub(crate) type Symbol = unsafe extern "C" fn();

/// Enumeration of cudarc whose values are represented as a [`Code`].
pub(crate) trait ResultCode {}
impl ResultCode for CUresult {}
impl ResultCode for ncclResult_t {}
impl ResultCode for nvrtcResult {}
impl ResultCode for cublasStatus_t {}
impl ResultCode for cudnnStatus_t {}

/// Declares a function that types a looked-up symbol by the function of cudarc with these
/// arguments.
macro_rules! typed {
    ($name:ident: $($argument:ident)*) => {
        /// Returns a looked-up function with the arguments of cudarc's function of that name.
        ///
        /// # Safety
        /// `symbol` is the C function that cudarc's function calls.
        pub(crate) unsafe fn $name<Returned: ResultCode, $($argument),*>(
            _: unsafe fn($($argument),*) -> Returned,
            symbol: Symbol,
        ) -> unsafe extern "C" fn($($argument),*) -> Code {
            // SAFETY: as the caller promises; the result of the C function is an integer of that
            // size.
            unsafe { mem::transmute::<Symbol, unsafe extern "C" fn($($argument),*) -> Code>(symbol) }
        }
    };
}
typed!(typed0:);
typed!(typed1: A);
typed!(typed2: A B);
typed!(typed3: A B C);
typed!(typed4: A B C D);
typed!(typed5: A B C D E);
typed!(typed6: A B C D E F);
typed!(typed7: A B C D E F G);
typed!(typed10: A B C D E F G H I J);
typed!(typed11: A B C D E F G H I J K);
typed!(typed16: A B C D E F G H I J K L M N O P);

/// Declares a table of functions. The functions of the second list may be missing.
macro_rules! functions {
    ($(#[$meta:meta])* $table:ident { $($required:ident)* } optional { $($optional:ident)* }) => {
        $(#[$meta])*
        #[allow(non_snake_case, reason = "the names are the library's")]
        pub(crate) struct $table {
            $(pub(crate) $required: Option<$crate::symbols::Symbol>,)*
            $(pub(crate) $optional: Option<$crate::symbols::Symbol>,)*
        }

        impl $table {
            /// Looks up the functions.
            ///
            /// # Errors
            /// The names of the required functions that are missing.
            pub(crate) fn load(
                library: &libloading::Library,
            ) -> std::result::Result<Self, Vec<&'static str>> {
                let table = Self {
                    $($required: $crate::symbols::find(library, stringify!($required)),)*
                    $($optional: $crate::symbols::find(library, stringify!($optional)),)*
                };
                let missing: Vec<_> = [$((stringify!($required), table.$required)),*]
                    .into_iter()
                    .filter_map(|(name, symbol)| symbol.is_none().then_some(name))
                    .collect();
                if missing.is_empty() { Ok(table) } else { Err(missing) }
            }
        }
    };
}
pub(crate) use functions;

/// Calls a function of a table with the arguments of cudarc's function of that name, or of the one
/// after `like`, and returns its code, or `None` if the library lacks it. It has the safety
/// conditions of the function.
macro_rules! call {
    ($table:expr, $sys:ident :: $name:ident ( $($argument:expr),* )) => {
        $crate::symbols::call!($table, $name like $sys::$name($($argument),*))
    };
    ($table:expr, $name:ident like $sys:ident :: $like:ident ( $($argument:expr),* )) => {
        match $table.$name {
            Some(symbol) => {
                let function = $crate::symbols::call!(@typed ($sys::$like, symbol) $($argument),*);
                Some(function($($argument),*))
            }
            None => None,
        }
    };
    (@typed $like:tt) => { $crate::symbols::typed0 $like };
    (@typed $like:tt $a:expr) => { $crate::symbols::typed1 $like };
    (@typed $like:tt $a:expr, $b:expr) => { $crate::symbols::typed2 $like };
    (@typed $like:tt $a:expr, $b:expr, $c:expr) => { $crate::symbols::typed3 $like };
    (@typed $like:tt $a:expr, $b:expr, $c:expr, $d:expr) => { $crate::symbols::typed4 $like };
    (@typed $like:tt $a:expr, $b:expr, $c:expr, $d:expr, $e:expr) => { $crate::symbols::typed5 $like };
    (@typed $like:tt $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => {
        $crate::symbols::typed6 $like
    };
    (@typed $like:tt $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr, $g:expr) => {
        $crate::symbols::typed7 $like
    };
    (@typed $like:tt $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr, $g:expr, $h:expr, $i:expr,
     $j:expr) => {
        $crate::symbols::typed10 $like
    };
    (@typed $like:tt $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr, $g:expr, $h:expr, $i:expr,
     $j:expr, $k:expr) => {
        $crate::symbols::typed11 $like
    };
    (@typed $like:tt $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr, $g:expr, $h:expr, $i:expr,
     $j:expr, $k:expr, $l:expr, $m:expr, $n:expr, $o:expr, $p:expr) => {
        $crate::symbols::typed16 $like
    };
}
pub(crate) use call;

/// Looks up a function by its name.
pub(crate) fn find(library: &libloading::Library, name: &str) -> Option<Symbol> {
    // SAFETY: the function is not called with this type.
    unsafe { library.get::<Symbol>(name) }.ok().map(|symbol| *symbol)
}

/// Returns a string of a library on one line. Empty for a null pointer.
///
/// # Safety
/// `string` is null or a C string.
pub(crate) unsafe fn one_line(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: not null, so a C string.
    words(&unsafe { CStr::from_ptr(string) }.to_string_lossy())
}

/// Joins the words of a text by single spaces.
pub(crate) fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
