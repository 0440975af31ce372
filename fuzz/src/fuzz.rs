//! The questions that the fuzz targets ask. Each file is also part of a test, with other crates around it.

mod lib;
pub mod model;

pub use lib::hold;
