//! Memory operations of streams: copies, fills, waits for values, writes of values, and
//! stream-ordered allocation. Pageable host memory is all host memory that is not page-locked.

use super::Driver;
use crate::{
    host::HostSpan,
    state::{
        CallError, CallResult, Code, Handle,
        handles::HandleKind,
        nodes::{CopiedRows, CopyEndpoint, CopyNode, NodeWork, Pattern},
        order::Task,
        work::StreamWork,
    },
};
use ptx_emulator::AccessKind;
use std::sync::Arc;

/// `CU_STREAM_WAIT_VALUE_FLUSH`, which has no effect here.
const FLUSH: u32 = 1 << 30;

/// Source or destination of a copy, as named by a call.
pub(crate) enum CopyOperand {
    /// Memory of a device, or page-locked memory named by its device pointer.
    Device(u64),
    /// Memory of the host, page-locked or pageable.
    Host(HostSpan),
}

impl Driver {
    /// Copies `bytes` bytes in stream order. Bytes from pageable host memory are read at the call.
    /// The host waits for the copy if `waits` is set or if the destination is pageable host memory.
    /// In a capture, a node is added, which reads host memory when it is executed.
    pub(crate) fn copy(
        &mut self,
        to: CopyOperand,
        from: CopyOperand,
        bytes: usize,
        stream: Handle,
        waits: bool,
    ) -> CallResult<()> {
        let stream = self.stream(stream)?;
        if waits {
            self.refuse_unsafe_call("copies and waits")?;
        }
        let captures = self.is_capturing(stream)?;
        let from = match from {
            CopyOperand::Device(address) => {
                self.check_memory(address, bytes)?;
                CopyEndpoint::Device(address)
            }
            CopyOperand::Host(span) if captures || self.memory.is_page_locked(span.address()) => {
                CopyEndpoint::Host(span)
            }
            CopyOperand::Host(span) => CopyEndpoint::Snapshot(span.read().into()),
        };
        let (to, pageable) = match to {
            CopyOperand::Device(address) => {
                self.check_memory(address, bytes)?;
                (CopyEndpoint::Device(address), false)
            }
            CopyOperand::Host(span) => {
                let pageable = !self.memory.is_page_locked(span.address());
                (CopyEndpoint::Host(span), pageable)
            }
        };
        if bytes > 0 {
            self.submit(stream, NodeWork::Copy(CopyNode { to, from, bytes }))?;
        }
        if waits || (pageable && !captures) {
            self.drain_stream(stream)?;
        }
        Ok(())
    }

    /// Implements `cuMemcpy3DAsync`: enqueues a copy of rows.
    pub(crate) fn copy_rows(&mut self, copy: CopiedRows, stream: Handle) -> CallResult<()> {
        let stream = self.stream(stream)?;
        for address in copy.rows().flatten() {
            self.check_memory(address, copy.bytes)?;
        }
        if copy.bytes > 0 && !copy.counts.contains(&0) {
            self.submit(stream, NodeWork::CopyRows(copy))?;
        }
        Ok(())
    }

    /// Returns the source or destination at an address: of a device or page-locked memory if an
    /// allocation contains it, and otherwise the range of host memory that `host` creates.
    pub(crate) fn operand_at(&self, address: u64, host: impl FnOnce() -> HostSpan) -> CopyOperand {
        if self.memory.allocation(address).is_some() {
            CopyOperand::Device(address)
        } else {
            CopyOperand::Host(host())
        }
    }

    /// Checks an address given to `cuMemcpyPeer`, which must be in the memory of the device of the
    /// context.
    pub(crate) fn check_peer(&self, address: u64, context: Handle) -> CallResult<()> {
        self.handles.check(HandleKind::Context, context)?;
        let device = self.device_of_context(context);
        if self.device_at(address) == Some(device) {
            return Ok(());
        }
        Err(CallError::value(format!(
            "{address:#x} is not memory of device {device}, whose context is given"
        )))
    }

