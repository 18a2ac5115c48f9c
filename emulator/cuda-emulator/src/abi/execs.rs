//! Executable graphs.
#![allow(unsafe_code, non_snake_case)]

use super::pointers::OutPointer;
use crate::state::{Call, Handle};

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphInstantiateWithFlags(
    exec: *mut Handle,
    graph: Handle,
    flags: u64,
) -> u32 {
    Call::with_context("cuGraphInstantiateWithFlags").run(|driver| {
        // SAFETY: the caller's promise.
        let exec = unsafe { OutPointer::new(exec, "phGraphExec")? };
        exec.set(driver.instantiate(graph, flags)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphExecDestroy(exec: Handle) -> u32 {
    Call::initialised("cuGraphExecDestroy").destroying().run(|driver| driver.destroy_exec(exec))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphUpload(exec: Handle, stream: Handle) -> u32 {
    Call::with_context("cuGraphUpload").run(|driver| driver.upload(exec, stream))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphLaunch(exec: Handle, stream: Handle) -> u32 {
    Call::with_context("cuGraphLaunch").run(|driver| driver.launch_graph(exec, stream))
}
