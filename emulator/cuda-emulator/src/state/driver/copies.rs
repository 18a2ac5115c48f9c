//! Memory operations of streams: copies, fills, waits for values, writes of values, and
//! stream-ordered allocation.

use super::Driver;
use crate::{
    host::HostSpan,
    state::{
        Code, Fault, Handle, Outcome,
        handles::Kind,
        nodes::{CopyNode, NodeWork, Pattern, Spot},
        work::Work,
    },
};
use ptx_emulator::AccessKind;

/// `CU_STREAM_WAIT_VALUE_FLUSH`, which has no effect here.
const FLUSH: u32 = 1 << 30;

/// A source or destination of a copy, as named by a call.
pub(crate) enum Place {
    /// Memory of a device, or page-locked memory named by its device pointer.
    Device(u64),
    Host(HostSpan),
}

impl Driver {
    /// Copies in stream order. Bytes from pageable host memory are read at the call. The host waits
    /// for the copy if `waits` is set or if the destination is pageable host memory.
    pub(crate) fn copy(
        &mut self,
        to: Place,
        from: Place,
        bytes: usize,
        stream: Handle,
        waits: bool,
    ) -> Outcome<()> {
        let stream = self.stream(stream)?;
        if waits {
            self.unsafe_while_capturing("copies and waits for it")?;
        }
        let captures = self.refuse_invalid_capture(stream)?;
        let from = match from {
            Place::Device(address) => {
                self.check_memory(address, bytes)?;
                Spot::Device(address)
            }
            Place::Host(span) if captures || self.memory.is_page_locked(span.address()) => Spot::Host(span),
            Place::Host(span) => Spot::Snapshot(span.read().into()),
        };
        let (to, pageable) = match to {
            Place::Device(address) => {
                self.check_memory(address, bytes)?;
                (Spot::Device(address), false)
            }
            Place::Host(span) => {
                let pageable = !self.memory.is_page_locked(span.address());
                (Spot::Host(span), pageable)
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

    /// Returns the operand for an address, which is of a device or of the host.
    ///
    /// `host` creates the span if the address is in host memory.
    pub(crate) fn place_of(&self, address: u64, host: impl FnOnce() -> HostSpan) -> Place {
        if self.memory.block(address).is_some() { Place::Device(address) } else { Place::Host(host()) }
    }

    /// Checks an address of `cuMemcpyPeer`, which must be in the memory of the context's device.
    pub(crate) fn check_peer(&self, address: u64, context: Handle) -> Outcome<()> {
        self.handles.check(Kind::Context, context)?;
        let device = self.device_of_context(context);
        if self.device_at(address) == Some(device) {
            return Ok(());
        }
        Err(Fault::value(format!("{address:#x} is not memory of device {device}, whose context is given")))
    }

    /// `cuMemsetD8Async` and similar functions.
    pub(crate) fn fill(
        &mut self,
        address: u64,
        pattern: Pattern,
        times: usize,
        stream: Handle,
    ) -> Outcome<()> {
        let stream = self.stream(stream)?;
        self.check_memory(address, times.saturating_mul(pattern.bytes))?;
        aligned(address, pattern.bytes)?;
        self.submit(stream, NodeWork::Fill { address, pattern, times })
    }

    /// `cuStreamWaitValue32`.
    pub(crate) fn wait_value(&mut self, stream: Handle, address: u64, value: u32, flags: u32) -> Outcome<()> {
        let stream = self.value_operation(stream, address)?;
        if flags & !FLUSH > 3 {
            return Err(Fault::value(format!("there is no wait with the flags {flags:#x}")));
        }
        self.submit(stream, NodeWork::WaitValue { address, value, flags: flags & !FLUSH })
    }

    /// `cuStreamWriteValue32`.
    pub(crate) fn write_value(
        &mut self,
        stream: Handle,
        address: u64,
        value: u32,
        flags: u32,
    ) -> Outcome<()> {
        let stream = self.value_operation(stream, address)?;
        if flags > 1 {
            return Err(Fault::value(format!("there is no write with the flags {flags:#x}")));
        }
        self.submit(stream, NodeWork::WriteValue { address, value })
    }

    fn value_operation(&mut self, stream: Handle, address: u64) -> Outcome<Handle> {
        if self.settings.stream_memory_operations == 0 {
            return Err(Fault::plain(Code::NOT_SUPPORTED));
        }
        let stream = self.stream(stream)?;
        self.check_memory(address, 4)?;
        aligned(address, 4)?;
        Ok(stream)
    }

    /// `cuMemAllocAsync`. In a capture, adds an allocation node.
    pub(crate) fn allocate_async(&mut self, bytes: usize, stream: Handle) -> Outcome<u64> {
        let stream = self.pool_operation(stream)?;
        let captures = self.refuse_invalid_capture(stream)?;
        let device = self.device_of_stream(stream);
        let address = self.new_block(device, bytes, captures)?;
        if captures {
            self.submit(stream, NodeWork::Allocate)?;
        } else if self.checks_order() {
            self.enqueue(stream, Work::Allocated { address });
            self.settle();
        }
        Ok(address)
    }

    /// `cuMemFreeAsync`. In a capture, adds a node that frees memory allocated by the graph.
    pub(crate) fn free_async(&mut self, address: u64, stream: Handle) -> Outcome<()> {
        let stream = self.pool_operation(stream)?;
        if self.refuse_invalid_capture(stream)? != self.is_of_graph(address) {
            return Err(Fault::value(format!(
                "{address:#x} was allocated by a graph, or is freed by one: not both"
            )));
        }
        if self.is_of_graph(address) {
            return self.submit(stream, NodeWork::Free { address });
        }
        self.begin_free(address)?;
        self.enqueue(stream, Work::Single(NodeWork::Free { address }));
        self.settle();
        Ok(())
    }

    fn pool_operation(&mut self, stream: Handle) -> Outcome<Handle> {
        if self.settings.memory_pools == 0 {
            return Err(Fault::plain(Code::NOT_SUPPORTED));
        }
        self.stream(stream)
    }

    /// Executes work that takes no time, of a stream or of a node of the graph at its head. Returns
    /// whether it is done.
    pub(super) fn do_now(&mut self, stream: Handle, node: Option<usize>, work: &NodeWork) -> bool {
        let done = match work {
            NodeWork::WaitValue { address, value, flags } => {
                let holds = self.holds(*address, *value, *flags);
                if holds {
                    self.after_value(stream, node, *address);
                }
                return holds;
            }
            NodeWork::Copy(copy) => {
                let task = self.begin_task(stream, node, |_| "a copy".to_owned());
                self.use_by_copy(task.as_ref(), copy);
                self.do_copy(copy)
            }
            NodeWork::Fill { address, pattern: Pattern { value, bytes }, times } => {
                let task = self.begin_task(stream, node, |_| "a fill".to_owned());
                self.use_memory(task.as_ref(), AccessKind::Write, *address, (bytes * times) as u64);
                self.memory.write(*address, &value.to_le_bytes()[..*bytes].repeat(*times))
            }
            NodeWork::WriteValue { address, value } => {
                let task = self.begin_task(stream, node, |_| "a write of a value".to_owned());
                // Atomic, because several streams may write a value that others wait for in any
                // order.
                self.use_memory(task.as_ref(), AccessKind::Atomic, *address, 4);
                self.memory.write(*address, &value.to_ne_bytes())
            }
            NodeWork::Free { address } => {
                let task = self.begin_task(stream, node, |_| "cuMemFreeAsync".to_owned());
                self.freed_by_task(task.as_ref(), *address);
                // Memory allocated by a graph keeps its address between launches.
                if !self.is_of_graph(*address) {
                    self.end_free(*address);
                }
                Ok(())
            }
            NodeWork::Allocate | NodeWork::Child(_) | NodeWork::Empty => {
                self.pass(stream, node);
                Ok(())
            }
            NodeWork::Kernel(_) | NodeWork::Collectives(_) => return false,
        };
        if let Err(error) = done {
            let text = format!("a copy or fill in {}: {error}", self.handles.name(stream));
            self.lose_device(self.device_of_stream(stream), Code::ILLEGAL_ADDRESS, &text);
        }
        true
    }

    fn holds(&mut self, address: u64, value: u32, flags: u32) -> bool {
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

    fn do_copy(&mut self, copy: &CopyNode) -> Result<(), String> {
        let mut bytes = vec![0; copy.bytes];
        match &copy.from {
            Spot::Device(address) => self.memory.read(*address, &mut bytes)?,
            Spot::Host(span) => bytes = span.read(),
            Spot::Snapshot(taken) => bytes.copy_from_slice(taken),
        }
        match &copy.to {
            Spot::Device(address) => self.memory.write(*address, &bytes),
            Spot::Host(span) => {
                span.write(&bytes);
                Ok(())
            }
            Spot::Snapshot(_) => Ok(()),
        }
    }
}

fn aligned(address: u64, bytes: usize) -> Outcome<()> {
    if address % bytes as u64 == 0 {
        Ok(())
    } else {
        Err(Fault::value(format!("{address:#x} is not aligned to {bytes} bytes")))
    }
}
