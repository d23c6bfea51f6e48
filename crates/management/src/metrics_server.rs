//! Just enough of HTTP/1.1 for a scraper and a health check: `GET /metrics`, `GET /healthz`, one
//! request a connection.
//!
//! Two fixed documents do not need an HTTP stack, nor its hundred crates and its threads in the
//! gateway's process.
//!
//! A health check whose request comes in one piece, as they do, is answered by the thread that accepts: it needs no slot,
//! so that no other client can keep it out.

use crate::bounded_server::{BoundedServer, ClientClass, Triage};
use crate::deadline_stream::DeadlineStream;
use bentpipe_gateway_config::http::{self, Document, Refusal};
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Scrapers at a time.
const SCRAPERS: usize = 4;
/// How long a connection to the metrics waits for its request where no thread of ours waits for it.
const SILENT: Duration = Duration::from_secs(5);
/// How long a client has for its request, and then for its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// For clients beyond the slots.
const BUSY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// How long a client that has its answer may take to hang up.
const FAREWELL: Duration = Duration::from_secs(1);

/// What is asked for.
pub trait Documents: Clone + Send + Sync + 'static {
    /// The page for Prometheus.
    ///
    /// # Errors
    /// When it cannot be written down.
    fn metrics(&self) -> Result<String, fmt::Error>;

    /// Whether new connections work, and the word for how it stands.
    fn health(&self) -> (bool, &'static str);
}

/// Serves `documents` at `listener`.
///
/// # Errors
/// When the kernel gives no thread.
pub fn serve(listener: TcpListener, documents: &impl Documents) -> io::Result<BoundedServer> {
    // The kernel keeps back clients that say nothing, so that they take no slot; where it cannot, they take one for a while.
    let _ = bentpipe_sockets::socket::accept_with_data(&listener, SILENT);
    let (early, late) = (documents.clone(), documents.clone());
    BoundedServer::open(
        "metrics",
        listener,
        (SCRAPERS, BUSY),
        move |stream: &mut TcpStream| triage(stream, &early),
        move |stream: TcpStream| answer(&stream, &late),
    )
}

/// Answers a health check whose request is there; any other request gets a slot. It does not wait for the client.
fn triage(stream: &mut TcpStream, documents: &impl Documents) -> Triage {
    let triage = check(stream, documents);
    triage.unwrap_or(Triage::Serve(ClientClass::Common))
}

fn check(stream: &mut TcpStream, documents: &impl Documents) -> io::Result<Triage> {
    let mut head = [0; 1024];
    stream.set_nonblocking(true)?;
    let there = stream.peek(&mut head).unwrap_or(0);
    let head = &head[..there];
    let checks = http::parse(head) == Ok(Document::Health);
    if checks && http::is_whole(head) {
        // If the request were left unread, closing would reset the connection, and the client would lose our answer.
        stream.read_exact(&mut vec![0; there])?;
        // There is room for it in a new connection.
        stream.write_all(&health(documents))?;
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
fn answer(stream: &TcpStream, documents: &impl Documents) {
    let mut deadline = DeadlineStream::new(stream, PATIENCE);
    // A client that has gone needs no answer.
    let _ = head(&mut deadline).and_then(|head| {
        deadline.extend(PATIENCE);
        deadline.write_all(&respond(&head, documents))
    });
    // If bytes of the client were left unread, closing would reset the connection, and the client would lose our
    // answer.
    let _ = stream.shutdown(std::net::Shutdown::Write);
    deadline.extend(FAREWELL);
    let _ = deadline.read(&mut [0; 512]);
}

fn head(stream: &mut DeadlineStream<&TcpStream>) -> io::Result<Vec<u8>> {
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

fn respond(head: &[u8], documents: &impl Documents) -> Vec<u8> {
    let refused = |status, refusal: Refusal| response(status, PLAIN, &format!("{refusal}\n"));
    match http::parse(head) {
        Ok(Document::Metrics) => match documents.metrics() {
            Ok(text) => response("200 OK", OPEN_METRICS, &text),
            Err(_) => response("500 Internal Server Error", PLAIN, "no metrics\n"),
        },
        Ok(Document::Health) => health(documents),
        Err(refusal @ Refusal::Method) => refused("405 Method Not Allowed", refusal),
        Err(refusal @ Refusal::Path) => refused("404 Not Found", refusal),
    }
}

/// The answer to a health check.
fn health(documents: &impl Documents) -> Vec<u8> {
    let (healthy, word) = documents.health();
    let status = if healthy {
        "200 OK"
    } else {
        "503 Service Unavailable"
    };
    response(status, PLAIN, &format!("{word}\n"))
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
