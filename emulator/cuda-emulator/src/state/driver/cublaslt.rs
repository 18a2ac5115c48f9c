//! Calls of cuBLASLt.

use super::Driver;
use crate::state::{
    Handle, LibraryError, LibraryWork,
    cublaslt::{
        Algorithm, AlgorithmBytes, Attributes, CublasResult, CublasStatus, DescriptorKind, Limits, Operands,
        Problem, product,
    },
    handles::HandleKind,
};

/// Result of the heuristic: an algorithm, its workspace in bytes and its number of waves.
pub(crate) type HeuristicResult = (AlgorithmBytes, usize, f32);

impl Driver {
    /// Implements `cublasLtCreate`: returns a handle for the device of the current context. The
    /// error is `NOT_INITIALIZED` without a device or a context, and while a stream of the context
    /// captures.
    pub(crate) fn cublaslt_create(&mut self) -> CublasResult<Handle> {
        if self.settings.devices == 0 {
            return Err(LibraryError::plain(CublasStatus::NOT_INITIALIZED));
        }
        let device = self.current_device()?;
        self.refuse_library_handle_in_capture("creates a cuBLASLt handle")
            .map_err(|error| LibraryError { status: CublasStatus::NOT_INITIALIZED, misuse: error.misuse })?;
        self.check_device_not_lost(device)?;
        let handle = self.handles.create(HandleKind::CublasLt);
        self.cublaslt.handles.insert(handle, device);
        Ok(handle)
    }

    /// Implements `cublasLtDestroy`.
    pub(crate) fn cublaslt_destroy(&mut self, handle: Handle) -> CublasResult<()> {
        self.cublaslt_device(handle)?;
        self.handles.destroy(handle);
        self.cublaslt.handles.remove(&handle);
        Ok(())
    }

    /// Returns the device of a handle. The error is `NOT_INITIALIZED` for a handle that is null,
    /// destroyed or of another kind.
    fn cublaslt_device(&self, handle: Handle) -> CublasResult<i32> {
        let not_initialised = |misuse| LibraryError { status: CublasStatus::NOT_INITIALIZED, misuse };
        self.handles.check(HandleKind::CublasLt, handle).map_err(|error| not_initialised(error.misuse))?;
        self.cublaslt.handles.get(&handle).copied().ok_or_else(|| not_initialised(None))
    }

    /// Implements `cublasLtMatmulDescCreate`, `cublasLtMatrixLayoutCreate` and
    /// `cublasLtMatmulPreferenceCreate`.
    pub(crate) fn cublaslt_create_descriptor(&mut self, attributes: Attributes) -> Handle {
        let handle = self.handles.create(attributes.kind().handle_kind());
        self.cublaslt.descriptors.insert(handle, attributes);
        handle
    }

    /// Implements `cublasLtMatmulDescDestroy`, `cublasLtMatrixLayoutDestroy` and
    /// `cublasLtMatmulPreferenceDestroy`. Null is ignored.
    pub(crate) fn cublaslt_destroy_descriptor(
        &mut self,
        kind: DescriptorKind,
        handle: Handle,
    ) -> CublasResult<()> {
        if handle == 0 {
            return Ok(());
        }
        self.cublaslt_descriptor(kind, handle)?;
        self.handles.destroy(handle);
        self.cublaslt.descriptors.remove(&handle);
        Ok(())
    }

    /// Implements the functions that set an attribute of a descriptor to the value in the given
    /// bytes.
    pub(crate) fn cublaslt_set_attribute(
        &mut self,
        kind: DescriptorKind,
        handle: Handle,
        attribute: u32,
        value: &[u8],
    ) -> CublasResult<()> {
        self.cublaslt_descriptor(kind, handle)?;
        let attributes = self.cublaslt.descriptors.get_mut(&handle);
        attributes.map_or(Ok(()), |attributes| attributes.set(attribute, value))
    }

    fn cublaslt_descriptor(&self, kind: DescriptorKind, handle: Handle) -> CublasResult<&Attributes> {
        self.handles.check(kind.handle_kind(), handle)?;
        let found = self.cublaslt.descriptors.get(&handle);
        found.ok_or_else(|| LibraryError::plain(CublasStatus::INVALID_VALUE))
    }

