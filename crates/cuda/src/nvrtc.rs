//! NVRTC: compilation of CUDA C++ to PTX, which needs no GPU.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char};
use std::fs::DirEntry;
use std::path::Path;
use std::{mem, ptr};

use cudarc::nvrtc::sys::{self, nvrtcProgram, nvrtcResult};
use libloading::Library;

use crate::library::Kind;
use crate::symbols::{Code, Symbol, call, functions, one_line, words};
use crate::{Error, Result};

functions! {
    /// Functions of NVRTC.
    NvrtcFunctions {
        nvrtcCompileProgram nvrtcCreateProgram nvrtcDestroyProgram nvrtcGetErrorString nvrtcGetPTX
        nvrtcGetPTXSize nvrtcGetProgramLog nvrtcGetProgramLogSize
    }
    optional {}
}

/// Compiler of CUDA C++, opened at run time and never closed.
pub struct Nvrtc(NvrtcFunctions);

/// Calls a function of NVRTC and checks its code. It has the safety conditions of the function.
macro_rules! nvrtc {
    ($nvrtc:expr, $name:ident ( $($argument:expr),* $(,)? )) => {
        $nvrtc.check(stringify!($name), call!($nvrtc.0, sys::$name($($argument),*)))
    };
}

impl Nvrtc {
    /// Opens NVRTC: the file that the variable `NVRTC_LIBRARY` names, or else `libnvrtc.so` on the
    /// loader's search path, of the active Python environment or in CUDA's folder.
    ///
    /// # Errors
    /// [`Error::Unavailable`], which names what was looked for, where, and the remedy.
    pub fn open() -> Result<Self> {
        let (library, path) = Kind::Nvrtc.open()?;
        load_builtins(&path);
        NvrtcFunctions::load(library).map(Self).map_err(|missing| Kind::Nvrtc.incomplete(&path, &missing))
    }

    /// Compiles a CUDA C++ source with options such as `--gpu-architecture=compute_80`. Returns the
    /// PTX.
    ///
    /// # Errors
    /// [`Error::Compilation`] with the compiler's messages; [`Error::Invalid`] for a zero byte in
    /// an argument.
    pub fn compile(&self, source: &str, options: &[&str]) -> Result<String> {
        let text = |text: &str| {
            CString::new(text).map_err(|_| Error::Invalid("a source or option has a zero byte".to_owned()))
        };
        let source = text(source)?;
        let options = options.iter().map(|option| text(option)).collect::<Result<Vec<_>>>()?;
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let count = i32::try_from(pointers.len()).unwrap_or(i32::MAX);
        let (none, mut program) = (ptr::null(), Program { nvrtc: self, raw: ptr::null_mut() });
        let raw = &raw mut program.raw;
        // SAFETY: the program is written; the source is a C string, and there are no headers.
        unsafe {
            let (source, name) = (source.as_ptr(), ptr::null());
            nvrtc!(self, nvrtcCreateProgram(raw, source, name, 0, none, none))?;
        }
        // SAFETY: the program is alive, and the options are C strings.
        let compiled = unsafe { nvrtc!(self, nvrtcCompileProgram(program.raw, count, pointers.as_ptr())) };
        match compiled {
            Ok(()) => program.text(
                // SAFETY: the program is alive; the size is written.
                |size| unsafe { nvrtc!(self, nvrtcGetPTXSize(program.raw, size)) },
                // SAFETY: the text has the returned size.
                |text| unsafe { nvrtc!(self, nvrtcGetPTX(program.raw, text)) },
            ),
            Err(error) => {
                let log = program.text(
                    // SAFETY: as above.
                    |size| unsafe { nvrtc!(self, nvrtcGetProgramLogSize(program.raw, size)) },
                    |text| unsafe { nvrtc!(self, nvrtcGetProgramLog(program.raw, text)) },
                )?;
                let log = words(&log);
                Err(if log.is_empty() { error } else { Error::Compilation(log) })
            }
        }
    }

    fn check(&self, call: &'static str, code: Option<Code>) -> Result<()> {
        type Describe = unsafe extern "C" fn(Code) -> *const c_char;
        let code = code.unwrap_or(nvrtcResult::NVRTC_ERROR_INTERNAL_ERROR as Code);
        if code == nvrtcResult::NVRTC_SUCCESS as Code {
            return Ok(());
        }
        let text = self.0.nvrtcGetErrorString.map_or_else(String::new, |function| {
            // cudarc's function takes its enumeration, which may lack the code.
            // SAFETY: the function has this type, and returns a static string.
            unsafe { one_line(mem::transmute::<Symbol, Describe>(function)(code)) }
        });
        Err(Error::Compilation(format!("{call}: {text} ({code})")))
    }
}

/// Loads the library of built-in functions from the folder of NVRTC's file. NVRTC opens it by its
/// name, and a Python package's folder is not on the loader's search path.
fn load_builtins(nvrtc: &Path) {
    let entries = nvrtc.parent().and_then(|folder| folder.read_dir().ok()).into_iter().flatten().flatten();
    let builtins = |entry: &DirEntry| entry.file_name().to_string_lossy().starts_with("libnvrtc-builtins.so");
    for entry in entries.filter(builtins) {
        // SAFETY: a library of NVRTC is trusted to have its initializers. NVRTC reports a failure.
        if let Ok(library) = unsafe { Library::new(entry.path()) } {
            mem::forget(library);
        }
    }
}

/// Program of NVRTC, destroyed when it is dropped.
struct Program<'a> {
    nvrtc: &'a Nvrtc,
    raw: nvrtcProgram,
}

impl Program<'_> {
    /// Returns a text of the program: `size` queries its size, `read` writes it.
    #[allow(clippy::unused_self, reason = "the program must be alive")]
    fn text(
        &self,
        size: impl FnOnce(*mut usize) -> Result<()>,
        read: impl FnOnce(*mut c_char) -> Result<()>,
    ) -> Result<String> {
        let mut bytes = 0;
        size(&raw mut bytes)?;
        let mut text = vec![0_u8; bytes];
        read(text.as_mut_ptr().cast())?;
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        Ok(String::from_utf8_lossy(&text[..end]).into_owned())
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: it is destroyed once. An error cannot be handled here.
            let _ = unsafe { nvrtc!(self.nvrtc, nvrtcDestroyProgram(&raw mut self.raw)) };
        }
    }
}

impl std::fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NVRTC")
    }
}
