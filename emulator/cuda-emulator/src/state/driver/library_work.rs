//! Work of vendor libraries, as kernels whose code and parameters are opaque.

use super::Driver;
use crate::state::{
    CallError, CallResult, Code, Handle,
    handles::HandleKind,
    launch_time,
    library_work::{LibraryWork, overlap},
    memory::Tracking,
    modules::{Arguments, Function},
    nodes::{Dimensions, KernelNode, NodeWork},
    order::Task,
};
use ptx_emulator::AccessKind;
use std::{ffi::CString, ops::Range, sync::Arc};

/// Byte with which workspaces are filled before each computation.
const SCRIBBLE: u8 = 0xff;

impl Driver {
    /// Enqueues the kernel of a library in a stream, or adds it as a kernel node to the graph that
    /// the stream captures. It is an error if a range is not inside one allocation of the stream's
    /// device, or if the workspace overlaps another range.
    pub(crate) fn submit_library_work(&mut self, stream: Handle, work: LibraryWork) -> CallResult<()> {
        let stream = self.stream(stream)?;
        let device = self.device_of_stream(stream);
        self.check_library_ranges(device, &work)?;
        let function = self.library_function(device, &work.name);
        let name: Arc<str> = work.name.as_str().into();
        let kernel = KernelNode {
            function,
            duration_ns: launch_time().unwrap_or_else(|| self.settings.kernel_time(&name)),
            name,
            dimensions: Dimensions { grid: [1; 3], block: [1; 3], shared_bytes: 0 },
            arguments: Arc::new(Arguments::default()),
            library_work: Some(Arc::new(work)),
            priority: 0,
            context: self.streams.get(&stream).map(|stream| stream.context),
        };
        self.submit(stream, NodeWork::Kernel(kernel))
    }

    /// Returns the function of a library's kernel on a device, which is valid until the reset.
    fn library_function(&mut self, device: i32, name: &str) -> Handle {
        if let Some(function) = self.modules.library_functions.get(&(device, name.to_owned())) {
            return *function;
        }
        let handle = self.handles.create(HandleKind::Function);
        let function = Function {
            name: CString::new(name).unwrap_or_default(),
            display_name: name.into(),
            module: 0,
            device,
            attributes: None,
            dynamic_limit: 0,
        };
        self.modules.functions.insert(handle, function);
        self.modules.library_functions.insert((device, name.to_owned()), handle);
        handle
    }

    fn check_library_ranges(&self, device: i32, work: &LibraryWork) -> CallResult<()> {
        let LibraryWork { name, workspace, .. } = work;
        for (role, range) in work.ranges() {
            let text = |error: CallError| {
                let what = error.misuse.unwrap_or_default();
                CallError::value(format!("{role} of kernel {name}: {what}"))
            };
            self.check_memory(range.start, (range.end - range.start) as usize).map_err(text)?;
            if self.device_at(range.start) != Some(device) {
                let text = format!(
                    "{role} of kernel {name}: {:#x} is not memory of device {device}, on which it runs",
                    range.start
                );
                return Err(CallError::value(text));
            }
        }
        for (role, range) in work.ranges().filter(|(_, range)| !std::ptr::eq(*range, workspace)) {
            if let Some(address) = overlap(workspace, range) {
                let text = format!("the workspace of kernel {name} overlaps {role} at {address:#x}");
                return Err(CallError::value(text));
            }
        }
        Ok(())
    }

    /// Executes the kernel of a library on the memory of a device.
    ///
    /// On failure, returns the error code and its description.
    pub(super) fn execute_library_work(
        &mut self,
        device: i32,
        work: &LibraryWork,
    ) -> Result<(), (Code, String)> {
        // Memory may have been freed since the call.
        let is_inside = |range: &Range<u64>| {
            let allocation = self.memory.allocation(range.start);
            allocation.is_some_and(|(start, bytes)| range.end <= start + bytes)
        };
        if let Some((role, range)) = work.ranges().find(|(_, range)| !is_inside(range)) {
            let text =
                format!("illegal address: {role} at {:#x} was freed, in kernel {}", range.start, work.name);
            return Err((Code::ILLEGAL_ADDRESS, text));
        }
        let memory = self.memory.of_device(device, Tracking::default());
        let length = |range: &Range<u64>| (range.end - range.start) as usize;
        let scribbled = match &work.workspace {
            workspace if workspace.is_empty() => Ok(()),
            workspace => memory.write(workspace.start, &vec![SCRIBBLE; length(workspace)]),
        };
        scribbled
            .and_then(|()| (work.computation)(memory))
            .map_err(|error| (Code::ILLEGAL_ADDRESS, format!("{error}, in kernel {}", work.name)))
    }

    /// Records that a task uses the ranges of a library's kernel. A task of `None` is ignored.
    pub(super) fn note_library_accesses(&mut self, task: Option<&Arc<Task>>, work: &LibraryWork) {
        let reads = work.reads.iter().map(|range| (AccessKind::Read, range));
        let writes = work.writes.iter().chain([&work.workspace]).map(|range| (AccessKind::Write, range));
        for (kind, range) in reads.chain(writes).filter(|(_, range)| !range.is_empty()) {
            self.note_access(task, kind, range.start, range.end - range.start);
        }
    }
}
