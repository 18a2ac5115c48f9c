//! Kernels that take the time given in their names, or fail.
#![allow(unsafe_code)]

use gpu_mux::cuda::{Context, Function, LaunchShape, Module, Result, Stream};

/// Creates a kernel called `name`, from which the emulated driver derives its duration, as in
/// `layer_20us`. A kernel called `fail_...` crashes.
pub(crate) fn kernel(context: &Context, name: &str) -> Result<Function> {
    let body = if name.starts_with("fail_") { "trap" } else { "ret" };
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry {name}()\n{{\n {body};\n}}\n"
    );
    Module::load(context, &ptx)?.function(name)
}

pub(crate) fn kernels(context: &Context, names: &[&str]) -> Result<Vec<Function>> {
    names.iter().map(|name| kernel(context, name)).collect()
}

/// Launches a kernel into the stream.
pub(crate) fn launch(kernel: &Function, stream: &Stream) -> Result<()> {
    // SAFETY: it has no arguments and accesses no memory; tests keep kernels as long as graphs.
    unsafe { kernel.launch(stream, LaunchShape { blocks: 1, threads: 32, shared_bytes: 0 }, &[]) }
}

/// Launches kernels into the stream, one after another.
pub(crate) fn launch_all(kernels: &[Function], stream: &Stream) -> Result<()> {
    kernels.iter().try_for_each(|kernel| launch(kernel, stream))
}
