//! Studies: one scenario, its sweep axes, and the tables and figures made of all its points.
#![forbid(unsafe_code)]
