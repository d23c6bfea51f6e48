//! The servers of the tests.

use super::{PATIENCE, eventually, patient};
use bentpipe_os::netns::Netns;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// A server's listener, whose connections do not wait for ever.
pub struct Listener(pub TcpListener);

impl Listener {
    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    pub fn accept(&self) -> TcpStream {
        self.accept_within(PATIENCE).unwrap()
    }

    pub fn accept_within(&self, limit: Duration) -> Option<TcpStream> {
        self.0.set_nonblocking(true).unwrap();
        let until = Instant::now() + limit;
        loop {
            match self.0.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).unwrap();
                    patient(&stream);
                    return Some(stream);
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            if Instant::now() > until {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A listener of this port, which may have been another's a moment ago.
pub fn listen_at(netns: &Netns, host: IpAddr, port: u16) -> Listener {
    let mut bound = None;
    // A program that another test starts holds a listener that is closed here, until it runs.
    eventually("a free port", || {
        let tried = netns.run(|| TcpListener::bind((host, port))).unwrap();
        match tried {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => false,
            tried => {
                bound = Some(tried.unwrap());
                true
            }
        }
    });
    Listener(bound.unwrap())
}
