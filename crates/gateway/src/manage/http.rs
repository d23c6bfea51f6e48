//! Just enough of HTTP/1.1 for a scraper and a health check: `GET /metrics`, `GET /healthz`, one
//! request a connection.
//!
//! Two fixed documents do not need an HTTP stack, nor its hundred crates and its threads in the
//! gateway's process.
//!
//! A health check whose request comes in one piece, as they do, is answered by the thread that accepts: it needs no slot,
//! so that no other client can keep it out.

use super::bounded_server::{ClientClass, Triage};
use super::deadline::Deadline;
use super::metrics;
use crate::handle::Handle;
use bentpipe_gateway_config::http::{self, Document, Refusal};
use bentpipe_relay::AdmissionMode;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// How long a client has for its request, and then for its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// For clients beyond the slots.
pub(super) const BUSY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// How long a client that has its answer may take to hang up.
const FAREWELL: Duration = Duration::from_secs(1);

/// Answers a health check whose request is there; any other request gets a slot. It does not wait for the client.
pub(super) fn triage(stream: &mut TcpStream, handle: &Handle) -> Triage {
    let triage = check(stream, handle);
    triage.unwrap_or(Triage::Serve(ClientClass::Common))
}

fn check(stream: &mut TcpStream, handle: &Handle) -> io::Result<Triage> {
    let mut head = [0; 1024];
    stream.set_nonblocking(true)?;
    let there = stream.peek(&mut head).unwrap_or(0);
    let head = &head[..there];
    let checks = http::parse(head) == Ok(Document::Health);
    if checks && http::is_whole(head) {
        // If the request were left unread, closing would reset the connection, and the client would lose our answer.
        stream.read_exact(&mut vec![0; there])?;
        // There is room for it in a new connection.
        stream.write_all(&health(handle))?;
        stream.shutdown(std::net::Shutdown::Write)?;
        return Ok(Triage::Served);
    }
    stream.set_nonblocking(false)?;
    Ok(Triage::Serve(if checks {
        ClientClass::Reserved
    } else {
        ClientClass::Common
    }))
}

/// Answers one request. A client that hangs, trickles or sends nonsense is dropped.
pub(super) fn answer(stream: &TcpStream, handle: &Handle) {
    let mut deadline = Deadline::new(stream, PATIENCE);
    // A client that has gone needs no answer.
    let _ = head(&mut deadline).and_then(|head| {
        deadline.extend(PATIENCE);
        deadline.write_all(&respond(&head, handle))
    });
    // If bytes of the client were left unread, closing would reset the connection, and the client would lose our
    // answer.
    let _ = stream.shutdown(std::net::Shutdown::Write);
    deadline.extend(FAREWELL);
    let _ = deadline.read(&mut [0; 512]);
}

fn head(stream: &mut Deadline<&TcpStream>) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !http::is_whole(&head) {
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => head.extend_from_slice(&part[..read]),
        }
        if head.len() > http::LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(head)
}

fn respond(head: &[u8], handle: &Handle) -> Vec<u8> {
    let refused = |status, refusal: Refusal| response(status, PLAIN, &format!("{refusal}\n"));
    match http::parse(head) {
        Ok(Document::Metrics) => match metrics::text(handle) {
            Ok(text) => response("200 OK", OPEN_METRICS, &text),
            Err(_) => response("500 Internal Server Error", PLAIN, "no metrics\n"),
        },
        Ok(Document::Health) => health(handle),
        Err(refusal @ Refusal::Method) => refused("405 Method Not Allowed", refusal),
        Err(refusal @ Refusal::Path) => refused("404 Not Found", refusal),
    }
}

/// The answer to a health check. A bypassed or suspended gateway is healthy, because connections work. A draining one
/// takes no new connections, and established connections of an impaired one may hang.
fn health(handle: &Handle) -> Vec<u8> {
    let mode = handle.shared.mode();
    let status = match mode {
        AdmissionMode::Draining | AdmissionMode::Impaired => "503 Service Unavailable",
        _ => "200 OK",
    };
    response(status, PLAIN, &format!("{}\n", mode.name()))
}

const PLAIN: &str = "text/plain; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn response(status: &str, kind: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