    /// Implements `cuMemsetD8Async` and similar functions: enqueues that a pattern is written
    /// `times` times from an address on.
    pub(crate) fn fill(
        &mut self,
        address: u64,
        pattern: Pattern,
        times: usize,
        stream: Handle,
    ) -> CallResult<()> {
        let stream = self.stream(stream)?;
        self.check_memory(address, times.saturating_mul(pattern.bytes))?;
        check_aligned(address, pattern.bytes)?;
        self.submit(stream, NodeWork::Fill { address, pattern, times })
    }

    /// Implements `cuStreamWaitValue32`: enqueues a wait until the 32-bit word at an address
    /// satisfies a comparison with `value`. `flags` is a `CUstreamWaitValue_flags`.
    pub(crate) fn wait_value(
        &mut self,
        stream: Handle,
        address: u64,
        value: u32,
        flags: u32,
    ) -> CallResult<()> {
        let stream = self.check_value_operation(stream, address)?;
        if flags & !FLUSH > 3 {
            return Err(CallError::value(format!("there is no wait with the flags {flags:#x}")));
        }
        self.submit(stream, NodeWork::WaitValue { address, value, flags: flags & !FLUSH })
    }

    /// Implements `cuStreamWriteValue32`: enqueues a write of a 32-bit word. `flags` is a
    /// `CUstreamWriteValue_flags`, which has no effect.
    pub(crate) fn write_value(
        &mut self,
        stream: Handle,
        address: u64,
        value: u32,
        flags: u32,
    ) -> CallResult<()> {
        let stream = self.check_value_operation(stream, address)?;
        if flags > 1 {
            return Err(CallError::value(format!("there is no write with the flags {flags:#x}")));
        }
        self.submit(stream, NodeWork::WriteValue { address, value })
    }

    fn check_value_operation(&mut self, stream: Handle, address: u64) -> CallResult<Handle> {
        if self.settings.stream_memory_operations == 0 {
            return Err(CallError::plain(Code::NOT_SUPPORTED));
        }
        let stream = self.stream(stream)?;
        self.check_memory(address, 4)?;
        check_aligned(address, 4)?;
        Ok(stream)
    }

    /// Implements `cuMemAllocAsync`: allocates memory and returns its address. In a capture, an
    /// allocation node is added.
    pub(crate) fn allocate_async(&mut self, bytes: usize, stream: Handle) -> CallResult<u64> {
        let stream = self.check_pool_operation(stream)?;
        let captures = self.is_capturing(stream)?;
        let device = self.device_of_stream(stream);
        let address = self.new_allocation(device, bytes, captures)?;
        if captures {
            self.submit(stream, NodeWork::Allocate)?;
        } else if self.checks_order() {
            self.enqueue(stream, StreamWork::Allocated { address });
            self.execute_ready_work();
        }
        Ok(address)
    }

    /// Implements `cuMemFreeAsync`: enqueues that an allocation is freed. In a capture, adds a node
    /// that frees it. Memory allocated by a graph is refused outside captures, and other memory in
    /// captures.
    pub(crate) fn free_async(&mut self, address: u64, stream: Handle) -> CallResult<()> {
        let stream = self.check_pool_operation(stream)?;
        if self.is_capturing(stream)? != self.is_graph_allocation(address) {
            return Err(CallError::value(format!(
                "{address:#x}: memory of a graph is freed in a capture, and other memory is not"
            )));
        }
        if self.is_graph_allocation(address) {
            return self.submit(stream, NodeWork::Free { address });
        }
        self.begin_free(address)?;
        self.enqueue(stream, StreamWork::Single(NodeWork::Free { address }));
        self.execute_ready_work();
        Ok(())
    }

    fn check_pool_operation(&mut self, stream: Handle) -> CallResult<Handle> {
        if self.settings.memory_pools == 0 {
            return Err(CallError::plain(Code::NOT_SUPPORTED));
        }
        self.stream(stream)
    }

