//! Calls of cuDNN's backend.

use super::Driver;
use crate::state::{
    Handle, LibraryError, LibraryWork,
    cudnn::{
        CudnnHandle, CudnnResult, CudnnStatus, Descriptor, DeviceProperties, Finalized, Kind, Place, Plan,
        Values, VariantPack, type_bytes,
    },
    handles::HandleKind,
};
use std::sync::Arc;

/// Names in the text of device properties whose values are used.
const MULTIPROCESSORS: &str = "multiProcessorCount";
const VERSION: &str = "deviceVer";

/// Other names that the text of device properties must have.
const PROPERTIES: [&str; 6] =
    ["maxGridSize", "maxBlockSize", "regsPerBlock", "warpSize", "maxThreadsPerBlock", "deviceName"];

/// Smallest supported compute capability, times 100.
const FIRST_VERSION: i64 = 500;

/// Alignment of workspaces in bytes.
const WORKSPACE_ALIGNMENT: u64 = 16;

fn wrong<T>(status: CudnnStatus, text: impl Into<String>) -> CudnnResult<T> {
    Err(LibraryError::misuse(status, text))
}

impl Driver {
    /// Implements `cudnnCreate`: creates a handle in the current context.
    pub(crate) fn create_cudnn(&mut self) -> CudnnResult<Handle> {
        if self.settings.devices == 0 {
            return Err(LibraryError::plain(CudnnStatus::NOT_INITIALIZED));
        }
        let context = self.current_context()?;
        let device = self.device_of_context(context);
        self.check_device_not_lost(device)?;
        self.refuse_library_handle_in_capture("creates a cuDNN handle")?;
        let handle = self.handles.create(HandleKind::CudnnHandle);
        self.cudnn.handles.insert(handle, CudnnHandle { context, device, stream: 0 });
        Ok(handle)
    }

    /// Implements `cudnnDestroy`. Null is ignored.
    pub(crate) fn destroy_cudnn(&mut self, handle: Handle) -> CudnnResult<()> {
        if handle != 0 {
            self.cudnn_handle(handle)?;
            self.handles.destroy(handle);
            self.cudnn.handles.remove(&handle);
        }
        Ok(())
    }

    fn cudnn_handle(&mut self, handle: Handle) -> CudnnResult<&mut CudnnHandle> {
        self.handles.check(HandleKind::CudnnHandle, handle)?;
        let missing = || LibraryError::plain(CudnnStatus::BAD_PARAM);
        self.cudnn.handles.get_mut(&handle).ok_or_else(missing)
    }

    /// Implements `cudnnSetStream`. The stream must be of the context of the handle, or of a green
    /// context of its device.
    pub(crate) fn set_cudnn_stream(&mut self, handle: Handle, stream: Handle) -> CudnnResult<()> {
        let &mut CudnnHandle { context, device, .. } = self.cudnn_handle(handle)?;
        if stream != 0 {
            let of_stream = self.context_of_stream(stream)?;
            let is_green = self.green.is_context(of_stream) && self.device_of_context(of_stream) == device;
            if of_stream != context && !is_green {
                let text = format!(
                    "{} of {} for {} of {}",
                    self.handles.name(stream),
                    self.handles.name(of_stream),
                    self.handles.name(handle),
                    self.handles.name(context)
                );
                return wrong(CudnnStatus::STREAM_MISMATCH, text);
            }
        }
        self.cudnn_handle(handle)?.stream = stream;
        Ok(())
    }

    /// Implements `cudnnGetStream`.
    pub(crate) fn cudnn_stream(&mut self, handle: Handle) -> CudnnResult<Handle> {
        Ok(self.cudnn_handle(handle)?.stream)
    }

    /// Reports that two threads are in calls with a handle at the same time.
    pub(crate) fn report_shared_cudnn_handle(&mut self, call: &str, handle: Handle) {
        self.warn(format!("{call}: {} is used by two threads at once", self.handles.name(handle)));
    }

    /// Implements `cudnnBackendCreateDescriptor` for a kind given by its number.
    pub(crate) fn create_descriptor(&mut self, kind: u32) -> CudnnResult<Handle> {
        let kind = Kind::from_number(kind).map_err(|exists| {
            let text = format!("descriptors of kind {kind} are not emulated");
            let status =
                if exists { CudnnStatus::NOT_SUPPORTED } else { CudnnStatus::HOST_ALLOCATION_FAILED };
            LibraryError::misuse(status, text)
        })?;
        let handle = self.handles.create(HandleKind::CudnnDescriptor);
        self.cudnn.descriptors.insert(handle, Descriptor::new(kind));
        Ok(handle)
    }

