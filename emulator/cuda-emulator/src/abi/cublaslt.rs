//! cuBLASLt, under its names in `cublasLt.h` (13.1). The library also replaces `libcublasLt.so.13`.
#![allow(unsafe_code, non_snake_case)]

use super::pointers::{OutPointer, read_array, read_value};
use crate::state::{
    Algorithm, AlgorithmBytes, Attributes, Call, CublasResult, CublasStatus, DescriptorKind, Driver, Handle,
    LibraryError, Operands,
};
use std::ffi::c_char;

/// Version 13.1.0 in the encoding of `cublasLtGetVersion`.
const VERSION: usize = 130_100;

/// Memory layout of `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct HeuristicResult {
    algorithm: AlgorithmBytes,
    workspace_bytes: usize,
    status: u32,
    waves: f32,
    reserved: [i32; 4],
}

fn run(call: Call, work: impl FnOnce(&mut Driver) -> CublasResult<()>) -> u32 {
    call.run_library::<CublasStatus>(work).0
}

/// Returns the emulated version.
#[unsafe(no_mangle)]
extern "C" fn cublasLtGetVersion() -> usize {
    VERSION
}

/// Returns a description of a `cublasStatus_t`.
#[unsafe(no_mangle)]
extern "C" fn cublasLtGetStatusString(status: u32) -> *const c_char {
    CublasStatus(status).describe().map_or(c"unrecognized status", |(_, text)| text).as_ptr()
}

/// Creates a handle for the device of the current context.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtCreate(handle: *mut Handle) -> u32 {
    run(Call::always("cublasLtCreate"), |driver| {
        // SAFETY: the caller's promise.
        let handle = unsafe { OutPointer::new(handle, "lightHandle")? };
        handle.set(driver.cublaslt_create()?);
        Ok(())
    })
}

/// Destroys a handle.
#[unsafe(no_mangle)]
extern "C" fn cublasLtDestroy(handle: Handle) -> u32 {
    run(Call::always("cublasLtDestroy").destroying(), |driver| driver.cublaslt_destroy(handle))
}

/// Creates the description of a product. `compute` is a `cublasComputeType_t` and `scale` a
/// `cudaDataType_t`.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescCreate(description: *mut Handle, compute: u32, scale: u32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { create("cublasLtMatmulDescCreate", description, Attributes::product(compute, scale)) }
}

/// Destroys the description of a product. Null is ignored.
#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulDescDestroy(description: Handle) -> u32 {
    destroy("cublasLtMatmulDescDestroy", DescriptorKind::Product, description)
}

/// Sets an attribute of the description of a product, to a value of the given size in bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescSetAttribute(
    description: Handle,
    attribute: u32,
    value: *const u8,
    bytes: usize,
) -> u32 {
    let target = (DescriptorKind::Product, description);
    // SAFETY: the caller's promise.
    unsafe { set_attribute("cublasLtMatmulDescSetAttribute", target, attribute, value, bytes) }
}

/// Creates the layout of a column-major matrix. `element` is a `cudaDataType_t`.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    layout: *mut Handle,
    element: u32,
    rows: u64,
    columns: u64,
    leading_dimension: i64,
) -> u32 {
    let attributes = Attributes::layout(element, rows, columns, leading_dimension);
    // SAFETY: the caller's promise.
    unsafe { create("cublasLtMatrixLayoutCreate", layout, attributes) }
}

/// Destroys a layout. Null is ignored.
#[unsafe(no_mangle)]
extern "C" fn cublasLtMatrixLayoutDestroy(layout: Handle) -> u32 {
    destroy("cublasLtMatrixLayoutDestroy", DescriptorKind::Layout, layout)
}

/// Sets an attribute of a layout, to a value of the given size in bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutSetAttribute(
    layout: Handle,
    attribute: u32,
    value: *const u8,
    bytes: usize,
) -> u32 {
    let target = (DescriptorKind::Layout, layout);
    // SAFETY: the caller's promise.
    unsafe { set_attribute("cublasLtMatrixLayoutSetAttribute", target, attribute, value, bytes) }
}

/// Creates a preference without workspace.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceCreate(preference: *mut Handle) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { create("cublasLtMatmulPreferenceCreate", preference, Attributes::preference()) }
}

/// Destroys a preference. Null is ignored.
#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulPreferenceDestroy(preference: Handle) -> u32 {
    destroy("cublasLtMatmulPreferenceDestroy", DescriptorKind::Preference, preference)
}

/// Sets an attribute of a preference, to a value of the given size in bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    preference: Handle,
    attribute: u32,
    value: *const u8,
    bytes: usize,
) -> u32 {
    let target = (DescriptorKind::Preference, preference);
    // SAFETY: the caller's promise.
    unsafe { set_attribute("cublasLtMatmulPreferenceSetAttribute", target, attribute, value, bytes) }
}

