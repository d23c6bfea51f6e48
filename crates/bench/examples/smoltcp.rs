//! smoltcp's TCP on a TUN interface, as its own benchmark example has it: the rival that `bentpipe bench packet` runs.
//!
//! `smoltcp TUN ADDRESS/BITS BUFFER`: makes the interface, writes `ready`, and once a line has come at standard input
//! serves, until it is killed, whoever connects at three ports: 5001 takes bytes, 5002 sends them, 5003 sends back
//! what comes. BUFFER: bytes that a connection may have in each direction.

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Medium, TunTapInterface, wait};
use smoltcp::socket::tcp::{RecvError, SendError, Socket, SocketBuffer};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr};
use std::error::Error;
use std::io::{BufRead as _, Write as _, stdin, stdout};
use std::os::fd::AsRawFd as _;

/// What is done with the bytes of who connects at the port of this place.
const DUTIES: [(u16, Serve); 3] = [(5001, take), (5002, send), (5003, echo)];

type Serve = fn(&mut Socket<'_>) -> Result<(), Box<dyn Error>>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("smoltcp TUN ADDRESS/BITS BUFFER");
    let (name, address, buffer) = (next()?, next()?, next()?.parse()?);
    let address: IpCidr = address.parse().map_err(|()| "no ADDRESS/BITS")?;
    let mut device = TunTapInterface::new(&name, Medium::Ip)?;
    let mut out = stdout();
    out.write_all(b"ready\n")?;
    out.flush()?;
    stdin().lock().read_line(&mut String::new())?;
    let mut interface = Interface::new(
        Config::new(HardwareAddress::Ip),
        &mut device,
        Instant::now(),
    );
    let mut room = Ok(());
    interface.update_ip_addrs(|addresses| room = addresses.push(address).map_err(|_| "no room"));
    room?;
    let mut sockets = SocketSet::new(Vec::new());
    let handles: [SocketHandle; 3] = DUTIES.map(|_| {
        let room = || SocketBuffer::new(vec![0; buffer]);
        let mut socket = Socket::new(room(), room());
        socket.set_nagle_enabled(false);
        sockets.add(socket)
    });
    loop {
        interface.poll(Instant::now(), &mut device, &mut sockets);
        for ((port, serve), handle) in DUTIES.into_iter().zip(handles) {
            let socket = sockets.get_mut::<Socket<'_>>(handle);
            if !socket.is_open() {
                socket.listen(port)?;
            }
            serve(socket)?;
            // Whoever connects is the one who closes.
            if !socket.may_recv() && socket.may_send() {
                socket.close();
            }
        }
        let pause = interface.poll_delay(Instant::now(), &sockets);
        wait(device.as_raw_fd(), pause)?;
    }
}

fn take(socket: &mut Socket<'_>) -> Result<(), Box<dyn Error>> {
    while socket.can_recv() {
        socket.recv(|bytes| (bytes.len(), ())).map_err(received)?;
    }
    Ok(())
}

fn send(socket: &mut Socket<'_>) -> Result<(), Box<dyn Error>> {
    while socket.can_send() {
        socket.send(|room| (room.len(), ())).map_err(sent)?;
    }
    Ok(())
}

fn echo(socket: &mut Socket<'_>) -> Result<(), Box<dyn Error>> {
    while socket.can_recv() && socket.can_send() {
        let byte = socket.recv(|bytes| (1, bytes[0])).map_err(received)?;
        socket.send_slice(&[byte]).map_err(sent)?;
    }
    Ok(())
}

fn received(error: RecvError) -> Box<dyn Error> {
    format!("receiving: {error}").into()
}

fn sent(error: SendError) -> Box<dyn Error> {
    format!("sending: {error}").into()
}
