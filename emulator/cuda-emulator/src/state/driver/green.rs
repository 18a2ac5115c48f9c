//! Green contexts: contexts on a part of a device's multiprocessors. They have no effect on virtual
//! times.

use super::Driver;
use crate::state::{Code, Fault, Handle, Outcome, green::Resource, handles::Kind};

const NON_BLOCKING: u32 = 1;

impl Driver {
    /// `cuDeviceGetDevResource`.
    pub(crate) fn device_resource(&self, device: i32, kind: u32) -> Outcome<Resource> {
        self.check_device(device)?;
        if kind != 1 {
            let text = format!("devices have no resource of type {kind} here");
            return Err(Fault::misuse(Code::INVALID_RESOURCE_TYPE, text));
        }
        Ok(Resource::new(self.settings.multiprocessors as u32))
    }

    /// `cuDevResourceGenerateDesc`. Descriptors are never destroyed.
    pub(crate) fn describe(&mut self, resources: &[Resource]) -> Outcome<Handle> {
        resources.iter().try_for_each(Resource::check)?;
        if resources.is_empty() {
            return Err(Fault::value("a description of no resources"));
        }
        Ok(self.handles.give(Kind::ResourceDescription))
    }

    /// `cuGreenCtxCreate`, with the mandatory flag `CU_GREEN_CTX_DEFAULT_STREAM`.
    pub(crate) fn create_green(&mut self, description: Handle, device: i32, flags: u32) -> Outcome<Handle> {
        self.check_device(device)?;
        self.handles.check(Kind::ResourceDescription, description)?;
        if flags != 1 {
            return Err(Fault::value(format!("green contexts cannot have the flags {flags:#x}")));
        }
        let context = self.new_context(device);
        let handle = self.handles.give(Kind::GreenContext);
        self.green.alive.insert(handle, context);
        Ok(handle)
    }

    /// `cuCtxFromGreenCtx`.
    pub(crate) fn convert_green(&mut self, handle: Handle) -> Outcome<Handle> {
        let context = self.green_as_context(handle)?;
        self.green.converted.insert(context);
        Ok(context)
    }

    fn green_as_context(&self, handle: Handle) -> Outcome<Handle> {
        self.handles.check(Kind::GreenContext, handle)?;
        self.green.alive.get(&handle).copied().ok_or_else(|| Fault::plain(Code::INVALID_HANDLE))
    }

    /// `cuGreenCtxDestroy`.
    pub(crate) fn destroy_green(&mut self, handle: Handle) -> Outcome<()> {
        let context = self.green_as_context(handle)?;
        self.handles.end(handle);
        self.green.alive.remove(&handle);
        self.green.converted.remove(&context);
        self.end_context(context);
        Ok(())
    }

    /// `cuGreenCtxStreamCreate`.
    pub(crate) fn create_green_stream(
        &mut self,
        handle: Handle,
        flags: u32,
        priority: i32,
    ) -> Outcome<Handle> {
        let context = self.green_as_context(handle)?;
        if flags != NON_BLOCKING {
            return Err(Fault::value(format!("streams of green contexts cannot have the flags {flags:#x}")));
        }
        Ok(self.add_stream(context, true, priority))
    }
}
