//! Tests of the public interface.

#[cfg(unix)]
mod files;
mod inputs;
#[cfg(unix)]
mod locked;