    /// Executes work that takes no time: the work at the head of a stream, or that of step `node`
    /// of the graph launch there. Returns whether the work is done. A wait for a value is done once
    /// the value is there. Kernels and collectives are not executed here; the result is false.
    pub(super) fn execute_instant(&mut self, stream: Handle, node: Option<usize>, work: &NodeWork) -> bool {
        let done = match work {
            NodeWork::WaitValue { address, value, flags } => {
                let holds = self.value_condition_holds(*address, *value, *flags);
                if holds {
                    self.order_after_writers(stream, node, *address);
                }
                return holds;
            }
            NodeWork::Copy(copy) => {
                let task = self.begin_task(stream, node, |_| "a copy".to_owned());
                self.note_copy(task.as_ref(), copy);
                self.do_copy(copy)
            }
            NodeWork::CopyRows(copy) => {
                let task = self.begin_task(stream, node, |_| "a copy of rows".to_owned());
                self.do_copy_rows(task.as_ref(), copy)
            }
            NodeWork::Fill { address, pattern: Pattern { value, bytes }, times } => {
                let task = self.begin_task(stream, node, |_| "a fill".to_owned());
                self.note_access(task.as_ref(), AccessKind::Write, *address, (bytes * times) as u64);
                self.memory.write(*address, &value.to_le_bytes()[..*bytes].repeat(*times))
            }
            NodeWork::WriteValue { address, value } => {
                let task = self.begin_task(stream, node, |_| "a write of a value".to_owned());
                // Atomic, because several streams may write a value that others wait for in any
                // order.
                self.note_access(task.as_ref(), AccessKind::Atomic, *address, 4);
                self.memory.write(*address, &value.to_ne_bytes())
            }
            NodeWork::Free { address } => {
                let task = self.begin_task(stream, node, |_| "cuMemFreeAsync".to_owned());
                self.note_free_by_task(task.as_ref(), *address);
                // Memory allocated by a graph keeps its address between launches.
                if !self.is_graph_allocation(*address) {
                    self.end_free(*address);
                }
                Ok(())
            }
            NodeWork::Allocate | NodeWork::Child(_) | NodeWork::Empty => {
                self.complete_without_task(stream, node);
                Ok(())
            }
            NodeWork::Kernel(_) | NodeWork::Collectives(_) => return false,
        };
        if let Err(error) = done {
            let text = format!("a copy or fill in {}: {error}", self.handles.name(stream));
            self.fail_device(self.device_of_stream(stream), Code::ILLEGAL_ADDRESS, &text);
        }
        true
    }

    fn value_condition_holds(&mut self, address: u64, value: u32, flags: u32) -> bool {
        let mut bytes = [0; 4];
        if self.memory.read(address, &mut bytes).is_err() {
            self.warn(format!("a stream waits for a value at {address:#x}, which is freed"));
            return true;
        }
        let found = u32::from_ne_bytes(bytes);
        match flags {
            0 => found.wrapping_sub(value) < 1 << 31,
            1 => found == value,
            2 => found & value != 0,
            _ => !(found | value) != 0,
        }
    }

    fn do_copy_rows(&mut self, task: Option<&Arc<Task>>, copy: &CopiedRows) -> Result<(), String> {
        // As the rows of a real copy, none sees what another has written.
        let mut rows = vec![vec![0; copy.bytes]; copy.counts.iter().product()];
        for ([_, from], row) in copy.rows().zip(&mut rows) {
            self.note_access(task, AccessKind::Read, from, copy.bytes as u64);
            self.memory.read(from, row)?;
        }
        for ([to, _], row) in copy.rows().zip(&rows) {
            self.note_access(task, AccessKind::Write, to, copy.bytes as u64);
            self.memory.write(to, row)?;
        }
        Ok(())
    }

    fn do_copy(&mut self, copy: &CopyNode) -> Result<(), String> {
        let mut bytes = vec![0; copy.bytes];
        match &copy.from {
            CopyEndpoint::Device(address) => self.memory.read(*address, &mut bytes)?,
            CopyEndpoint::Host(span) => bytes = span.read(),
            CopyEndpoint::Snapshot(taken) => bytes.copy_from_slice(taken),
        }
        match &copy.to {
            CopyEndpoint::Device(address) => self.memory.write(*address, &bytes),
            CopyEndpoint::Host(span) => {
                span.write(&bytes);
                Ok(())
            }
            CopyEndpoint::Snapshot(_) => Ok(()),
        }
    }
}

fn check_aligned(address: u64, bytes: usize) -> CallResult<()> {
    if address % bytes as u64 == 0 {
        Ok(())
    } else {
        Err(CallError::value(format!("{address:#x} is not aligned to {bytes} bytes")))
    }
}
