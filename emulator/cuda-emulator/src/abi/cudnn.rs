//! cuDNN's graph API, under its names in `cudnn_graph.h` (9.19). The library also replaces
//! `libcudnn.so.9`.
#![allow(unsafe_code, non_snake_case)]

use super::pointers::{OutPointer, write_text};
use crate::state::{Call, CudnnResult, CudnnStatus, Driver, Handle, LibraryError, Values};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    ffi::{c_char, c_void},
    slice,
    sync::{Mutex, PoisonError},
    thread::{self, ThreadId},
};

/// Version in the encoding of `cudnnGetVersion`.
const VERSION: usize = 91_900;
/// Version of the CUDA runtime with which cuDNN is built.
const RUNTIME_VERSION: usize = 13_010;

thread_local! {
    /// Text of the thread's last error.
    static LAST_ERROR: RefCell<String> = RefCell::default();
}

/// Threads that are in calls with a handle, and the handles.
static USERS: Mutex<BTreeMap<Handle, Vec<ThreadId>>> = Mutex::new(BTreeMap::new());

/// Runs a cuDNN function and records its error for `cudnnGetLastErrorString`.
fn run(call: Call, work: impl FnOnce(&mut Driver) -> CudnnResult<()>) -> u32 {
    let status: CudnnStatus = call.run_library(|driver| {
        work(driver).inspect_err(|error| {
            let text = error.misuse.clone().unwrap_or_else(|| error.status.to_string());
            LAST_ERROR.set(text);
        })
    });
    status.0
}

/// Runs a function that uses a handle, which one thread may do at a time.
fn run_with_handle(
    name: &'static str,
    call: Call,
    handle: Handle,
    work: impl FnOnce(&mut Driver) -> CudnnResult<()>,
) -> u32 {
    let users = || USERS.lock().unwrap_or_else(PoisonError::into_inner);
    let here = thread::current().id();
    let is_shared = {
        let mut users = users();
        let threads = users.entry(handle).or_default();
        threads.push(here);
        threads.iter().any(|thread| *thread != here)
    };
    let status = run(call, |driver| {
        if is_shared {
            driver.report_shared_cudnn_handle(name, handle);
        }
        work(driver)
    });
    let mut users = users();
    if let Some(threads) = users.get_mut(&handle) {
        if let Some(index) = threads.iter().position(|thread| *thread == here) {
            threads.swap_remove(index);
        }
        if threads.is_empty() {
            users.remove(&handle);
        }
    }
    status
}

/// Returns the emulated version of cuDNN.
#[unsafe(no_mangle)]
extern "C" fn cudnnGetVersion() -> usize {
    VERSION
}

/// Returns the version of the CUDA runtime with which cuDNN is built.
#[unsafe(no_mangle)]
extern "C" fn cudnnGetCudartVersion() -> usize {
    RUNTIME_VERSION
}

/// Returns the name of a `cudnnStatus_t`.
#[unsafe(no_mangle)]
extern "C" fn cudnnGetErrorString(status: u32) -> *const c_char {
    CudnnStatus(status).name().as_ptr()
}

/// Writes the text of the thread's last error, truncated to `room` bytes, and clears it.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnGetLastErrorString(text: *mut u8, room: usize) {
    // SAFETY: the caller's promise.
    unsafe { write_text(&LAST_ERROR.take(), text, room) };
}

/// Creates a handle in the current context.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnCreate(handle: *mut Handle) -> u32 {
    run(Call::always("cudnnCreate"), |driver| {
        // SAFETY: the caller's promise.
        let handle = unsafe { OutPointer::new(handle, "handle")? };
        handle.set(driver.create_cudnn()?);
        Ok(())
    })
}

/// Destroys a handle. Null is ignored.
#[unsafe(no_mangle)]
extern "C" fn cudnnDestroy(handle: Handle) -> u32 {
    let call = Call::always("cudnnDestroy").destroying();
    run_with_handle("cudnnDestroy", call, handle, |driver| driver.destroy_cudnn(handle))
}

/// Sets the stream in which plans are executed.
#[unsafe(no_mangle)]
extern "C" fn cudnnSetStream(handle: Handle, stream: Handle) -> u32 {
    let call = Call::always("cudnnSetStream");
    run_with_handle("cudnnSetStream", call, handle, |driver| driver.set_cudnn_stream(handle, stream))
}