    /// Implements `cudnnBackendDestroyDescriptor`.
    pub(crate) fn destroy_descriptor(&mut self, handle: Handle) -> CudnnResult<()> {
        self.descriptor(handle)?;
        self.handles.destroy(handle);
        self.cudnn.descriptors.remove(&handle);
        Ok(())
    }

    fn descriptor(&mut self, handle: Handle) -> CudnnResult<&mut Descriptor> {
        if handle == 0 {
            return wrong(CudnnStatus::NULL_POINTER, "null instead of a descriptor");
        }
        self.handles.check(HandleKind::CudnnDescriptor, handle)?;
        let missing = || LibraryError::plain(CudnnStatus::BAD_PARAM);
        self.cudnn.descriptors.get_mut(&handle).ok_or_else(missing)
    }

    /// Returns the name and kind of a descriptor, as in `cuDNN descriptor 3 (tensor)`.
    fn descriptor_name(&self, handle: Handle) -> String {
        let name = self.handles.name(handle);
        match self.cudnn.descriptors.get(&handle) {
            Some(descriptor) => format!("{name} ({})", descriptor.kind),
            None => name,
        }
    }

    /// Runs `work` on a descriptor, whose name is added to the error.
    fn with_descriptor<T>(
        &mut self,
        handle: Handle,
        work: impl FnOnce(&mut Descriptor) -> CudnnResult<T>,
    ) -> CudnnResult<T> {
        let name = self.descriptor_name(handle);
        work(self.descriptor(handle)?).map_err(|LibraryError { status, misuse }| LibraryError {
            status,
            misuse: misuse.map(|text| format!("{name}: {text}")),
        })
    }

    /// Implements `cudnnBackendSetAttribute` for an attribute of type `kind`. `read` returns the
    /// given number of bytes of the caller's array, or `None` if the array is null.
    pub(crate) fn set_attribute(
        &mut self,
        handle: Handle,
        name: u32,
        kind: u32,
        count: i64,
        read: impl FnOnce(usize) -> Option<Vec<u8>>,
    ) -> CudnnResult<()> {
        let attribute = self.with_descriptor(handle, |descriptor| descriptor.attribute(name, kind))?;
        let size = usize::try_from(count).ok().and_then(|count| count.checked_mul(type_bytes(kind)));
        let bytes = if count == 0 { Some(Vec::new()) } else { size.and_then(read) };
        let Some(bytes) = bytes else {
            let text = format!("attribute {name} with a null array or a count of {count}");
            return self.with_descriptor(handle, |_| wrong(CudnnStatus::BAD_PARAM, text));
        };
        let mut values = Values::from_bytes(kind, &bytes);
        if let (Values::Descriptors(handles), Some(objects)) = (&values, attribute.objects) {
            let mut copies = Vec::new();
            for object in handles {
                let descriptor = self.descriptor(*object)?;
                if !objects.accepts(descriptor.kind) {
                    let text = format!("attribute {name} cannot be {}", self.descriptor_name(*object));
                    return self.with_descriptor(handle, |_| wrong(CudnnStatus::DESCRIPTOR_TYPE, text));
                }
                copies.push(descriptor.finalized.clone());
            }
            values = Values::Objects(copies);
        }
        self.with_descriptor(handle, |descriptor| descriptor.set(attribute, values))
    }

    /// Implements `cudnnBackendGetAttribute`: returns the values of an attribute of type `kind`.
    pub(crate) fn get_attribute(&mut self, handle: Handle, name: u32, kind: u32) -> CudnnResult<Values> {
        self.with_descriptor(handle, |descriptor| {
            let attribute = descriptor.attribute(name, kind)?;
            descriptor.get(attribute)
        })
    }

    /// Fills a descriptor that the caller has created for a result.
    pub(crate) fn fill_descriptor(&mut self, handle: Handle, contents: Finalized) -> CudnnResult<()> {
        let kind = contents.kind();
        self.with_descriptor(handle, |descriptor| {
            if descriptor.kind != kind {
                return wrong(CudnnStatus::DESCRIPTOR_TYPE, format!("the result is of kind {kind}"));
            }
            descriptor.finalized = Some(contents);
            Ok(())
        })
    }

