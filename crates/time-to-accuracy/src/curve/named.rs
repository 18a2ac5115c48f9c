//! Built-in curves.

use super::EpochCurve;
use crate::AccuracyError;

const CURVES: [(&str, &str); 2] = [
    ("gnmt", include_str!("../../data/gnmt.json")),
    ("resnet-50", include_str!("../../data/resnet-50.json")),
];

impl EpochCurve {
    /// Returns the built-in curve of this name, one of [`names`](Self::names).
    ///
    /// # Errors
    /// [`AccuracyError::UnknownCurve`], which lists the known names, if there is none.
    pub fn named(name: &str) -> Result<Self, AccuracyError> {
        match CURVES.iter().find(|(known, _)| *known == name) {
            Some((_, json)) => Self::from_json(json),
            None => Err(AccuracyError::UnknownCurve { name: name.into(), known: Self::names().collect() }),
        }
    }

    /// Returns the names of all built-in curves.
    pub fn names() -> impl Iterator<Item = &'static str> {
        CURVES.iter().map(|(name, _)| *name)
    }
}
