//! Work of streams on memory: copies, fills, values written and waited for, memory in the order of a stream.

use super::{
    Code, Driver, Fault, Handle, Outcome,
    nodes::{CopyNode, NodeWork, Spot},
    work::Work,
};
use crate::host::HostSpan;

/// `CU_STREAM_WAIT_VALUE_FLUSH`, which makes no difference here.
const FLUSH: u32 = 1 << 30;

impl Driver {
    /// `cuMemcpyHtoDAsync`. From pageable memory, the bytes are taken at the call.
    pub(crate) fn copy_to_device(&mut self, to: u64, from: &HostSpan, stream: Handle) -> Outcome<()> {
        let stream = self.stream(stream)?;
        let bytes = from.bytes();
        self.check_memory(to, bytes)?;
        let late = self.memory.is_page_locked(from.address()) || self.refuse_invalid_capture(stream)?;
        let from = if late { Spot::Host(from.clone()) } else { Spot::Snapshot(from.read().into()) };
        self.submit(stream, NodeWork::Copy(CopyNode { to: Spot::Device(to), from, bytes }))
    }

    /// `cuMemcpyDtoHAsync`. To pageable memory, the host waits for the copy.
    pub(crate) fn copy_to_host(&mut self, to: &HostSpan, from: u64, stream: Handle) -> Outcome<()> {
        let stream = self.stream(stream)?;
        let bytes = to.bytes();
        self.check_memory(from, bytes)?;
        let waits = !self.memory.is_page_locked(to.address()) && !self.refuse_invalid_capture(stream)?;
        let to = Spot::Host(to.clone());
        self.submit(stream, NodeWork::Copy(CopyNode { to, from: Spot::Device(from), bytes }))?;
        if waits {
            self.run_until(|driver| {
                driver.streams.get(&stream).is_none_or(|stream| stream.queue.is_empty())
            })?;
        }
        Ok(())
    }

    /// `cuMemsetD32Async`.
    pub(crate) fn fill(&mut self, address: u64, value: u32, words: usize, stream: Handle) -> Outcome<()> {
        let stream = self.stream(stream)?;
        self.check_memory(address, words.saturating_mul(4))?;
        aligned(address)?;
        self.submit(stream, NodeWork::Fill { address, value, words })
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
        aligned(address)?;
        Ok(stream)
    }

    /// `cuMemAllocAsync`; in a capture, a node that allocates.
    pub(crate) fn allocate_async(&mut self, bytes: usize, stream: Handle) -> Outcome<u64> {
        let stream = self.pool_operation(stream)?;
        let captures = self.refuse_invalid_capture(stream)?;
        let address = self.new_block(bytes, captures)?;
        if captures {
            self.submit(stream, NodeWork::Allocate)?;
        }
        Ok(address)
    }

    /// `cuMemFreeAsync`; in a capture, a node that frees what the graph has allocated.
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

    /// Does work that takes no time, if its turn has come; false if not.
    pub(super) fn do_now(&mut self, work: &NodeWork) -> bool {
        match work {
            NodeWork::WaitValue { address, value, flags } => return self.holds(*address, *value, *flags),
            NodeWork::Copy(copy) => self.copy(copy),
            NodeWork::Fill { address, value, words } => {
                self.memory.write(*address, &value.to_ne_bytes().repeat(*words));
            }
            NodeWork::WriteValue { address, value } => self.memory.write(*address, &value.to_ne_bytes()),
            // What a graph allocates keeps its address from launch to launch.
            NodeWork::Free { address } if !self.is_of_graph(*address) => self.end_free(*address),
            NodeWork::Free { .. } | NodeWork::Allocate | NodeWork::Child(_) | NodeWork::Empty => {}
            NodeWork::Kernel(_) => return false,
        }
        true
    }

    fn holds(&mut self, address: u64, value: u32, flags: u32) -> bool {
        if self.memory.end_of(address).is_none() {
            self.warn(format!("a stream waits for a value at {address:#x}, which is freed"));
            return true;
        }
        let mut bytes = [0; 4];
        self.memory.read(address, &mut bytes);
        let found = u32::from_ne_bytes(bytes);
        match flags {
            0 => found.wrapping_sub(value) < 1 << 31,
            1 => found == value,
            2 => found & value != 0,
            _ => !(found | value) != 0,
        }
    }

    fn copy(&mut self, copy: &CopyNode) {
        let mut bytes = vec![0; copy.bytes];
        match &copy.from {
            Spot::Device(address) => self.memory.read(*address, &mut bytes),
            Spot::Host(span) => bytes = span.read(),
            Spot::Snapshot(taken) => bytes.copy_from_slice(taken),
        }
        match &copy.to {
            Spot::Device(address) => self.memory.write(*address, &bytes),
            Spot::Host(span) => span.write(&bytes),
            Spot::Snapshot(_) => {}
        }
    }
}

fn aligned(address: u64) -> Outcome<()> {
    if address % 4 == 0 {
        Ok(())
    } else {
        Err(Fault::value(format!("{address:#x} is not aligned to 4 bytes")))
    }
}
