//! Reading a TOML file of settings so that every problem in it is found, placed and explained.
//!
//! Text in, typed values out; nothing here opens a file. A [`Document`] holds the text, its [`Table`]s
//! hand out values of any type that is a [`Value`] (quantities with units among them), and
//! [`Document::finish`] gives what was read or all [`Problems`], each with file, line, what was
//! expected and the nearest valid name. Scenarios and the gateway's settings are read with it; what
//! their keys mean is theirs.
//!
//! Begin with [`Document`].
//!
//! ```
//! use bentpipe_base::Rate;
//! use bentpipe_config::Document;
//! let read = |text| {
//!     let document = Document::new("link.toml", text);
//!     let mut root = document.root();
//!     let rate = root.required::<Rate>("rate", "\"10Mbit/s\"");
//!     root.finish();
//!     document.finish(rate)
//! };
//! assert_eq!(read("rate = \"2Mbit/s\"")?.mbps(), 2.0);
//! let wrong = read("raet = \"2Mbit/s\"").unwrap_err();
//! assert!(wrong.to_string().ends_with("expected `rate`; did you mean `rate`?"));
//! # Ok::<(), bentpipe_config::Problems>(())
//! ```
#![forbid(unsafe_code)]

mod document;
pub mod network;
mod problem;
mod values;

pub use document::{Document, Place, Table, Value, Wrong, kind};
pub use problem::{Problem, Problems, nearest};
pub use values::{Number, brief};
