//! Allocations of device memory, and what captured graphs keep alive.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cudarc::driver::sys;

use crate::driver::{cu, written};
use crate::{Context, Error, Result, Stream};

/// Range of device memory with its owner. It is freed with its last reference.
pub(crate) struct Memory {
    context: Context,
    address: u64,
    owner: Owner,
    /// Whether it was used in another stream than the owner's, or by captured work.
    used_elsewhere: AtomicBool,
}

/// Owner of device memory.
enum Owner {
    /// Freed by this value once all work in the context is complete.
    Allocation,
    /// Freed by this value behind the work in the stream.
    InStream(Stream),
    /// Freed by another library when this object is dropped.
    Other { _owner: Box<dyn Any + Send + Sync> },
}

impl Memory {
    /// Allocates `bytes` bytes of uninitialized memory, at least one.
    pub(crate) fn allocate(context: &Context, bytes: usize) -> Result<Self> {
        context.bind()?;
        // SAFETY: the address is written; the context is current.
        let address = written(|address| unsafe { cu!(context.driver(), cuMemAlloc_v2(address, bytes)) })?;
        Ok(Self::new(context, address, Owner::Allocation))
    }

    /// Allocates `bytes` bytes of uninitialized memory, at least one, in the order of a stream.
    /// Where the device has no such allocations, this is [`allocate`](Self::allocate).
    pub(crate) fn allocate_in(stream: &Stream, bytes: usize) -> Result<Self> {
        let context = stream.context();
        if !context.has_memory_pools()? {
            return Self::allocate(context, bytes);
        }
        context.bind()?;
        // SAFETY: the address is written; the stream is alive.
        let address = written(|address| unsafe {
            cu!(context.driver(), cuMemAllocAsync(address, bytes, stream.raw()))
        })?;
        Ok(Self::new(context, address, Owner::InStream(stream.clone())))
    }

    /// Wraps memory that belongs to `owner`.
    pub(crate) fn of_other(context: &Context, address: u64, owner: Box<dyn Any + Send + Sync>) -> Self {
        Self::new(context, address, Owner::Other { _owner: owner })
    }

    fn new(context: &Context, address: u64, owner: Owner) -> Self {
        Self { context: context.clone(), address, owner, used_elsewhere: AtomicBool::new(false) }
    }

    /// Returns the address of the first byte.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Prepares the use of the memory by work that is enqueued into `stream` next. Graphs that this
    /// thread is capturing keep it.
    ///
    /// # Errors
    /// As [`check_device`](Self::check_device).
    pub(crate) fn use_in(self: &Arc<Self>, stream: &Stream) -> Result<()> {
        self.check_device(stream)?;
        let is_captured = keep_while_captured(self);
        if let Owner::InStream(own) = &self.owner
            && (is_captured || own != stream)
        {
            self.used_elsewhere.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Checks that the memory can be used in a stream.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the memory and the stream belong to different devices.
    pub(crate) fn check_device(&self, stream: &Stream) -> Result<()> {
        stream.context().check_same(&self.context, "a buffer")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let (context, driver, address) = (&self.context, self.context.driver(), self.address);
        match &self.owner {
            // A fill, or a kernel, may still be in flight.
            Owner::Allocation => context.destroy_when_idle(|| {
                // SAFETY: it is freed once, and no work in flight uses it.
                unsafe { cu!(driver, cuMemFree_v2(address)) }
            }),
            Owner::InStream(stream) => {
                // SAFETY: it is freed once, behind the work in the stream, and no other work uses
                // it.
                let free = || unsafe { cu!(driver, cuMemFreeAsync(address, stream.raw())) };
                if *self.used_elsewhere.get_mut() {
                    context.destroy_when_idle(free);
                } else {
                    context.destroy(free);
                }
            }
            Owner::Other { .. } => {}
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = match self.owner {
            Owner::Allocation => "allocated",
            Owner::InStream(_) => "allocated in a stream",
            Owner::Other { .. } => "of another owner",
        };
        write!(f, "memory at {:#x}, {owner}", self.address)
    }
}

/// Object that captured work uses: memory, the module of a kernel, or what another graph keeps.
pub(crate) type Kept = Arc<dyn Any + Send + Sync>;

thread_local! {
    /// Objects used by the work that this thread has captured so far, by address, for each capture
    /// that it has begun and not ended.
    static CAPTURES: RefCell<Vec<HashMap<*const (), Kept>>> = const { RefCell::new(Vec::new()) };
}

/// Number of captures that threads of this process have begun and not ended.
static CAPTURES_IN_PROGRESS: AtomicUsize = AtomicUsize::new(0);

/// Recording of the objects that captured work uses, from its creation to its drop.
pub(crate) struct Recording(());

impl Recording {
    /// Begins a recording for the work that this thread enqueues from now on.
    pub(crate) fn begin() -> Self {
        CAPTURES.with_borrow_mut(|captures| captures.push(HashMap::new()));
        CAPTURES_IN_PROGRESS.fetch_add(1, Ordering::SeqCst);
        Self(())
    }

    /// Returns the objects that were recorded so far.
    #[allow(clippy::unused_self, reason = "it exists during the recording")]
    pub(crate) fn take(&self) -> Vec<Kept> {
        let recorded = CAPTURES.with_borrow_mut(|captures| captures.last_mut().map(std::mem::take));
        recorded.unwrap_or_default().into_values().collect()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        CAPTURES_IN_PROGRESS.fetch_sub(1, Ordering::SeqCst);
        let recorded = CAPTURES.with_borrow_mut(Vec::pop);
        drop(recorded);
    }
}

/// Keeps an object alive as long as the graphs that this thread is capturing, and returns whether
/// it captures any. Without a capture, dropping the object waits for enqueued work.
pub(crate) fn keep_while_captured<T: Any + Send + Sync>(object: &Arc<T>) -> bool {
    CAPTURES.with_borrow_mut(|captures| {
        for capture in &mut *captures {
            capture.entry(Arc::as_ptr(object).cast()).or_insert_with(|| Arc::clone(object) as Kept);
        }
        !captures.is_empty()
    })
}

/// Checks that this thread is not capturing a stream: the creation of `what` allocates memory,
/// which a capture does not permit.
///
/// # Errors
/// [`Error::Invalid`] if it is.
pub(crate) fn check_no_capture(what: &str) -> Result<()> {
    if CAPTURES.with_borrow(Vec::is_empty) {
        return Ok(());
    }
    Err(Error::Invalid(format!("{what} cannot be created while a stream is being captured")))
}

/// Checks that another thread does not capture a stream: this thread's work would be captured, and
/// the graph would not keep what it uses.
///
/// # Errors
/// [`Error::Invalid`] if it does; CUDA errors.
pub(crate) fn check_not_captured_elsewhere(stream: &Stream) -> Result<()> {
    let is_own = || CAPTURES.with_borrow(|captures| !captures.is_empty());
    if CAPTURES_IN_PROGRESS.load(Ordering::SeqCst) == 0 || is_own() || !stream.is_capturing()? {
        return Ok(());
    }
    Err(Error::Invalid("work was enqueued into a stream that another thread is capturing".to_owned()))
}
