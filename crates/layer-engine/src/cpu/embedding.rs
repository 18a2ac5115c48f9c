//! Embeddings of tokens.

use super::Real;
use super::operation::{Operands, Operation};
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Number of parts of the vocabulary whose gradients are summed in parallel. The gradients of a
/// token are summed in the order of the samples, so the number does not affect the result.
const VOCABULARY_PARTS: usize = 16;

/// Pass of an embedding, by its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EmbeddingPass {
    /// Computes the output, in training and evaluation.
    Forward,
    /// Computes the gradient of the parameters, and writes zeros as that of the tokens.
    Backward,
    /// Computes the gradient of the parameters only.
    BackwardParameters,
}

/// Embedding lookup: the vector of each token. Fails with `EngineError::Token` if an input is not
/// the index of a token.
#[derive(Debug)]
pub(super) struct EmbeddingLookup {
    /// Name of the layer, for error messages.
    pub(super) layer: String,
    /// Number of different tokens.
    pub(super) vocabulary: usize,
    /// Number of elements of the vector of a token.
    pub(super) features: usize,
    /// Token whose vector gets no gradient.
    pub(super) padding: Option<usize>,
    /// Pass that is computed.
    pub(super) pass: EmbeddingPass,
    /// Threads that the work is distributed over.
    pub(super) workers: Workers,
}

impl EmbeddingLookup {
    /// Checks that every input is the number of a token, so that the computation cannot fail.
    fn check<T: Real>(&self, tokens: &[T]) -> Result<(), EngineError> {
        let is_token = |token: f64| token.fract() == 0.0 && (0.0..self.vocabulary as f64).contains(&token);
        match tokens.iter().map(|token| token.widen()).find(|&token| !is_token(token)) {
            Some(token) => {
                Err(EngineError::Token { layer: self.layer.clone(), token, vocabulary: self.vocabulary })
            }
            None => Ok(()),
        }
    }

    fn forward<T: Real>(&self, tokens: &[T], parameters: &[T], output: &mut [T]) {
        let features = self.features;
        let grain = super::softmax::rows_grain(features);
        self.workers.chunks(output, grain, |index, output| {
            let tokens = &tokens[index * grain / features..];
            for (vector, token) in output.chunks_exact_mut(features).zip(tokens) {
                let start = token.widen() as usize * features;
                vector.copy_from_slice(&parameters[start..start + features]);
            }
        });
    }

    fn parameter_gradient<T: Real>(&self, tokens: &[T], output_gradient: &[T], gradient: &mut [T]) {
        let features = self.features;
        let part = self.vocabulary.div_ceil(VOCABULARY_PARTS);
        self.workers.chunks(gradient, part * features, |index, gradient| {
            gradient.fill(T::zero());
            for (token, from) in tokens.iter().zip(output_gradient.chunks_exact(features)) {
                let token = token.widen() as usize;
                if self.padding == Some(token) {
                    continue;
                }
                let here = token.checked_sub(index * part);
                let start = here.map(|row| row * features);
                let row = start.and_then(|start| gradient.get_mut(start..start + features));
                for (sum, &term) in row.into_iter().flatten().zip(from) {
                    *sum += term;
                }
            }
        });
    }
}

impl<T: Real> Operation<T> for EmbeddingLookup {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        match self.pass {
            EmbeddingPass::Forward => {
                let ([tokens, parameters], [output]) = operands.into_arrays()?;
                self.check(tokens)?;
                self.forward(tokens, parameters, output);
            }
            EmbeddingPass::Backward => {
                let ([tokens, output_gradient], [input_gradient, gradient]) = operands.into_arrays()?;
                self.check(tokens)?;
                // A token is an index: there is no gradient with respect to it.
                input_gradient.fill(T::zero());
                self.parameter_gradient(tokens, output_gradient, gradient);
            }
            EmbeddingPass::BackwardParameters => {
                let ([tokens, output_gradient], [gradient]) = operands.into_arrays()?;
                self.check(tokens)?;
                self.parameter_gradient(tokens, output_gradient, gradient);
            }
        }
        Ok(())
    }
}
