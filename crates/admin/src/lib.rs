//! What operators of Oncebox do.

pub mod filter;

pub use filter::{Filter, FilterError};
