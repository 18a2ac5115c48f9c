//! The profiler: on the CPU engine, and on an engine whose times are made up.

mod cpu;
mod resume;
mod spread;
mod virtual_engine;
