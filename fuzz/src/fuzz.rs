//! The questions that the fuzz targets ask. Each file is also part of a test, with other crates around it.

mod spec;
pub mod model;

pub use spec::hold;