    /// Returns the product with a description and the layouts of A, B, C and D.
    fn cublaslt_problem(&self, description: Handle, layouts: [Handle; 4]) -> CublasResult<Problem> {
        let description = self.cublaslt_descriptor(DescriptorKind::Product, description)?;
        let [a, b, c, d] = layouts.map(|layout| self.cublaslt_descriptor(DescriptorKind::Layout, layout));
        Problem::new(description, [a?, b?, c?, d?])
    }

    /// Implements `cublasLtMatmulAlgoGetHeuristic`: returns at most `count` algorithms for a
    /// product, in ascending order of their estimated times. The error is `NOT_SUPPORTED` if there
    /// is none.
    pub(crate) fn cublaslt_heuristic(
        &self,
        handle: Handle,
        (description, layouts): (Handle, [Handle; 4]),
        preference: Handle,
        count: i32,
    ) -> CublasResult<Vec<HeuristicResult>> {
        self.cublaslt_device(handle)?;
        let problem = self.cublaslt_problem(description, layouts)?;
        let limits =
            Limits::from_preference(self.cublaslt_descriptor(DescriptorKind::Preference, preference)?)?;
        if count < 1 {
            let text = format!("{count} algorithms are requested");
            return Err(LibraryError::misuse(CublasStatus::INVALID_VALUE, text));
        }
        let multiprocessors = self.settings.multiprocessors as usize;
        let found = Algorithm::find(&problem, &limits, multiprocessors).into_iter().take(count as usize);
        let found: Vec<_> = found
            .map(|algorithm| {
                let workspace = algorithm.workspace_bytes(&problem) as usize;
                (algorithm.to_bytes(), workspace, algorithm.waves(&problem, multiprocessors))
            })
            .collect();
        if found.is_empty() {
            return Err(LibraryError::plain(CublasStatus::NOT_SUPPORTED));
        }
        Ok(found)
    }

    /// Implements `cublasLtMatmul`: enqueues a product. Without an algorithm, the first one of the
    /// heuristic is used. `workspace` has the address and the size in bytes.
    pub(crate) fn cublaslt_product(
        &mut self,
        handle: Handle,
        (description, layouts): (Handle, [Handle; 4]),
        operands: Operands,
        algorithm: Option<AlgorithmBytes>,
        workspace: (u64, u64),
        stream: Handle,
    ) -> CublasResult<()> {
        let device = self.cublaslt_device(handle)?;
        let problem = self.cublaslt_problem(description, layouts)?;
        problem.check(&operands, |address, bytes| self.check_memory(address, bytes))?;
        let algorithm = if let Some(bytes) = algorithm {
            Algorithm::from_bytes(&bytes, &problem)?
        } else {
            let bytes = if workspace.0 == 0 { 0 } else { workspace.1 };
            let limits = Limits::of_call(&operands, bytes);
            let found = Algorithm::find(&problem, &limits, self.settings.multiprocessors as usize);
            *found.first().ok_or_else(|| LibraryError::plain(CublasStatus::NOT_SUPPORTED))?
        };
        algorithm.check(&problem, &operands, workspace)?;
        let (start, bytes) = workspace;
        if start != 0 && bytes > 0 {
            self.check_memory(start, bytes as usize).map_err(|error| {
                let what = error.misuse.unwrap_or_default();
                LibraryError::misuse(CublasStatus::INVALID_VALUE, format!("the workspace: {what}"))
            })?;
        }
        let stream = self.stream(stream)?;
        if self.device_of_stream(stream) != device {
            let name = self.handles.name(stream);
            let text = format!("the handle is of device {device}, and {name} is of another device");
            return Err(LibraryError::misuse(CublasStatus::INVALID_VALUE, text));
        }
        let (reads, writes) = problem.ranges(&operands);
        let work = LibraryWork {
            name: algorithm.kernel_name(),
            reads,
            writes,
            workspace: start..start + algorithm.workspace_bytes(&problem),
            computation: Box::new(move |memory| product(&problem, &operands, algorithm, start, memory)),
        };
        Ok(self.submit_library_work(stream, work)?)
    }
}
