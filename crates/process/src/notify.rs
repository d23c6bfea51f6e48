//! Tells the service manager the state of the service: sd_notify(3), a datagram to `$NOTIFY_SOCKET`.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::thread;
use std::time::Duration;

/// When what found no room is sent again.
const RETRY: Duration = Duration::from_millis(500);

/// Sends `state`, lines such as `READY=1`; without a service manager does nothing.
pub fn tell(state: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(path.as_bytes(), state) {
        tracing::warn!(%error, "the service manager cannot be told {state:?}");
    }
}

/// Sends `state` as soon as a service manager that does not read has room for it again, for as long as that is `wanted`;
/// does not wait for it.
pub fn tell_in_the_end(state: String, wanted: impl Fn() -> bool + Send + 'static) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let tell = move || send(path.as_bytes(), &state);
    if !is_full(&tell()) {
        return;
    }
    tracing::warn!("the service manager does not read: it will be told later");
    let retry = move || {
        while wanted() && is_full(&tell()) {
            thread::sleep(RETRY);
        }
    };
    let spawned = thread::Builder::new()
        .name("notify".to_owned())
        .spawn(retry);
    if let Err(error) = spawned {
        tracing::warn!(%error, "the service manager is not told");
    }
}

/// Whether the datagram found no room and may be sent later. Other errors are logged.
fn is_full(sent: &io::Result<()>) -> bool {
    match sent {
        Ok(()) => false,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
        Err(error) => {
            tracing::warn!(%error, "the service manager cannot be told");
            false
        }
    }
}

fn send(path: &[u8], state: &str) -> io::Result<()> {
    let address = match path.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    let socket = UnixDatagram::unbound()?;
    // A service manager that does not read is not waited for.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

/// How often the service manager wants to hear that all is well; `None`: it does not.
pub fn watchdog() -> Option<Duration> {
    let micros: u64 = env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    (micros > 0).then(|| Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_arrive_at_a_path_and_at_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("bentpipe-notify-{}", std::process::id());
        let at_path = UnixDatagram::bind(&path).unwrap();
        let abstractly = SocketAddr::from_abstract_name(&name).unwrap();
        let at_name = UnixDatagram::bind_addr(&abstractly).unwrap();
        let hidden = format!("@{name}");
        for (socket, address) in [
            (&at_path, path.as_os_str().as_bytes()),
            (&at_name, hidden.as_bytes()),
        ] {
            send(address, "READY=1\nMAINPID=7").unwrap();
            let mut state = [0; 64];
            let length = socket.recv(&mut state).unwrap();
            assert_eq!(&state[..length], b"READY=1\nMAINPID=7");
        }
        assert!(send(b"/no/such/socket", "READY=1").is_err());
    }

    #[test]
    fn who_does_not_read_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let _deaf = UnixDatagram::bind(&path).unwrap();
        let address = path.as_os_str().as_bytes();
        let refused = (0..100_000).find_map(|_| send(address, "WATCHDOG=1").err());
        assert_eq!(refused.unwrap().kind(), io::ErrorKind::WouldBlock);
    }
}
