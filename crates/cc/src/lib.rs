//! Congestion controls as pure integer rules: the Rust twins of the BPF
//! programs that bentpipe attaches, in the same arithmetic as the C.
#![forbid(unsafe_code)]
