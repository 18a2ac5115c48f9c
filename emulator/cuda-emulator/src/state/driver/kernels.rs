//! Scheduling of kernels on devices. A kernel is executed at the end of its virtual duration.

use super::Driver;
use crate::state::{
    Code,
    memory::Tracking,
    modules::KernelCode,
    nodes::{KernelNode, NodeWork},
    simulation::RunningKernel,
    work::StreamWork,
};
use ptx_emulator::{FaultKind, LaunchError};
use std::collections::BTreeMap;

/// Key by which ready kernels of a device start, in ascending order: priority, virtual time in ns
/// at which the kernel became ready, number of its queue entry, and step in the entry's graph.
type StartOrder = (i32, u64, u64, usize);

impl Driver {
    /// Starts the next kernel on each free device, and executes all ready kernels of duration 0,
    /// which need no free device. Returns whether there was any.
    pub(super) fn start_kernels(&mut self) -> bool {
        let mut best: Vec<(i32, StartOrder, RunningKernel)> = Vec::new();
        let mut timeless = Vec::new();
        let mut ready_since = BTreeMap::new();
        for (handle, stream) in &self.streams {
            let Some(head) = stream.queue.front() else { continue };
            let kernels: Vec<_> = match &head.work {
                StreamWork::Single(NodeWork::Kernel(kernel)) => vec![(None, stream.priority, kernel)],
                StreamWork::Graph { steps, .. } => {
                    let run = stream.graph.iter();
                    run.flat_map(|run| run.kernels(steps, stream.priority)).collect()
                }
                _ => Vec::new(),
            };
            let is_busy = self.simulation.running.contains_key(&stream.device);
            let started = self.simulation.now;
            for (node, priority, kernel) in kernels {
                let running = || RunningKernel {
                    stream: *handle,
                    node,
                    kernel: kernel.clone(),
                    priority,
                    enqueued: head.enqueued,
                    started,
                    ends: started + kernel.duration_ns,
                };
                if kernel.duration_ns == 0 {
                    timeless.push((stream.device, running()));
                    continue;
                }
                let id = (head.number, node);
                let since = self.simulation.ready_since.get(&id).copied().unwrap_or(started);
                ready_since.insert(id, since);
                if is_busy {
                    continue;
                }
                let key = (priority, since, head.number, node.unwrap_or(0));
                let known = best.iter().position(|(device, ..)| *device == stream.device);
                if known.is_some_and(|index| best[index].1 <= key) {
                    continue;
                }
                match known {
                    Some(index) => best[index] = (stream.device, key, running()),
                    None => best.push((stream.device, key, running())),
                }
            }
        }
        self.simulation.ready_since = ready_since;
        let any = !best.is_empty() || !timeless.is_empty();
        self.simulation.running.extend(best.into_iter().map(|(device, _, running)| (device, running)));
        for (device, kernel) in timeless {
            // Skipped if an earlier kernel has failed.
            if !self.simulation.lost.contains_key(&device) {
                self.finish_kernel(device, &kernel);
            }
        }
        any
    }

    /// Returns the device whose running kernel ends first, and the virtual time of the end in ns,
    /// or `None` if no kernel runs.
    pub(super) fn next_kernel_end(&self) -> Option<(i32, u64)> {
        let ends = self.simulation.running.iter().map(|(device, running)| (*device, running.ends));
        ends.min_by_key(|(_, ends)| *ends)
    }

    /// Advances the clock to the end of the kernel on a device, and executes it.
    pub(super) fn end_kernel(&mut self, device: i32) {
        if let Some(kernel) = self.simulation.running.remove(&device) {
            self.finish_kernel(device, &kernel);
        }
    }

    fn finish_kernel(&mut self, device: i32, running: &RunningKernel) {
        let &RunningKernel { stream, node, ref kernel, priority, enqueued, started, ends } = running;
        self.simulation.now = self.simulation.now.max(ends);
        self.simulation.idle_queries = 0;
        let stream_name = self.handles.name(stream).replace(' ', "-");
        let in_graph = u8::from(node.is_some());
        let executed = self.execute(device, kernel);
        let task = self.begin_task(stream, node, |_| format!("kernel {}", kernel.name));
        let [read, written] = self.note_kernel_accesses(task.as_ref(), device);
        self.simulation.finished.push(format!(
            "{started} {ends} {enqueued} {device} {priority} {in_graph} {read} {written} {stream_name} {}\n",
            kernel.name
        ));
        if let Some(work) = &kernel.library_work {
            self.note_library_accesses(task.as_ref(), work);
        }
        match executed {
            Err((code, text)) => self.fail_device(device, code, &text),
            Ok(()) => match node {
                None => self.pop_head(stream),
                Some(node) => self.end_node(stream, node),
            },
        }
    }

    /// Executes a kernel on the memory of a device.
    ///
    /// On failure, returns the error code and its description.
    fn execute(&mut self, device: i32, kernel: &KernelNode) -> Result<(), (Code, String)> {
        if self.report.count_kernel(&kernel.name) {
            let text = format!("illegal address (injected), in kernel {}", kernel.name);
            return Err((Code::ILLEGAL_ADDRESS, text));
        }
        let options = self.settings.launch_options();
        self.device_memory(device);
        if let Some(work) = &kernel.library_work {
            return self.execute_library_work(device, work);
        }
        let ptx = match self.modules.kernel_code(kernel.function) {
            KernelCode::Ptx(ptx) => ptx,
            KernelCode::Binary => return Ok(()),
            KernelCode::Unloaded => {
                let text = format!("the module of kernel {} is unloaded before it has run", kernel.name);
                return Err((Code::LAUNCH_FAILED, text));
            }
        };
        let arguments = kernel.arguments.bytes();
        let arguments: Vec<_> = arguments.iter().map(Vec::as_slice).collect();
        let memory = self.memory.of_device(device, Tracking::default());
        match ptx.launch(memory, &kernel.name, kernel.dimensions.into(), &arguments, &options) {
            Ok(_) => Ok(()),
            Err(error) => Err((error_code(&error), error.to_string())),
        }
    }

    /// Ends all work on a device and reports the failure, which `text` describes. From now on,
    /// every call in the contexts of the device returns `code`.
    pub(super) fn fail_device(&mut self, device: i32, code: Code, text: &str) {
        let line = format!("device {device}: {text}");
        eprintln!("emulated CUDA {line}: {code}, and the context is lost");
        self.report.kernel_fault(line);
        self.simulation.lost.insert(device, code);
        self.simulation.running.remove(&device);
        self.fail_comms(device);
        for stream in self.streams.values_mut().filter(|stream| stream.device == device) {
            stream.queue.clear();
            stream.graph = None;
        }
    }
}

/// Returns the error code with which CUDA reports a failed kernel.
fn error_code(error: &LaunchError) -> Code {
    let LaunchError::Fault(fault) = error else { return Code::LAUNCH_FAILED };
    match fault.kind {
        FaultKind::IllegalAddress { .. } | FaultKind::OutOfBounds { .. } => Code::ILLEGAL_ADDRESS,
        FaultKind::Misaligned { .. } => Code::MISALIGNED_ADDRESS,
        FaultKind::Watchdog { .. } | FaultKind::Deadlock { .. } => Code::LAUNCH_TIMEOUT,
        _ => Code::LAUNCH_FAILED,
    }
}