/// # Safety
/// The pointer is null or valid for a write.
unsafe fn create(name: &'static str, place: *mut Handle, attributes: Attributes) -> u32 {
    run(Call::always(name), |driver| {
        // SAFETY: the caller's promise.
        let place = unsafe { OutPointer::new(place, "the place of the handle")? };
        place.set(driver.cublaslt_create_descriptor(attributes));
        Ok(())
    })
}

fn destroy(name: &'static str, kind: DescriptorKind, handle: Handle) -> u32 {
    run(Call::always(name).destroying(), |driver| driver.cublaslt_destroy_descriptor(kind, handle))
}

/// # Safety
/// `value` is null or holds `bytes` bytes.
unsafe fn set_attribute(
    name: &'static str,
    (kind, handle): (DescriptorKind, Handle),
    attribute: u32,
    value: *const u8,
    bytes: usize,
) -> u32 {
    run(Call::always(name), |driver| {
        // SAFETY: the caller's promise.
        let value = unsafe { read_array(value, bytes, "buf")? };
        driver.cublaslt_set_attribute(kind, handle, attribute, &value)
    })
}

/// Writes at most `count` algorithms for a product, in ascending order of their estimated times,
/// and their number.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    handle: Handle,
    description: Handle,
    a: Handle,
    b: Handle,
    c: Handle,
    d: Handle,
    preference: Handle,
    count: i32,
    results: *mut HeuristicResult,
    found: *mut i32,
) -> u32 {
    run(Call::always("cublasLtMatmulAlgoGetHeuristic"), |driver| {
        // SAFETY: the caller's promise.
        let found = unsafe { OutPointer::new(found, "returnAlgoCount")? };
        found.set(0);
        // SAFETY: the caller's promise.
        unsafe { OutPointer::new(results, "heuristicResultsArray")? };
        let algorithms = driver.cublaslt_heuristic(handle, (description, [a, b, c, d]), preference, count)?;
        for (index, &(algorithm, workspace_bytes, waves)) in algorithms.iter().enumerate() {
            let result = HeuristicResult { algorithm, workspace_bytes, status: 0, waves, reserved: [0; 4] };
            // SAFETY: the caller's promise: there is room for `count` results.
            unsafe { OutPointer::new(results.wrapping_add(index), "heuristicResultsArray")? }.set(result);
        }
        found.set(i32::try_from(algorithms.len()).unwrap_or(count));
        Ok(())
    })
}

/// Writes an attribute of an algorithm to `value`, which has `bytes` bytes, and its size to
/// `written`. With 0 bytes only the size is written.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoConfigGetAttribute(
    algorithm: *const AlgorithmBytes,
    attribute: u32,
    value: *mut u8,
    bytes: usize,
    written: *mut usize,
) -> u32 {
    run(Call::always("cublasLtMatmulAlgoConfigGetAttribute"), |_| {
        // SAFETY: the caller's promise.
        let (algorithm, written) =
            unsafe { (read_value(algorithm, "algo")?, OutPointer::new(written, "sizeWritten")) };
        let (size, number) = Algorithm::attribute(&algorithm, attribute)?;
        if bytes == 0 {
            written?.set(size);
            return Ok(());
        }
        if bytes != size {
            let text = format!("{bytes} bytes for the attribute {attribute}, which has {size}");
            return Err(LibraryError::misuse(CublasStatus::INVALID_VALUE, text));
        }
        for (index, &byte) in number.to_le_bytes()[..size].iter().enumerate() {
            // SAFETY: the caller's promise: there is room for `bytes` bytes.
            unsafe { OutPointer::new(value.wrapping_add(index), "buf")? }.set(byte);
        }
        if let Ok(written) = written {
            written.set(size);
        }
        Ok(())
    })
}

/// Enqueues D = epilogue(alpha x op(A) x op(B) + beta x C). `alpha` and `beta` are read before the
/// call returns.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmul(
    handle: Handle,
    description: Handle,
    alpha: *const f32,
    a: u64,
    a_layout: Handle,
    b: u64,
    b_layout: Handle,
    beta: *const f32,
    c: u64,
    c_layout: Handle,
    d: u64,
    d_layout: Handle,
    algorithm: *const AlgorithmBytes,
    workspace: u64,
    workspace_bytes: usize,
    stream: Handle,
) -> u32 {
    run(Call::with_context("cublasLtMatmul"), |driver| {
        // SAFETY: the caller's promise. Null stands for the algorithm of the heuristic.
        let (alpha, beta, algorithm) =
            unsafe { (read_value(alpha, "alpha")?, read_value(beta, "beta")?, algorithm.as_ref().copied()) };
        driver.cublaslt_product(
            handle,
            (description, [a_layout, b_layout, c_layout, d_layout]),
            Operands { a, b, c, d, alpha, beta },
            algorithm,
            (workspace, workspace_bytes as u64),
            stream,
        )
    })
}
