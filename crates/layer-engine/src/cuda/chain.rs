//! Chains of elementwise operations that one launch computes.

use layer_graph::Layer;

use super::NAME;
use super::kernel::Argument;
use crate::{EngineError, Pass, Role, Signature, Storage};

/// Direction of a rectifier (`ReLU`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rectifier {
    /// Replaces negative values by zero.
    Forward,
    /// Replaces a gradient by zero where the output of the forward pass is not positive.
    Backward,
}

/// Chain of elementwise operations: a sum, then a rectifier, then copies of the result. At one end
/// there may be a pass of a batch normalisation. The values between them are not stored. The result
/// has the same bits as the separate kernels'.
///
/// `reads` are the operands of the normalisation, then the terms of the sum, which are added in
/// order, and with [`Rectifier::Backward`] the output of its forward pass. `writes` are the
/// operands of the normalisation, then the copies. The operand that the normalisation and the chain
/// share is none of the normalisation's operands. Terms and copies have the same number of
/// elements. A copy may be the same memory as a term, the output of the forward pass, or the input
/// of [`Pass::Forward`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ElementwiseChain<'l> {
    /// Number of elements of each term and copy.
    pub elements: usize,
    /// Number format of the terms and copies.
    pub storage: Storage,
    /// Number of terms that are read, from 1 to [`MAX_OPERANDS`](Self::MAX_OPERANDS). With
    /// [`Pass::Forward`] of a normalisation 0 or 1.
    pub terms: usize,
    /// The rectifier that the sum passes through; `None` if there is none.
    pub rectifier: Option<Rectifier>,
    /// Number of copies, from 1 to [`MAX_OPERANDS`](Self::MAX_OPERANDS). With [`Pass::Forward`] of
    /// a normalisation 1.
    pub copies: usize,
    /// Pass of a batch normalisation at one end; `None` if there is none.
    pub norm: Option<ChainNorm<'l>>,
}

/// Pass of a batch normalisation at one end of an [`ElementwiseChain`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChainNorm<'l> {
    /// The batch normalisation.
    pub layer: &'l Layer,
    /// [`Pass::Forward`] or [`Pass::Recompute`], whose output is the first term of the sum, or
    /// [`Pass::BackwardMoments`], whose output gradient is the result of the chain.
    pub pass: Pass,
    /// Number of samples.
    pub samples: usize,
}

impl ChainNorm<'_> {
    /// Returns the operands of the pass without the one that the chain shares; `None` if a pass of
    /// this kind cannot be part of a chain.
    #[must_use]
    pub fn signature(&self) -> Option<Signature> {
        let mut signature = Signature::of(self.layer, self.pass)?;
        let has = |roles: &[Role], role| roles.contains(&role);
        match self.pass {
            Pass::Forward | Pass::Recompute if has(&signature.reads, Role::Moments) => {
                signature.writes.retain(|role| *role != Role::Output);
            }
            Pass::BackwardMoments => signature.reads.retain(|role| *role != Role::OutputGradient),
            _ => return None,
        }
        Some(signature)
    }
}

impl ElementwiseChain<'_> {
    /// Maximum number of terms, and of copies.
    pub const MAX_OPERANDS: usize = 4;

    /// Returns the operands of the normalisation, none without one.
    ///
    /// # Errors
    /// [`EngineError::Library`] if the engine has no kernel for the chain.
    pub(super) fn signature(&self) -> Result<Signature, EngineError> {
        let refused = |problem| Err(EngineError::Library { engine: NAME, problem });
        let empty = Signature { reads: Vec::new(), writes: Vec::new() };
        let norm = self.norm.map(|norm| (norm, norm.signature()));
        let begins_with_norm = norm.as_ref().is_some_and(|(norm, _)| norm.pass != Pass::BackwardMoments);
        let all = 1..=Self::MAX_OPERANDS;
        let (terms, copies) = if begins_with_norm { (0..=1, 1..=1) } else { (all.clone(), all) };
        if !terms.contains(&self.terms) || !copies.contains(&self.copies) {
            let problem = format!(
                "a chain of this kind has {terms:?} terms and {copies:?} copies, not {} and {}",
                self.terms, self.copies
            );
            return refused(problem);
        }
        if begins_with_norm && self.rectifier == Some(Rectifier::Backward) {
            return refused("a chain begins with a normalisation and ends with a backward pass".to_owned());
        }
        match norm {
            None => Ok(empty),
            Some((norm, Some(signature))) => {
                let elements = Role::Output.elements(norm.layer, norm.samples);
                if elements == self.elements {
                    return Ok(signature);
                }
                let layer = norm.layer.name();
                refused(format!("a chain has {} elements, its layer `{layer}` has {elements}", self.elements))
            }
            Some((ChainNorm { layer, pass, .. }, None)) => Err(EngineError::unsupported(NAME, layer, pass)),
        }
    }
}

/// Operands of the elementwise operations of one launch. At most four terms and four targets.
pub(super) struct ElementwiseOperands {
    /// Terms of the sum.
    pub(super) terms: Vec<Argument>,
    /// Whether negative values become zero.
    pub(super) rectifies: bool,
    /// Operand without which values become zero where it is not positive; [`Argument::NONE`] for
    /// none.
    pub(super) gate: Argument,
    /// Operands to which the result is written.
    pub(super) targets: Vec<Argument>,
}

impl ElementwiseOperands {
    /// Returns the operands of a chain whose normalisation has the given operands.
    pub(super) fn of_chain(chain: &ElementwiseChain<'_>, norm: &Signature) -> Self {
        let (reads, writes) = (norm.reads.len(), norm.writes.len());
        Self {
            terms: (0..chain.terms).map(|term| Argument::Read(reads + term, 0)).collect(),
            rectifies: chain.rectifier == Some(Rectifier::Forward),
            gate: match chain.rectifier {
                Some(Rectifier::Backward) => Argument::Read(reads + chain.terms, 0),
                _ => Argument::NONE,
            },
            targets: (0..chain.copies).map(|copy| Argument::Write(writes + copy, 0)).collect(),
        }
    }

    /// Returns four terms, the gate and four targets. Absent ones are [`Argument::NONE`].
    pub(super) fn arguments(&self) -> impl Iterator<Item = Argument> + '_ {
        fn four(arguments: &[Argument]) -> impl Iterator<Item = Argument> + '_ {
            let none = std::iter::repeat(Argument::NONE);
            arguments.iter().copied().chain(none).take(ElementwiseChain::MAX_OPERANDS)
        }
        four(&self.terms).chain([self.gate]).chain(four(&self.targets))
    }
}
