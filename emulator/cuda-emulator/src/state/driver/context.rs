//! Contexts, and the stack of contexts of each thread.

use super::Driver;
use crate::state::{CallError, CallResult, Code, Handle, contexts::Primary, handles::HandleKind};
use std::cell::RefCell;

thread_local! {
    /// The driver's generation and this thread's stack of contexts, with the current one last. 0
    /// stands for no context.
    static STACK: RefCell<(u64, Vec<Handle>)> = const { RefCell::new((0, Vec::new())) };
}

impl Driver {
    /// Runs `work` on this thread's stack of contexts, which a reset empties.
    fn with_stack<T>(&self, work: impl FnOnce(&mut Vec<Handle>) -> T) -> T {
        STACK.with_borrow_mut(|(generation, stack)| {
            if *generation != self.generation {
                (*generation, *stack) = (self.generation, Vec::new());
            }
            work(stack)
        })
    }
}

impl Driver {
    /// Implements `cuDevicePrimaryCtxRetain`: returns the primary context of a device and
    /// increments its reference count.
    pub(crate) fn retain_primary(&mut self, device: i32) -> CallResult<Handle> {
        self.check_device(device)?;
        if let Some(primary) = self.contexts.primary.get_mut(&device) {
            primary.retained += 1;
            return Ok(primary.handle);
        }
        let handle = self.new_context(device);
        self.contexts.primary.insert(device, Primary { handle, retained: 1 });
        Ok(handle)
    }

    /// Implements `cuDevicePrimaryCtxRelease`. The context is destroyed when the last reference is
    /// released. It is an error if there is no reference.
    pub(crate) fn release_primary(&mut self, device: i32) -> CallResult<()> {
        self.check_device(device)?;
        let primary = self.contexts.primary.get_mut(&device).ok_or_else(|| {
            CallError::misuse(
                Code::INVALID_CONTEXT,
                format!("the primary context of device {device} is not retained"),
            )
        })?;
        primary.retained -= 1;
        if primary.retained == 0 {
            let handle = primary.handle;
            self.contexts.primary.remove(&device);
            self.end_context(handle);
        }
        Ok(())
    }

    /// Creates a context on a device and returns its handle. It does not become current.
    pub(super) fn new_context(&mut self, device: i32) -> Handle {
        let handle = self.handles.create(HandleKind::Context);
        self.contexts.alive.insert(handle, device);
        handle
    }

    /// Destroys a context and its default stream. Streams and events left in it are reported as a
    /// misuse and refused in calls from then on.
    pub(super) fn end_context(&mut self, context: Handle) {
        self.contexts.alive.remove(&context);
        self.handles.destroy(context);
        if let Some(stream) = self.simulation.default_streams.remove(&context) {
            self.handles.destroy(stream);
            self.remove_stream(stream);
        }
        let left =
            self.streams.values().filter(|stream| stream.context == context && !stream.destroyed).count()
                + self.events.values().filter(|event| event.context == context).count();
        if left > 0 {
            self.warn(format!("{} ended with {left} streams and events in it", self.handles.name(context)));
        }
    }

    /// Checks that the context of an object is not destroyed.
    pub(super) fn check_owner(&self, context: Handle, object: Handle) -> CallResult<()> {
        if self.contexts.alive.contains_key(&context) {
            return Ok(());
        }
        let text = format!("{} after its context was destroyed", self.handles.name(object));
        Err(CallError::misuse(Code::CONTEXT_IS_DESTROYED, text))
    }

    /// Implements `cuCtxSetCurrent`: replaces the current context of the calling thread. Null
    /// removes it.
    pub(crate) fn set_current_context(&self, context: Handle) -> CallResult<()> {
        if context != 0 {
            let wrong = |error: CallError| CallError { code: Code::INVALID_CONTEXT, ..error };
            self.handles.check(HandleKind::Context, context).map_err(wrong)?;
        }
        self.with_stack(|stack| {
            stack.pop();
            stack.push(context);
        });
        Ok(())
    }

    /// Implements `cuCtxPushCurrent`: adds a context to the stack of the calling thread, where it
    /// becomes current.
    pub(crate) fn push_context(&self, context: Handle) -> CallResult<()> {
        self.with_stack(|stack| stack.push(0));
        let set = self.set_current_context(context);
        if set.is_err() {
            self.with_stack(Vec::pop);
        }
        set
    }

    /// Implements `cuCtxPopCurrent`: removes the current context from the stack of the calling
    /// thread and returns it.
    pub(crate) fn pop_context(&self) -> CallResult<Handle> {
        let context = self.current_context()?;
        self.with_stack(Vec::pop);
        Ok(context)
    }

    /// Implements `cuCtxCreate`: creates a context on a device and makes it current on the calling
    /// thread.
    pub(crate) fn create_context(&mut self, device: i32) -> CallResult<Handle> {
        self.check_device(device)?;
        let context = self.new_context(device);
        self.contexts.created.insert(context);
        self.with_stack(|stack| stack.push(context));
        Ok(context)
    }

    /// Implements `cuCtxDestroy`: waits for the work of the device and destroys the context. A
    /// context that was not made by `cuCtxCreate` is refused.
    pub(crate) fn destroy_context(&mut self, context: Handle) -> CallResult<()> {
        self.handles.check(HandleKind::Context, context)?;
        if !self.contexts.created.remove(&context) {
            let text = format!("{} was not made by cuCtxCreate", self.handles.name(context));
            return Err(CallError::misuse(Code::INVALID_CONTEXT, text));
        }
        let ended = self.drain(self.device_of_context(context));
        if self.get_current_context() == context {
            self.with_stack(Vec::pop);
        }
        self.end_context(context);
        ended
    }

    /// Implements `cuDevicePrimaryCtxGetState`: returns whether the primary context of a device is
    /// retained.
    pub(crate) fn primary_is_active(&self, device: i32) -> CallResult<bool> {
        self.check_device(device)?;
        Ok(self.contexts.primary.contains_key(&device))
    }

    /// Implements `cuStreamGetCtx`: returns the context of a stream.
    pub(crate) fn context_of_stream(&mut self, stream: Handle) -> CallResult<Handle> {
        let stream = self.stream(stream)?;
        Ok(self.streams.get(&stream).map_or(0, |stream| stream.context))
    }

    /// Implements `cuCtxGetCurrent`: returns the current context of the calling thread, or 0 if
    /// there is none.
    pub(crate) fn get_current_context(&self) -> Handle {
        self.with_stack(|stack| stack.last().copied().unwrap_or(0))
    }

    /// Returns the current context of the calling thread. It is an error if there is none or if it
    /// is destroyed.
    pub(crate) fn current_context(&self) -> CallResult<Handle> {
        let context = self.get_current_context();
        if context == 0 {
            return Err(CallError::misuse(Code::INVALID_CONTEXT, "no context is current on this thread"));
        }
        if !self.contexts.alive.contains_key(&context) {
            return Err(CallError::misuse(Code::CONTEXT_IS_DESTROYED, "the thread's context is destroyed"));
        }
        Ok(context)
    }

    /// Returns the device of the current context. It is an error if there is no current context.
    pub(crate) fn current_device(&self) -> CallResult<i32> {
        Ok(self.device_of_context(self.current_context()?))
    }

    /// Returns the device of a context, or 0 if the context is destroyed.
    pub(super) fn device_of_context(&self, context: Handle) -> i32 {
        self.contexts.alive.get(&context).copied().unwrap_or(0)
    }
}
