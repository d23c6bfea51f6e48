//! The control socket: its clients, one line of JSON each way at a time.

use crate::bounded_server::{BoundedServer, ClientClass, Triage};
use crate::control_protocol::{self, Answer, Request};
use crate::deadline_stream::DeadlineStream;
use crate::socket_file;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

/// The most clients of the control socket at a time that may only look, and the most that may give orders.
const CLIENTS: usize = 4;
/// How long a client has for a line.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it has to take its answer.
const UNREAD: Duration = Duration::from_secs(2);
/// Between the answers to one client: a flood of questions gets no more than twenty a second.
const PAUSE: Duration = Duration::from_millis(50);

/// Held for reading while a client is answered, so that a program that ends because of a request tells so first.
pub type Answering = Arc<RwLock<()>>;

/// Serves the clients of `listener`. `answer` is told whether the client may give orders.
///
/// # Errors
/// When the kernel gives no thread.
pub fn serve(
    listener: UnixListener,
    answering: Answering,
    answer: impl Fn(&Request, bool) -> Answer + Send + Sync + 'static,
) -> io::Result<BoundedServer> {
    // Clients that may only look must not keep out those that may give orders.
    let triage = |stream: &mut UnixStream| {
        if socket_file::may_order(&*stream) {
            Triage::Serve(ClientClass::Reserved)
        } else {
            Triage::Serve(ClientClass::Common)
        }
    };
    BoundedServer::open(
        "control",
        listener,
        (CLIENTS, control_protocol::BUSY),
        triage,
        move |stream| serve_client(stream, &answering, &answer),
    )
}

/// Answers a client until it ends, is silent for too long, or talks nonsense.
fn serve_client(
    stream: UnixStream,
    answering: &RwLock<()>,
    answer: impl Fn(&Request, bool) -> Answer,
) {
    let may_order = socket_file::may_order(&stream);
    let mut lines = BufReader::new(DeadlineStream::new(&stream, PATIENCE));
    let mut line = Vec::new();
    let mut answered = None::<Instant>;
    loop {
        line.clear();
        lines.get_mut().extend(PATIENCE);
        let mut bounded = (&mut lines).take(control_protocol::LONGEST as u64);
        match bounded.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if let Some(answered) = answered {
            std::thread::sleep(PAUSE.saturating_sub(answered.elapsed()));
        }
        let _answering = answering.read();
        let (answer, keep_open) = match control_protocol::parse(&line) {
            // If the successor has given up while this process was frozen, the gateway stays.
            Ok(Request::Retire) if bentpipe_sockets::socket::has_hung_up(&stream) => return,
            Ok(request) => (answer(&request, may_order), true),
            Err(error) => (Answer::error(error), false),
        };
        let mut answers = DeadlineStream::new(&stream, UNREAD);
        if answers.write_all(&answer.to_line()).is_err() || !keep_open {
            return;
        }
        answered = Some(Instant::now());
    }
}
