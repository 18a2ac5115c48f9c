//! A GPU with the modules that were loaded on it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use cuda::{Context, Kernel, Module};

use super::module::Family;
use crate::EngineError;

/// A GPU with the PTX modules loaded on it. A clone shares them.
#[derive(Debug, Clone)]
pub(super) struct Device {
    /// Context of the GPU.
    pub(super) context: Context,
    /// The modules that were loaded so far.
    pub(super) modules: Arc<Mutex<BTreeMap<Family, Module>>>,
}

impl Device {
    /// Creates a device without modules.
    pub(super) fn new(context: &Context) -> Self {
        Self { context: context.clone(), modules: Arc::default() }
    }

    /// Returns the GPU function `name` of a family. Loads the family's module on first use.
    ///
    /// # Errors
    /// [`EngineError::Cuda`] if the CUDA driver cannot load the module or it has no such function.
    pub(super) fn function(&self, family: Family, name: &str) -> Result<Kernel, EngineError> {
        let find = || {
            let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(module) = modules.get(&family) {
                return module.kernel(name);
            }
            let module = Module::load(&self.context, family.ptx())?;
            modules.entry(family).or_insert(module).kernel(name)
        };
        find().map_err(|source| EngineError::Cuda {
            action: format!("load kernel {name}"),
            source: source.into(),
        })
    }
}
