//! Products of the queries and keys of an attention.

use super::table::Table;
use super::view::View;

/// Scores at which a mask hides a key: those of the exporters are the lowest numbers of their types
/// or minus infinity.
pub(super) const HIDDEN: f64 = -1e4;

/// Products of the queries and keys of an attention.
#[derive(Debug, Clone)]
pub(super) struct Scores {
    /// Queries, of dimensions batch, heads, positions, features.
    pub(super) queries: View,
    /// Keys, of dimensions batch, heads, positions, features.
    pub(super) keys: View,
    /// Number by which the products are multiplied.
    pub(super) scale: f64,
    /// Whether a query attends only to itself and earlier positions.
    pub(super) is_causal: bool,
    /// Maximum number of positions that a query of a causal attention attends to, if there is one.
    pub(super) window: Option<usize>,
    /// Probability that a weight is dropped.
    pub(super) dropout: f64,
}

impl Scores {
    /// Creates the products of queries with keys whose last two dimensions are transposed. `None`
    /// if these have fewer than three dimensions.
    pub(super) fn new(queries: View, transposed: &View) -> Option<Self> {
        let rank = transposed.axes.len();
        if rank < 3 || queries.axes.len() != rank {
            return None;
        }
        let order: Vec<usize> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
        let keys = transposed.permute(&order)?;
        Some(Self { queries, keys, scale: 1.0, is_causal: false, window: None, dropout: 0.0 })
    }

    /// Returns the dimensions of the scores.
    pub(super) fn dims(&self) -> Vec<usize> {
        let mut dims = self.queries.dims();
        if let (Some(last), [.., keys, _]) = (dims.last_mut(), &self.keys.dims()[..]) {
            *last = *keys;
        }
        dims
    }

    /// Returns the scores with a mask added, if it hides nothing, or all later positions and those
    /// before a window.
    pub(super) fn masked(&self, mask: &Table) -> Option<Self> {
        self.hidden_where(mask, |value| match value {
            0.0 => Some(false),
            value => (value <= HIDDEN).then_some(true),
        })
    }

    /// Returns the scores without the keys at which `is_hidden` holds for the elements of a mask,
    /// if it hides nothing, or all later positions and those before a window.
    pub(super) fn hidden_where(&self, mask: &Table, is_hidden: impl Fn(f64) -> Option<bool>) -> Option<Self> {
        let &[.., positions, keys] = self.dims().as_slice() else { return None };
        let outer = &mask.dims[..mask.dims.len().saturating_sub(2)];
        let mask = mask.expand(&[outer, &[positions, keys]].concat())?;
        let hidden = mask.values.iter().map(|&value| is_hidden(value)).collect::<Option<Vec<bool>>>()?;
        if !hidden.contains(&true) {
            return Some(self.clone());
        }
        // The last query sees a whole window.
        let window = hidden[hidden.len() - keys..].iter().filter(|&&hidden| !hidden).count();
        let is_seen = |i: usize| {
            let distance = (i / keys % positions).checked_sub(i % keys);
            distance.is_some_and(|distance| distance < window)
        };
        let is_causal =
            positions == keys && hidden.iter().enumerate().all(|(i, &hidden)| hidden != is_seen(i));
        let own = (window < keys).then_some(window);
        let window = self.window.into_iter().chain(own).min();
        is_causal.then(|| Self { is_causal, window, ..self.clone() })
    }
}
