//! The statuses of cuBLAS.

use crate::state::Code;
use std::{ffi::CStr, fmt};

/// A `cublasStatus_t`: a code that functions of cuBLASLt return, 0 for success. The constants are
/// the statuses whose names in `cublas_api.h` end like theirs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CublasStatus(pub(crate) u32);

impl CublasStatus {
    pub(crate) const NOT_INITIALIZED: Self = Self(1);
    pub(crate) const INVALID_VALUE: Self = Self(7);
    pub(crate) const NOT_SUPPORTED: Self = Self(15);

    /// Returns the name in `cublas_api.h` and the text of `cublasLtGetStatusString` (13.1), or
    /// `None` for an unknown status.
    pub(crate) fn describe(self) -> Option<(&'static str, &'static CStr)> {
        Some(match self.0 {
            0 => ("CUBLAS_STATUS_SUCCESS", c"success"),
            1 => ("CUBLAS_STATUS_NOT_INITIALIZED", c"the library was not initialized"),
            3 => ("CUBLAS_STATUS_ALLOC_FAILED", c"the resource allocation failed"),
            7 => (
                "CUBLAS_STATUS_INVALID_VALUE",
                c"an unsupported value or parameter was passed to the function",
            ),
            8 => (
                "CUBLAS_STATUS_ARCH_MISMATCH",
                c"the function requires an architectural feature absent from the device",
            ),
            11 => ("CUBLAS_STATUS_MAPPING_ERROR", c"an access to GPU memory space failed"),
            13 => ("CUBLAS_STATUS_EXECUTION_FAILED", c"the function failed to launch on the GPU"),
            14 => ("CUBLAS_STATUS_INTERNAL_ERROR", c"an internal operation failed"),
            15 => ("CUBLAS_STATUS_NOT_SUPPORTED", c"the requested functionality is not supported"),
            16 => ("CUBLAS_STATUS_LICENSE_ERROR", c"the license check failed"),
            _ => return None,
        })
    }
}

impl fmt::Display for CublasStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.describe() {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "cublasStatus_t {}", self.0),
        }
    }
}

impl From<Code> for CublasStatus {
    /// Returns the status for an error of the driver or of an argument.
    fn from(code: Code) -> Self {
        Self(match code {
            Code::SUCCESS => 0,
            Code::NOT_INITIALIZED | Code::NO_DEVICE | Code::INVALID_CONTEXT => 1,
            Code::OUT_OF_MEMORY => 3,
            Code::INVALID_VALUE | Code::INVALID_HANDLE => 7,
            Code::UNKNOWN => 14,
            Code::NOT_SUPPORTED => 15,
            _ => 13,
        })
    }
}
