//! How long each layer of a network takes at a batch size: measured tables, interpolation, device models.
