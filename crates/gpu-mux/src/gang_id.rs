//! Identifiers of gangs.

/// Identifier of a gang: its number, in the order in which gangs were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GangId(pub usize);
