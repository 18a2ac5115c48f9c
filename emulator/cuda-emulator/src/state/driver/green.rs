//! Green contexts: contexts on a part of a device's multiprocessors. They have no effect on virtual
//! times.

use super::Driver;
use crate::state::{CallError, CallResult, Code, Handle, green::Resource, handles::HandleKind};

const NON_BLOCKING: u32 = 1;

impl Driver {
    /// Implements `cuDeviceGetDevResource`: returns all multiprocessors of a device. Resources of
    /// another `kind` than 1, multiprocessors, are refused.
    pub(crate) fn device_resource(&self, device: i32, kind: u32) -> CallResult<Resource> {
        self.check_device(device)?;
        if kind != 1 {
            let text = format!("devices have no resource of type {kind} here");
            return Err(CallError::misuse(Code::INVALID_RESOURCE_TYPE, text));
        }
        Ok(Resource::new(self.settings.multiprocessors as u32))
    }

    /// Implements `cuDevResourceGenerateDesc`: returns a description of resources, which is never
    /// destroyed. An empty list is refused.
    pub(crate) fn describe_resources(&mut self, resources: &[Resource]) -> CallResult<Handle> {
        resources.iter().try_for_each(Resource::check)?;
        if resources.is_empty() {
            return Err(CallError::value("a description of no resources"));
        }
        Ok(self.handles.create(HandleKind::ResourceDescription))
    }

    /// Implements `cuGreenCtxCreate`. The flags must be `CU_GREEN_CTX_DEFAULT_STREAM`.
    pub(crate) fn create_green(
        &mut self,
        description: Handle,
        device: i32,
        flags: u32,
    ) -> CallResult<Handle> {
        self.check_device(device)?;
        self.handles.check(HandleKind::ResourceDescription, description)?;
        if flags != 1 {
            return Err(CallError::value(format!("green contexts cannot have the flags {flags:#x}")));
        }
        let context = self.new_context(device);
        let handle = self.handles.create(HandleKind::GreenContext);
        self.green.alive.insert(handle, context);
        Ok(handle)
    }

    /// Implements `cuCtxFromGreenCtx`: returns the context that belongs to a green context.
    pub(crate) fn convert_green(&mut self, handle: Handle) -> CallResult<Handle> {
        let context = self.context_of_green(handle)?;
        self.green.converted.insert(context);
        Ok(context)
    }

    fn context_of_green(&self, handle: Handle) -> CallResult<Handle> {
        self.handles.check(HandleKind::GreenContext, handle)?;
        self.green.alive.get(&handle).copied().ok_or_else(|| CallError::plain(Code::INVALID_HANDLE))
    }

    /// Implements `cuGreenCtxDestroy`: destroys the green context and the context that belongs to
    /// it.
    pub(crate) fn destroy_green(&mut self, handle: Handle) -> CallResult<()> {
        let context = self.context_of_green(handle)?;
        self.handles.destroy(handle);
        self.green.alive.remove(&handle);
        self.green.converted.remove(&context);
        self.end_context(context);
        Ok(())
    }

    /// Implements `cuGreenCtxStreamCreate`: creates a stream of a green context. The flags must be
    /// `CU_STREAM_NON_BLOCKING`.
    pub(crate) fn create_green_stream(
        &mut self,
        handle: Handle,
        flags: u32,
        priority: i32,
    ) -> CallResult<Handle> {
        let context = self.context_of_green(handle)?;
        if flags != NON_BLOCKING {
            return Err(CallError::value(format!(
                "streams of green contexts cannot have the flags {flags:#x}"
            )));
        }
        Ok(self.add_stream(context, true, priority))
    }
}