/// Writes the stream of a handle.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnGetStream(handle: Handle, stream: *mut Handle) -> u32 {
    let call = Call::always("cudnnGetStream");
    run_with_handle("cudnnGetStream", call, handle, |driver| {
        // SAFETY: the caller's promise.
        let stream = unsafe { OutPointer::new(stream, "streamId")? };
        stream.set(driver.cudnn_stream(handle)?);
        Ok(())
    })
}

/// Creates a descriptor of a kind (`cudnnBackendDescriptorType_t`).
#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnBackendCreateDescriptor(kind: u32, descriptor: *mut Handle) -> u32 {
    run(Call::always("cudnnBackendCreateDescriptor"), |driver| {
        // SAFETY: the caller's promise.
        let descriptor = unsafe { OutPointer::new(descriptor, "descriptor")? };
        descriptor.set(driver.create_descriptor(kind)?);
        Ok(())
    })
}

/// Destroys a descriptor. Descriptors that have it as an attribute stay valid.
#[unsafe(no_mangle)]
extern "C" fn cudnnBackendDestroyDescriptor(descriptor: Handle) -> u32 {
    let call = Call::always("cudnnBackendDestroyDescriptor").destroying();
    run(call, |driver| driver.destroy_descriptor(descriptor))
}

/// Sets an attribute of a descriptor to the `count` values of an array of the given type
/// (`cudnnBackendAttributeType_t`).
#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnBackendSetAttribute(
    descriptor: Handle,
    name: u32,
    kind: u32,
    count: i64,
    values: *const c_void,
) -> u32 {
    run(Call::always("cudnnBackendSetAttribute"), |driver| {
        driver.set_attribute(descriptor, name, kind, count, |bytes| {
            // SAFETY: the caller's promise: the array holds `count` values, which have this size.
            (!values.is_null()).then(|| unsafe { slice::from_raw_parts(values.cast::<u8>(), bytes) }.to_vec())
        })
    })
}

/// Writes the values of an attribute of a descriptor to an array with room for `room` values, and
/// their number to `count`. Descriptors in the array are filled. For a null array, the number of
/// all values is written.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnBackendGetAttribute(
    descriptor: Handle,
    name: u32,
    kind: u32,
    room: i64,
    count: *mut i64,
    array: *mut c_void,
) -> u32 {
    run(Call::always("cudnnBackendGetAttribute"), |driver| {
        let values = driver.get_attribute(descriptor, name, kind)?;
        let mut written = values.len();
        if !array.is_null() {
            let Ok(room) = usize::try_from(room) else {
                let text = format!("room for {room} values");
                return Err(LibraryError::misuse(CudnnStatus::BAD_PARAM, text));
            };
            written = written.min(room);
            if let Values::Objects(objects) = values {
                for (index, object) in objects.into_iter().flatten().take(room).enumerate() {
                    // SAFETY: the caller's promise: the array holds `room` descriptors.
                    let place = unsafe { array.cast::<Handle>().add(index).read() };
                    driver.fill_descriptor(place, object)?;
                }
            } else {
                let bytes = values.to_bytes(kind);
                let length = bytes.len() / values.len().max(1) * written;
                // SAFETY: the caller's promise: the array has room for `room` values.
                unsafe { array.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), length) };
            }
        }
        if !count.is_null() {
            // SAFETY: the caller's promise; not null.
            unsafe { count.write(i64::try_from(written).unwrap_or(i64::MAX)) };
        }
        Ok(())
    })
}

/// Checks the attributes of a descriptor, which cannot be changed from then on.
#[unsafe(no_mangle)]
extern "C" fn cudnnBackendFinalize(descriptor: Handle) -> u32 {
    run(Call::always("cudnnBackendFinalize"), |driver| driver.finalize_descriptor(descriptor))
}

/// Enqueues a plan in the stream of a handle, with the addresses of a variant pack.
#[unsafe(no_mangle)]
extern "C" fn cudnnBackendExecute(handle: Handle, plan: Handle, pack: Handle) -> u32 {
    let call = Call::always("cudnnBackendExecute");
    run_with_handle("cudnnBackendExecute", call, handle, |driver| {
        driver.execute_plan(handle, plan, pack, |address| {
            // SAFETY: the caller's promise: a tensor by value is at an address of the host, which
            // is not null and aligned.
            unsafe { (address as *const f32).read() }
        })
    })
}
