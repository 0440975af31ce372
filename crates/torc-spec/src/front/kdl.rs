//! KDL 2.
