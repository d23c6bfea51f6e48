//! Filled next.
#![forbid(unsafe_code)]
