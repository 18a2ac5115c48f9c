//! Scaled dot-product attention.

use std::ffi::c_void;
use std::fmt;

use super::attention_graph::{graph, identifiers};
use super::attention_shape::{AttentionPass, AttentionShape, ELEMENT_BYTES, Sums};
use super::plan::Plan;
use super::search::{Requirements, excluded_notes};
use super::{Cudnn, CudnnHandle, Determinism, Target};
use crate::numerics::use_workspace;
use crate::{Address, Buffer, Error, Result};

/// First version of cuDNN for attention. Earlier ones need a mask for numbers of positions that are
/// no multiple of 128.
const FIRST_VERSION: usize = 91_600;

/// Alignment of the tensors in the workspace, in bytes.
const TENSOR_ALIGNMENT: usize = 256;

/// Pass of attention by an engine of cuDNN: a finalized execution plan, created by
/// [`Cudnn::attentions`]. It keeps the handle that it was made with. A clone shares the plan.
#[derive(Clone)]
pub struct Attention {
    shape: AttentionShape,
    sums: Sums,
    plan: Plan,
}

impl Cudnn {
    /// Returns the engines that cuDNN proposes for a pass of attention, in the order of expected
    /// time: one configuration of each. Each needs a workspace of at most `workspace_limit` bytes.
    /// The list is empty if there is none: cuDNN 9.16 and later has engines if the width is a
    /// multiple of 8 up to 256. Do not call this while a stream is being captured.
    ///
    /// The engines are compiled by the search, some tenths of a second each.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an impossible shape; [`Error::Library`].
    pub fn attentions(
        &self,
        target: Target<'_>,
        shape: &AttentionShape,
        determinism: Determinism,
        workspace_limit: usize,
    ) -> Result<Vec<Attention>> {
        shape.dimensions()?;
        // NVIDIA's cudnn-frontend excludes the gradients of a single position.
        if self.version() < FIRST_VERSION || shape.positions == 1 {
            return Ok(Vec::new());
        }
        let forms: &[Sums] = match (shape.pass, determinism) {
            (AttentionPass::Backward, Determinism::Any) => &[Sums::Atomic, Sums::Ordered],
            _ => &[Sums::Ordered],
        };
        let mut found = Vec::new();
        for &sums in forms {
            let Some(limit) = workspace_limit.checked_sub(tensor_bytes(shape, sums)) else { continue };
            let (owner, properties) = self.owner(target)?;
            let graph = graph(&owner, shape, sums, properties)?;
            let required = Requirements {
                excluded: excluded_notes(determinism),
                is_compiled: false,
                configurations: 1,
                workspace_limit: limit,
            };
            let plans = required.plans(graph)?;
            found.extend(plans.into_iter().map(|plan| Attention { shape: *shape, sums, plan }));
        }
        Ok(found)
    }
}

/// Returns the size of the tensors in the workspace, which precede that of the engine: the means of
/// the weights' gradients, and atomic sums.
fn tensor_bytes(shape: &AttentionShape, sums: Sums) -> usize {
    let means = (shape.rows() * size_of::<f32>()).next_multiple_of(TENSOR_ALIGNMENT);
    match (shape.pass, sums) {
        (AttentionPass::Forward, _) => 0,
        (AttentionPass::Backward, Sums::Ordered) => means,
        (AttentionPass::Backward, Sums::Atomic) => {
            means + (shape.rows() * shape.width * size_of::<f32>()).next_multiple_of(TENSOR_ALIGNMENT)
        }
    }
}

impl Attention {
    /// Returns the engine's number.
    #[must_use]
    pub fn engine(&self) -> i64 {
        self.plan.engine
    }

    /// Returns the shape.
    #[must_use]
    pub fn shape(&self) -> &AttentionShape {
        &self.shape
    }

    /// Returns the name, which identifies the engine among those of a shape on one version of the
    /// library.
    #[must_use]
    pub fn name(&self) -> String {
        match self.sums {
            Sums::Ordered => self.plan.name(),
            Sums::Atomic => format!("{} with atomic sums", self.plan.name()),
        }
    }

