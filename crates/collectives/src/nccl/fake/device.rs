//! A device whose memory is the host's.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::{Fabric, Work};
use crate::nccl::api::RawStream;
use crate::nccl::device::{GpuDevice, Owner, Stream, StreamEvent};

/// A rank's device.
#[derive(Debug)]
pub(in crate::nccl) struct FakeDevice(pub(in crate::nccl) Arc<Fabric>);

/// Does its work whenever somebody asks how far it is.
#[derive(Debug)]
pub(super) struct FakeStream {
    fabric: Arc<Fabric>,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    pushed: u64,
    work: VecDeque<Work>,
}

#[derive(Debug)]
struct FakeMark {
    stream: Arc<FakeStream>,
    after: u64,
}

/// Memory whose end is noticed.
struct Memory {
    fabric: Arc<Fabric>,
    _bytes: Vec<u128>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.fabric.lock().allocations -= 1;
    }
}

impl GpuDevice for FakeDevice {
    fn bind(&self) -> Result<(), String> {
        self.0.driver_call()
    }

    fn stream(&self) -> Result<Arc<dyn Stream>, String> {
        self.0.driver_call()?;
        let stream = Arc::new(FakeStream { fabric: Arc::clone(&self.0), queue: Mutex::default() });
        self.0.lock().streams.push(Arc::downgrade(&stream));
        Ok(Arc::new(stream))
    }
}

impl FakeStream {
    pub(super) fn push(&self, work: Work) {
        let mut queue = self.queue.lock().unwrap();
        queue.pushed += 1;
        queue.work.push_back(work);
        drop(queue);
        self.advance();
    }

    /// How many pieces of work are done.
    fn advance(&self) -> u64 {
        let mut queue = self.queue.lock().unwrap();
        while queue.work.front_mut().is_some_and(|work| self.fabric.run(work)) {
            queue.work.pop_front();
        }
        queue.pushed - queue.work.len() as u64
    }
}

impl Stream for Arc<FakeStream> {
    fn raw(&self) -> RawStream {
        Arc::as_ptr(self).cast_mut().cast()
    }

    fn event(&self) -> Result<Box<dyn StreamEvent>, String> {
        self.fabric.driver_call()?;
        let after = self.queue.lock().unwrap().pushed;
        Ok(Box::new(FakeMark { stream: Arc::clone(self), after }))
    }

    fn synchronize(&self) -> Result<(), String> {
        self.fabric.driver_call()?;
        let pushed = self.queue.lock().unwrap().pushed;
        while self.advance() < pushed {
            std::thread::yield_now();
        }
        Ok(())
    }

    fn allocate(&self, bytes: usize) -> Result<(u64, Owner), String> {
        self.fabric.driver_call()?;
        assert!(bytes > 0, "an allocation of nothing");
        let memory = vec![u128::MAX; bytes.div_ceil(16)];
        let pointer = memory.as_ptr() as u64;
        self.fabric.lock().allocations += 1;
        Ok((pointer, Box::new(Memory { fabric: Arc::clone(&self.fabric), _bytes: memory })))
    }

    unsafe fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), String> {
        self.fabric.driver_call()?;
        if bytes == 0 {
            self.fabric.lock().violations.push("a copy of nothing".to_owned());
        }
        self.push(Work::Copy { from, to, bytes });
        Ok(())
    }

    unsafe fn upload(&self, from: &[u8], to: u64) -> Result<(), String> {
        // SAFETY: as the caller promises.
        unsafe { self.copy(from.as_ptr() as u64, to, from.len()) }?;
        self.synchronize()
    }

    unsafe fn download(&self, from: u64, to: &mut [u8]) -> Result<(), String> {
        // SAFETY: as the caller promises.
        unsafe { self.copy(from, to.as_mut_ptr() as u64, to.len()) }?;
        self.synchronize()
    }
}

impl StreamEvent for FakeMark {
    fn is_complete(&self) -> Result<bool, String> {
        self.stream.fabric.driver_call()?;
        Ok(self.stream.advance() >= self.after)
    }
}