    /// Implements `cudnnBackendFinalize`.
    pub(crate) fn finalize_descriptor(&mut self, handle: Handle) -> CudnnResult<()> {
        let multiprocessors = self.settings.multiprocessors;
        let mut device = DeviceProperties { device: None, multiprocessors };
        let descriptor = self.descriptor(handle)?;
        match descriptor.kind {
            Kind::Device => device = self.device_properties(handle)?,
            Kind::Plan => {
                let cudnn = descriptor.number(400, 0) as Handle;
                if cudnn != 0 {
                    device.device = Some(self.cudnn_handle(cudnn)?.device);
                }
            }
            _ => {}
        }
        self.with_descriptor(handle, |descriptor| descriptor.finalize(device))
    }

    fn device_properties(&mut self, handle: Handle) -> CudnnResult<DeviceProperties> {
        let descriptor = self.descriptor(handle)?;
        let (id, cudnn) = (descriptor.number(2700, 0), descriptor.number(2701, 0) as Handle);
        if let Some(text) = descriptor.text(2702) {
            return parse_properties(&text)
                .map_err(|error| self.with_descriptor::<()>(handle, |_| Err(error)).unwrap_err());
        }
        let device = if cudnn == 0 { id as i32 } else { self.cudnn_handle(cudnn)?.device };
        if i64::from(device) >= self.settings.devices || device < 0 {
            return Err(LibraryError::plain(CudnnStatus::NOT_INITIALIZED));
        }
        Ok(DeviceProperties { device: Some(device), multiprocessors: self.settings.multiprocessors })
    }