    /// Returns the size of the workspace that [`enqueue`](Self::enqueue) needs, in bytes.
    #[must_use]
    pub fn workspace_bytes(&self) -> usize {
        tensor_bytes(&self.shape, self.sums) + self.plan.workspace_bytes
    }

    /// Enqueues the pass into the handle's stream. Does not wait. The handle may be another one of
    /// the same device than that of the search. The operands are:
    ///
    /// | pass | read | written |
    /// |---|---|---|
    /// | `Forward` | input | output, statistics |
    /// | `Backward` | input, output, statistics, gradient of the output | gradient of the input |
    ///
    /// in the order input, output, statistics, gradient of the output, gradient of the input; the
    /// forward pass has the first three. `workspace` has at least
    /// [`workspace_bytes`](Self::workspace_bytes) bytes; its content is overwritten. All addresses
    /// are multiples of 16. Execute a plan once before it is captured: its first execution may load
    /// kernels. A captured graph keeps the plan and the buffers.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another number of operands, an address that is not aligned, a
    /// workspace that is too small, a handle of another device, and a plan that was searched for a
    /// device's properties; [`Error::Library`].
    ///
    /// # Safety
    /// From their addresses on, the operands have the elements of the shape. Results and the
    /// workspace overlap neither each other nor another operand.
    pub unsafe fn enqueue(
        &self,
        handle: &mut CudnnHandle,
        operands: &[Address<'_>],
        workspace: &Buffer<u8>,
    ) -> Result<()> {
        let names =
            ["the input", "the output", "the statistics", "the output's gradient", "the input's gradient"];
        let count = if self.shape.pass == AttentionPass::Forward { 3 } else { 5 };
        if operands.len() != count {
            let given = operands.len();
            return Err(Error::Invalid(format!("attention with {given} operands instead of {count}")));
        }
        let named: Vec<_> = names.into_iter().zip(operands.iter().copied()).collect();
        let stream = self.plan.check("attention", handle, &named)?;
        let workspace = use_workspace(workspace, self.workspace_bytes(), stream)?;
        let features = (self.shape.heads * self.shape.width * ELEMENT_BYTES) as u64;
        let device = |address: u64| address as *mut c_void;
        let third = |operand: usize, third: u64| device(operands[operand].value() + third * features);
        // cuDNN reads these numbers before it returns.
        let numbers = [1.0 / (self.shape.width as f32).sqrt(), f32::NEG_INFINITY, 1.0];
        let number = |index: usize| (&raw const numbers[index]).cast_mut().cast::<c_void>();
        let means = (self.shape.rows() * size_of::<f32>()).next_multiple_of(TENSOR_ALIGNMENT) as u64;
        let mut tensors = vec![
            (identifiers::QUERIES, third(0, 0)),
            (identifiers::KEYS, third(0, 1)),
            (identifiers::VALUES, third(0, 2)),
            (identifiers::OUTPUT, third(1, 0)),
            (identifiers::STATISTICS, third(2, 0)),
            (identifiers::SCALE, number(0)),
        ];
        if self.shape.causal {
            tensors.push((identifiers::MASKED, number(1)));
        }
        if self.shape.pass == AttentionPass::Backward {
            tensors.extend([
                (identifiers::OUTPUT_GRADIENT, third(3, 0)),
                (identifiers::QUERY_GRADIENT, third(4, 0)),
                (identifiers::KEY_GRADIENT, third(4, 1)),
                (identifiers::VALUE_GRADIENT, third(4, 2)),
                (identifiers::MEANS, device(workspace)),
                (identifiers::ONE, number(2)),
            ]);
            if self.sums == Sums::Atomic {
                tensors.push((identifiers::QUERY_GRADIENT_SUMS, device(workspace + means)));
            }
        }
        let (identifiers, addresses): (Vec<_>, Vec<_>) = tensors.into_iter().unzip();
        let of_engine = workspace + tensor_bytes(&self.shape, self.sums) as u64;
        // SAFETY: as the caller promises; the workspace has room for both, in this order.
        unsafe { self.plan.enqueue(handle, &identifiers, &addresses, of_engine) }
    }
}

impl fmt::Debug for Attention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {:?}", self.name(), self.shape)
    }
}
