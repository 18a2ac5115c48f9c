//! The vendor's libraries of products, convolutions and attention, opened at first use.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use cuda::{Attention, AttentionShape, Context, CublasLt, Cudnn, CudnnHandle, Determinism, Stream, Target};

/// The vendor's libraries of a device.
pub(super) struct Libraries {
    context: Context,
    products: OnceLock<Result<CublasLt, String>>,
    convolutions: OnceLock<Result<Convolutions, String>>,
}

/// cuDNN, with a handle on which plans are made. Plans are executed on the handle of their queue.
pub(super) struct Convolutions {
    pub(super) library: Cudnn,
    pub(super) handle: Mutex<CudnnHandle>,
    attentions: Mutex<HashMap<(AttentionShape, Determinism), Vec<Attention>>>,
}

impl Convolutions {
    /// Returns the engines for a pass of attention whose workspace has at most `limit` bytes, a
    /// function of the shape. They are compiled by the first search for the shape.
    ///
    /// # Errors
    /// See [`Cudnn::attentions`].
    pub(super) fn attentions(
        &self,
        shape: &AttentionShape,
        determinism: Determinism,
        limit: usize,
    ) -> cuda::Result<Vec<Attention>> {
        let mut known = self.attentions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(&(*shape, determinism)) {
            return Ok(found.clone());
        }
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.library.attentions(Target::Device(&handle), shape, determinism, limit)?;
        known.insert((*shape, determinism), found.clone());
        Ok(found)
    }
}

impl Libraries {
    /// Creates a record of the libraries of a device. None is opened.
    pub(super) fn new(context: &Context) -> Self {
        Self { context: context.clone(), products: OnceLock::new(), convolutions: OnceLock::new() }
    }

    /// Returns cuBLASLt, or why it cannot be used.
    pub(super) fn products(&self) -> Result<&CublasLt, &str> {
        let open = || CublasLt::open_for(&self.context).map_err(|error| error.to_string());
        self.products.get_or_init(open).as_ref().map_err(String::as_str)
    }

    /// Returns cuDNN, or why it cannot be used.
    pub(super) fn convolutions(&self) -> Result<&Convolutions, &str> {
        let open = || {
            let library = Cudnn::open_for(&self.context)?;
            let stream = Stream::new(&self.context, cuda::Priority::Background)?;
            let handle = Mutex::new(CudnnHandle::new(&library, &stream)?);
            Ok(Convolutions { library, handle, attentions: Mutex::default() })
        };
        let open = || open().map_err(|error: cuda::Error| error.to_string());
        self.convolutions.get_or_init(open).as_ref().map_err(String::as_str)
    }

    /// Returns the version of each library, or why it cannot be used, by its name.
    pub(super) fn versions(&self) -> BTreeMap<String, String> {
        let products = self.products().map(|library| library.version().to_string());
        let convolutions = self.convolutions().map(|found| found.library.version().to_string());
        let text =
            |version: Result<String, &str>| version.unwrap_or_else(|reason| format!("not used: {reason}"));
        BTreeMap::from([("cuBLASLt".into(), text(products)), ("cuDNN".into(), text(convolutions))])
    }
}

impl fmt::Debug for Libraries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Libraries").finish_non_exhaustive()
    }
}
