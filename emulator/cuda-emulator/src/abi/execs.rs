//! Executable graphs (`CUgraphExec`), which are instantiated from graphs and can be launched.
#![allow(unsafe_code, non_snake_case)]

use super::pointers::OutPointer;
use crate::state::{Call, Handle};

/// Creates an executable graph. Of the flags, only that for node priorities has an effect.
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

/// Destroys an executable graph. Launches in flight still complete.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphExecDestroy(exec: Handle) -> u32 {
    Call::initialised("cuGraphExecDestroy").destroying().run(|driver| driver.destroy_exec(exec))
}

/// Checks the arguments. Uploads take no time.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphUpload(exec: Handle, stream: Handle) -> u32 {
    Call::with_context("cuGraphUpload").run(|driver| driver.upload(exec, stream))
}

/// Enqueues a launch of an executable graph.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphLaunch(exec: Handle, stream: Handle) -> u32 {
    Call::with_context("cuGraphLaunch").run(|driver| driver.launch_graph(exec, stream))
}
