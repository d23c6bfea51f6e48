//! Servers on loopback, by their ports.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown as Half, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// Serves each connection by `serve`, in a thread of its own.
fn server(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(socket));
        }
    });
    port.to_string()
}

pub(crate) fn echo() -> String {
    server(|socket| {
        let mut reader = &socket;
        let _ = std::io::copy(&mut reader, &mut &socket);
        let _ = socket.shutdown(Half::Write);
    })
}

/// Sends each datagram back.
pub(crate) fn udp_echo() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..len], from);
        }
    });
    port.to_string()
}

/// Sends so many bytes and ends.
pub(crate) fn source(length: usize) -> String {
    server(move |mut socket| {
        let _ = socket.write_all(&vec![b'x'; length]);
    })
}

/// Resets once it has been spoken to.
pub(crate) fn resetting() -> String {
    server(|mut socket| {
        let _ = socket.read(&mut [0]);
        let now = socket2::SockRef::from(&socket);
        now.set_linger(Some(Duration::ZERO)).unwrap();
    })
}

/// Echoes, and tells by which error its connections end; `None`: as they should.
pub(crate) fn watching() -> (String, Receiver<Option<ErrorKind>>) {
    let (told, ends) = channel();
    let port = server(move |socket| {
        let mut reader = &socket;
        let ended = std::io::copy(&mut reader, &mut &socket);
        let _ = told.send(ended.err().map(|error| error.kind()));
    });
    (port, ends)
}

pub(crate) fn closed() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A server of HTTP/1.1 that answers `/N` by N bytes.
pub(crate) fn web() -> String {
    server(|mut socket| {
        let mut reader = BufReader::new(socket.try_clone().unwrap());
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|read| read > 0)
        {
        }
        let length = head.split(['/', ' ']).nth(2).and_then(|it| it.parse().ok());
        let body = vec![b'x'; length.unwrap_or(0)];
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let _ = socket.write_all(&[head.as_bytes(), &body].concat());
    })
}
