//! A GPU with the modules that were loaded on it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use cuda::{Context, Determinism, Kernel, Module, Numerics};

use super::choice::Choices;
use super::libraries::Libraries;
use super::module::Family;
use crate::{EngineError, ImageLayout, KernelChoice, Storage};

/// Maximum size of the workspace of a product, in bytes: PyTorch's limit for cuBLASLt on its GPUs.
/// Those of a convolution and of attention are larger by [`OPERAND_COPIES`].
pub(super) const WORKSPACE_BYTES: usize = 32 << 20;

/// Number of copies of the operands of a convolution or of attention that fit into its workspace
/// besides [`WORKSPACE_BYTES`]. Most of cuDNN's engines for tensor cores transpose operands of
/// convolutions with channels first into the workspace, and some do so twice. Gradients of
/// attention store those of its weights there: with 64 features of a head, of up to 1024 positions.
pub(super) const OPERAND_COPIES: usize = 2;

/// Maximum number of algorithms of a library that are candidates of a part. As many engines as
/// possible are among them.
pub(super) const MAX_ALGORITHMS: usize = 6;

/// A GPU with the PTX modules loaded on it, the vendor's libraries, and how to choose among both. A
/// clone shares them.
#[derive(Debug, Clone)]
pub(super) struct Device {
    /// Context of the GPU.
    pub(super) context: Context,
    /// The modules that were loaded so far.
    pub(super) modules: Arc<Mutex<BTreeMap<(Family, Storage), Module>>>,
    /// The libraries.
    pub(super) libraries: Arc<Libraries>,
    /// The rule.
    pub(super) choice: KernelChoice,
    /// Whether libraries may use algorithms whose results differ from run to run.
    pub(super) determinism: Determinism,
    /// Order of the elements of images and filters.
    pub(super) image_layout: ImageLayout,
    /// The candidates that were chosen before.
    pub(super) choices: Arc<Choices>,
}

impl Device {
    /// Creates a device without modules.
    pub(super) fn new(context: &Context) -> Self {
        Self {
            context: context.clone(),
            modules: Arc::default(),
            libraries: Arc::new(Libraries::new(context)),
            choice: KernelChoice::default(),
            determinism: Determinism::Deterministic,
            image_layout: ImageLayout::default(),
            choices: Arc::default(),
        }
    }

    /// Returns the key of the choice for a part of a kernel: all that decides which candidate is
    /// fastest.
    pub(super) fn key(&self, numerics: Numerics, part: &str, shape: &dyn Debug) -> String {
        let storage = if numerics == Numerics::Bf16 { Storage::Bf16 } else { Storage::Scalar };
        let own =
            [Family::Attention, Family::Convolution, Family::MatrixProduct].map(|family| family.ptx(storage));
        self.key_with(&own, &format!("{numerics:?}, {part}, {shape:?}"))
    }

    /// Returns the key of the choice for a subject that depends on the kernels of layers with
    /// images.
    pub(super) fn key_of_subject(&self, subject: &str) -> String {
        use Family as F;
        let own = [F::Activation, F::BatchNorm, F::Convolution, F::Dropout, F::Elementwise, F::Pooling]
            .map(|family| [Storage::Scalar, Storage::Bf16].map(|storage| family.ptx(storage)));
        self.key_with(own.as_flattened(), subject)
    }

    /// Returns the key of a choice that depends on own kernels in PTX, the device, its libraries
    /// and `subject`.
    fn key_with(&self, ptx: &[&str], subject: &str) -> String {
        let device = self.context.device_name().unwrap_or_default();
        let driver = self.context.capabilities().map_or(0, |known| known.driver_version);
        let mut own = DefaultHasher::new();
        ptx.hash(&mut own);
        let (own, libraries) = (own.finish(), self.libraries.versions());
        let determinism = match self.determinism {
            Determinism::Deterministic => "",
            Determinism::Any => ", nondeterministic",
        };
        let key = format!(
            "{device}, driver {driver}, own {own:x}, {libraries:?}, {MAX_ALGORITHMS} engines, workspace \
             {WORKSPACE_BYTES} + {OPERAND_COPIES}{determinism}, {subject}"
        );
        key.replace(['\t', '\n'], " ")
    }

    /// Returns the GPU function `name` of a family for operands of a number format. Loads the
    /// module on first use.
    ///
    /// # Errors
    /// [`EngineError::Cuda`] if the CUDA driver cannot load the module or it has no such function.
    pub(super) fn function(
        &self,
        family: Family,
        storage: Storage,
        name: &str,
    ) -> Result<Kernel, EngineError> {
        let find = || {
            let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(module) = modules.get(&(family, storage)) {
                return module.kernel(name);
            }
            let module = Module::load(&self.context, family.ptx(storage))?;
            modules.entry((family, storage)).or_insert(module).kernel(name)
        };
        find().map_err(|source| EngineError::Cuda {
            action: format!("load kernel {name}"),
            source: source.into(),
        })
    }
}
