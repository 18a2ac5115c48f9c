//! Published curves that are built in.

use super::EpochCurve;
use crate::AccuracyError;

const CURVES: [(&str, &str); 2] = [
    ("gnmt", include_str!("../../data/gnmt.json")),
    ("resnet-50", include_str!("../../data/resnet-50.json")),
];

impl EpochCurve {
    /// A published curve, by the name of its network in lower case. Its document says where it comes from.
    ///
    /// # Errors
    /// [`AccuracyError::UnknownCurve`] that lists those there are.
    pub fn named(name: &str) -> Result<Self, AccuracyError> {
        match CURVES.iter().find(|(known, _)| *known == name) {
            Some((_, json)) => Self::from_json(json),
            None => Err(AccuracyError::UnknownCurve { name: name.into(), known: Self::names().collect() }),
        }
    }

    /// The names of all curves that are built in.
    pub fn names() -> impl Iterator<Item = &'static str> {
        CURVES.iter().map(|(name, _)| *name)
    }
}
