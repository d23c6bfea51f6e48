//! connect-tcp (draft-ietf-httpbis-connect-tcp) without I/O and without HTTP: what a client asks a proxy for, how the bytes of a
//! TCP connection travel in the request's stream, how each side says that it has no more, and why a dial failed.
//!
//! ```text
//! client                                        proxy
//! CONNECT, :protocol connect-tcp-12, :path from a template
//! DATA("hello")  at once, unasked             → dials, then forwards
//!                                             ← 200, proxy-status
//!                                             ← DATA(..), FINAL_DATA(..)   the server's FIN
//! FINAL_DATA()   the client's FIN             →
//! ```
//!
//! Token and capsule types change from draft to draft, and the RFC's are not fixed yet: [`DRAFTS`] is the one table of
//! them. Classic CONNECT (RFC 9110, section 9.3.6), whose stream is the TCP stream as it is, is understood as well
//! ([`Framing::Bare`]); there the end of the stream is the FIN.
//!
//! CONNECT-UDP (RFC 9298) is asked for in the same manner, on a path of its own; its payloads travel in HTTP Datagrams, each behind the
//! number of a context ([`udp_payload`]), and the stream has capsules alone ([`Framing::Datagrams`]).
//!
//! Begin with [`Framing`], then [`Request`].
#![forbid(unsafe_code)]

mod capsule;
mod draft_versions;
mod forwarded;
mod percent_encoding;
mod proxy_status;
mod request;
mod target;
mod template;
mod udp;
mod varint;

pub use capsule::{Broken, Decoder, Framing, Piece, capsule};
pub use draft_versions::{DRAFTS, Draft, Numbers};
pub use proxy_status::{DialError, Status, status_field};
pub use request::{Field, Refusal, Request, fields, udp_fields};
pub use target::{Host, NoTarget, Target};
pub use template::{Template, TemplateError};
pub use udp::{NoPayload, UDP_CAPSULE_MAX, UDP_CONTEXT, UDP_PAYLOAD_MAX, udp_capsule, udp_payload};