    /// Implements `cudnnBackendExecute`: enqueues a plan in the stream of a handle, with the
    /// addresses of a variant pack. `number` returns the number at an address of host memory.
    pub(crate) fn execute_plan(
        &mut self,
        handle: Handle,
        plan: Handle,
        pack: Handle,
        number: impl Fn(u64) -> f32,
    ) -> CudnnResult<()> {
        let &mut CudnnHandle { context, device, stream } = self.cudnn_handle(handle)?;
        self.check_device_not_lost(device)?;
        let contents = self.descriptor(plan)?.finalized.clone();
        let Some(Finalized::Plan(made)) = contents else {
            let text = format!("{} is no finalised execution plan", self.descriptor_name(plan));
            return wrong(CudnnStatus::NOT_FINALIZED, text);
        };
        let Some(Finalized::VariantPack(addresses)) = self.descriptor(pack)?.finalized.clone() else {
            let text = format!("{} is no finalised variant pack", self.descriptor_name(pack));
            return wrong(CudnnStatus::NOT_FINALIZED, text);
        };
        if self.current_context()? != context {
            let text = format!("{} is of another context than the current one", self.handles.name(handle));
            return wrong(CudnnStatus::BAD_PARAM, text);
        }
        if let Some(other) = made.device.filter(|other| *other != device) {
            let name = self.descriptor_name(plan);
            return wrong(CudnnStatus::BAD_PARAM, format!("{name} of device {other} on device {device}"));
        }
        if !made.is_supported() {
            return Err(LibraryError::plain(CudnnStatus::NOT_SUPPORTED));
        }
        let found = tensor_addresses(&made, &addresses).map_err(|LibraryError { status, misuse }| {
            let name = self.descriptor_name(pack);
            LibraryError { status, misuse: misuse.map(|text| format!("{name}: {text}")) }
        })?;
        let bytes = made.workspace();
        check_workspace(addresses.workspace, bytes)?;
        let workspace = if bytes == 0 { 0..0 } else { addresses.workspace..addresses.workspace + bytes };
        self.note_loading(plan, device, stream)?;
        let (mut reads, mut writes, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (operand, address) in made.operands().into_iter().zip(found) {
            if operand.tensor.is_number {
                places.push(Place::Number(number(address)));
                continue;
            }
            let range = operand.tensor.range(address);
            places.push(Place::Device(address));
            if operand.is_read {
                reads.push(range.clone());
            }
            if operand.is_written {
                writes.push(range);
            }
        }
        let work = LibraryWork {
            name: made.name(),
            reads,
            writes,
            workspace,
            computation: Box::new(move |memory| made.compute(&places, memory)),
        };
        Ok(self.submit_library_work(stream, work)?)
    }

    /// Reports the first execution of a plan on a device if it is captured: the code of the plan
    /// is loaded then, which a capture may forbid.
    fn note_loading(&mut self, plan: Handle, device: i32, stream: Handle) -> CudnnResult<()> {
        let stream = self.stream(stream)?;
        let is_captured = self.streams.get(&stream).is_some_and(|stream| stream.capture.is_some());
        if self.cudnn.loaded.insert((plan, device)) && is_captured {
            let name = self.descriptor_name(plan);
            self.warn(format!("cudnnBackendExecute: the first execution of {name} is in a capture"));
        }
        Ok(())
    }

    /// Returns one line for each handle and descriptor of cuDNN that is not destroyed.
    pub(super) fn cudnn_leaks(&self) -> impl Iterator<Item = String> {
        let handles = self.cudnn.handles.keys().map(|handle| self.handles.name(*handle));
        handles.chain(self.cudnn.descriptors.keys().map(|handle| self.descriptor_name(*handle)))
    }
}

/// Reads device properties from their JSON text.
fn parse_properties(text: &str) -> CudnnResult<DeviceProperties> {
    let value = |name: &str| {
        let (_, rest) = text.split_once(&format!("\"{name}\""))?;
        Some(rest.trim_start().strip_prefix(':')?.trim_start())
    };
    let number = |name: &str| {
        let rest = value(name)?;
        rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse::<i64>().ok()
    };
    let missing =
        |name: &str| LibraryError::misuse(CudnnStatus::BAD_PARAM, format!("the text has no {name}"));
    if !text.trim_start().starts_with('{') {
        return wrong(CudnnStatus::BAD_PARAM, "the text is no JSON object");
    }
    if let Some(name) = PROPERTIES.into_iter().find(|name| value(name).is_none()) {
        return Err(missing(name));
    }
    let multiprocessors = number(MULTIPROCESSORS).ok_or_else(|| missing(MULTIPROCESSORS))?;
    if number(VERSION).ok_or_else(|| missing(VERSION))? < FIRST_VERSION {
        return Err(LibraryError::plain(CudnnStatus::ARCH_MISMATCH));
    }
    Ok(DeviceProperties { device: None, multiprocessors })
}

/// Returns the addresses of a plan's operands in a variant pack.
fn tensor_addresses(plan: &Plan, pack: &Arc<VariantPack>) -> CudnnResult<Vec<u64>> {
    let operands = plan.operands();
    for (index, (id, _)) in pack.addresses.iter().enumerate() {
        if !operands.iter().any(|operand| operand.tensor.id == *id) {
            return wrong(CudnnStatus::BAD_PARAM, format!("the plan has no tensor {id}"));
        }
        if pack.addresses[..index].iter().any(|(other, _)| other == id) {
            return wrong(CudnnStatus::DUPLICATED_ENTRIES, format!("tensor {id} has two addresses"));
        }
    }
    let mut addresses = Vec::new();
    for operand in &operands {
        let (id, alignment, name) = (operand.tensor.id, operand.tensor.alignment, &operand.name);
        match pack.addresses.iter().find(|(other, _)| *other == id) {
            None => return wrong(CudnnStatus::BAD_PARAM, format!("{name} has no address")),
            Some((_, 0)) => return wrong(CudnnStatus::NULL_POINTER, format!("{name} is at null")),
            Some((_, found)) if found % alignment as u64 != 0 => {
                let text = format!("{name} at {found:#x} is not aligned to {alignment} bytes");
                return wrong(CudnnStatus::MISALIGNED_POINTER, text);
            }
            Some((_, found)) => addresses.push(*found),
        }
    }
    Ok(addresses)
}

fn check_workspace(address: u64, bytes: u64) -> CudnnResult<()> {
    if bytes > 0 && address == 0 {
        return wrong(
            CudnnStatus::NULL_POINTER,
            format!("no workspace, of which the plan needs {bytes} bytes"),
        );
    }
    if bytes > 0 && address % WORKSPACE_ALIGNMENT != 0 {
        let text = format!("the workspace at {address:#x} is not aligned to {WORKSPACE_ALIGNMENT} bytes");
        return wrong(CudnnStatus::MISALIGNED_POINTER, text);
    }
    Ok(())
}
