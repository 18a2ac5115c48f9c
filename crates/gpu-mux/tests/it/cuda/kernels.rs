//! Kernels that take the time given in their names, or fail.
#![allow(unsafe_code)]

use cuda::{Context, Kernel, LaunchShape, Module, Result, Stream};

/// Creates a kernel called `name`, from which the emulated driver derives its duration, as in
/// `layer_20us`. A kernel called `fail_...` crashes.
pub(crate) fn kernel(context: &Context, name: &str) -> Result<Kernel> {
    let body = if name.starts_with("fail_") { "trap" } else { "ret" };
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry {name}()\n{{\n {body};\n}}\n"
    );
    Module::load(context, &ptx)?.kernel(name)
}

pub(crate) fn kernels(context: &Context, names: &[&str]) -> Result<Vec<Kernel>> {
    names.iter().map(|name| kernel(context, name)).collect()
}

/// Launches a kernel into the stream.
pub(crate) fn launch(kernel: &Kernel, stream: &Stream) -> Result<()> {
    // SAFETY: it has no arguments and accesses no memory.
    unsafe { kernel.launch(stream, LaunchShape::linear(1, 32), &[]) }
}

/// Launches kernels into the stream, one after another.
pub(crate) fn launch_all(kernels: &[Kernel], stream: &Stream) -> Result<()> {
    kernels.iter().try_for_each(|kernel| launch(kernel, stream))
}
