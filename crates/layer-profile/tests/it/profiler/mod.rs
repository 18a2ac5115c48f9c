//! Tests of the profiler on the CPU engine and on an engine with virtual time.

mod cpu;
mod resume;
mod spread;
mod virtual_engine;
