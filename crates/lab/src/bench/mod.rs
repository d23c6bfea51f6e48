//! Measurements of our programs against their rivals, side by side in one run.

pub mod gateway;
