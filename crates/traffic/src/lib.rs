//! Cross traffic apart from any simulation: models of how large transfers are and when they start
//! ([`Model`]), and profiles of them that are kept as files and replayed ([`Profile`]).
//!
//! A profile has a number of flows. Each is one transfer after another: the first starts when the
//! profile says; when it ends, a pause is drawn, then a size, and the next begins, so that the load
//! holds (Ishac and Allman, 2001, section 3). [`Source`] draws these.
//!
//! It leaves out the connections that carry it. Begin with [`Model`].
//!
//! ```
//! use bentpipe_traffic::{Model, Profile};
//! let drawn = Profile::draw(Model::reference(), 50, 1);
//! let read = Profile::parse("profile.csv", &drawn.to_string())?;
//! assert_eq!(read, drawn);
//! # Ok::<(), bentpipe_traffic::ProfileError>(())
//! ```
#![forbid(unsafe_code)]

mod model;
mod profile;
mod source;

pub use model::{Kind, Model, ModelError};
pub use profile::{Direction, Profile, ProfileError, Transfer};
pub use source::Source;
