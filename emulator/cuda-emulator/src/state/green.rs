//! Green contexts: some of the device's multiprocessors for themselves. They make no difference to times here.

use super::{Code, Driver, Fault, Handle, Outcome, handles::Kind};
use std::collections::{BTreeMap, BTreeSet};

/// Sizes and alignments of what is split off, as on compute capability 9.0.
const STEP: u32 = 8;
/// Marks a resource that came from this driver.
const ORIGIN: [u8; 8] = *b"fakecuda";
const NON_BLOCKING: u32 = 1;

/// `CUdevResource`, of which the multiprocessors are the only kind.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Resource {
    kind: u32,
    origin: [u8; 8],
    padding: [u8; 84],
    multiprocessors: u32,
    least_partition: u32,
    alignment: u32,
    oversize: [u8; 36],
}

impl Resource {
    fn new(multiprocessors: u32) -> Self {
        Self {
            kind: u32::from(multiprocessors > 0),
            origin: ORIGIN,
            padding: [0; 84],
            multiprocessors,
            least_partition: STEP,
            alignment: STEP,
            oversize: [0; 36],
        }
    }

    /// `cuDevSmResourceSplitByCount`: equal groups of at least `least` multiprocessors, and the rest.
    pub(crate) fn split(self, wanted: usize, least: u32) -> Outcome<(Vec<Resource>, Resource)> {
        self.check()?;
        let size = least.max(1).next_multiple_of(STEP);
        let possible = self.multiprocessors / size;
        if possible == 0 {
            let text =
                format!("no group of {least} can be split off {} multiprocessors", self.multiprocessors);
            return Err(Fault::misuse(Code::INVALID_RESOURCE_CONFIGURATION, text));
        }
        let groups = wanted.min(possible as usize);
        let rest = self.multiprocessors - groups as u32 * size;
        Ok((vec![Resource::new(size); groups], Resource::new(rest)))
    }

    fn check(&self) -> Outcome<()> {
        if self.kind == 1 && self.origin == ORIGIN {
            return Ok(());
        }
        Err(Fault::misuse(
            Code::INVALID_RESOURCE_TYPE,
            "a resource that is no multiprocessors of this driver",
        ))
    }
}

/// What is alive.
#[derive(Default)]
pub(crate) struct GreenContexts {
    /// The context that stands for each green context.
    alive: BTreeMap<Handle, Handle>,
    /// Of these, the contexts that were asked for.
    converted: BTreeSet<Handle>,
}

impl GreenContexts {
    pub(super) fn handles(&self) -> impl Iterator<Item = Handle> {
        self.alive.keys().copied()
    }

    /// Whether this is a green context's context that nobody has asked for yet. CUDA then takes no changes of kernels that were captured
    /// in its streams, as was seen on an H200 with driver 580.
    pub(super) fn is_unconverted(&self, context: Handle) -> bool {
        self.alive.values().any(|&own| own == context) && !self.converted.contains(&context)
    }
}

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

    /// `cuDevResourceGenerateDesc`. Descriptions are never destroyed.
    pub(crate) fn describe(&mut self, resources: &[Resource]) -> Outcome<Handle> {
        resources.iter().try_for_each(Resource::check)?;
        if resources.is_empty() {
            return Err(Fault::value("a description of no resources"));
        }
        Ok(self.handles.give(Kind::ResourceDescription))
    }

    /// `cuGreenCtxCreate`, with `CU_GREEN_CTX_DEFAULT_STREAM`, as it has to be.
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
