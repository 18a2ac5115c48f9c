//! Fills the idle time of a device with background work: a scheduling policy without I/O, and its drivers.
