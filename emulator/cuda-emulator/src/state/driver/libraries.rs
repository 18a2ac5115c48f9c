//! Libraries of binary code, which have handles only.

use super::Driver;
use crate::state::{CallResult, Handle, handles::HandleKind};

impl Driver {
    /// Implements `cuLibraryLoadData`.
    pub(crate) fn load_library(&mut self) -> Handle {
        self.handles.create(HandleKind::Library)
    }

    /// Implements `cuLibraryGetKernel`.
    pub(crate) fn library_kernel(&mut self, library: Handle) -> CallResult<Handle> {
        self.handles.check(HandleKind::Library, library)?;
        Ok(self.handles.create(HandleKind::LibraryKernel))
    }

    /// Implements `cuLibraryUnload`.
    pub(crate) fn unload_library(&mut self, library: Handle) -> CallResult<()> {
        self.handles.check(HandleKind::Library, library)?;
        self.handles.destroy(library);
        Ok(())
    }
}
