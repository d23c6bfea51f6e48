//! Just enough of HTTP/1.1 for a scraper and a health check: `GET /metrics`, `GET /healthz`, one
//! request a connection.
//!
//! Two fixed documents do not need an HTTP stack, nor its hundred crates and its threads in the
//! gateway's process.

use super::metrics;
use crate::orders::Handle;
use crate::shared::Standing;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// How long a client may say nothing, and how long it may take nothing.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest request head.
const LONGEST: usize = 8192;

/// For clients beyond the seats.
pub(super) const BUSY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Answers one request; whoever hangs or talks nonsense is left.
pub(super) fn answer(mut stream: TcpStream, handle: &Handle) {
    // A client that has gone needs no answer.
    let _ = head(&mut stream).and_then(|head| stream.write_all(&respond(&head, handle)));
    // Its last words unread, a close would reset the connection and take our answer along.
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.read(&mut [0; 512]);
}

fn head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => head.extend_from_slice(&part[..read]),
        }
        if head.len() > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(head)
}

fn respond(head: &[u8], handle: &Handle) -> Vec<u8> {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, path) = (words.next(), words.next().unwrap_or_default());
    let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
    if method != Some(b"GET") {
        return response("405 Method Not Allowed", PLAIN, "only GET\n");
    }
    match path {
        b"/metrics" => match metrics::text(handle) {
            Ok(text) => response("200 OK", OPEN_METRICS, &text),
            Err(_) => response("500 Internal Server Error", PLAIN, "no metrics\n"),
        },
        b"/healthz" => health(handle),
        _ => response("404 Not Found", PLAIN, "try /metrics or /healthz\n"),
    }
}

/// Bypassed and suspended are healthy: connections work. One that drains takes no new ones, and of one
/// that is impaired those that stand may hang.
fn health(handle: &Handle) -> Vec<u8> {
    let standing = handle.shared.standing();
    let status = match standing {
        Standing::Draining | Standing::Impaired => "503 Service Unavailable",
        _ => "200 OK",
    };
    response(status, PLAIN, &format!("{}\n", standing.name()))
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
