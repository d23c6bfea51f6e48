//! The kernel behind the same interface: its sockets in a network namespace, and a TUN interface for their packets. What
//! scripts expect of Linux is checked by it.

use crate::settings::Setting;
use crate::syscall::Addresses;
use anyhow::{Context, Result, ensure};
use bentpipe_base::Prefix;
use bentpipe_conformance::table::Table;
use bentpipe_os::netlink::{Netlink, Route};
use bentpipe_os::netns::write_sysctl;
use bentpipe_os::tun::{Tun, TunConfig};
use core::ffi::{c_int, c_long, c_longlong, c_uint, c_ulong, c_void};
use core::net::IpAddr;
use libc::{
    epoll_event, iovec, loff_t, msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t,
    timeval,
};
use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a packet is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// The congestion control of all its sockets, which a namespace cannot have as its default everywhere.
const CONTROL: &[u8] = b"cubic";

/// What the namespace's TCP is set to, where the first namespace may differ: Linux's defaults, and a receive buffer that
/// needs a window scale of 8.
const SETTINGS: [(&str, &str); 6] = [
    ("net.ipv4.tcp_no_metrics_save", "1"),
    ("net.ipv4.tcp_rmem", "4096 131072 15000000"),
    ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
    ("net.ipv4.tcp_timestamps", "1"),
    ("net.ipv4.tcp_ecn", "2"),
    ("net.ipv4.conf.all.rp_filter", "0"),
];

struct Kernel {
    packets: Arc<Packets>,
    tun: Arc<Tun>,
    reader: Option<JoinHandle<()>>,
}

/// Packets of the kernel, and when they were read.
#[derive(Default)]
struct Packets {
    queue: Mutex<VecDeque<(i64, Vec<u8>)>>,
    more: Condvar,
    over: AtomicBool,
}

fn now() -> i64 {
    let mut time = timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    // SAFETY: room for the time, and no time zone.
    unsafe { libc::gettimeofday(&raw mut time, core::ptr::null_mut()) };
    time.tv_sec * 1_000_000 + time.tv_usec
}

/// A table with the kernel of the calling thread's network namespace behind it, set up as the script asks.
///
/// # Errors
/// Needs root and TUN.
pub(crate) fn table(addresses: &Addresses, settings: &[Setting]) -> Result<Box<Table>> {
    for (key, value) in SETTINGS {
        write_sysctl(key, value)?;
    }
    for Setting { key, value } in settings {
        if key == "net.ipv4.tcp_congestion_control" {
            // The sockets get it one by one.
            ensure!(
                value.as_bytes() == CONTROL,
                "the script sets {key} to {value}, and only cubic is judged here"
            );
            continue;
        }
        write_sysctl(key, value).with_context(|| format!("the script sets {key}"))?;
    }
    run_before_others();
    let tun = Arc::new(Tun::open("tun0", TunConfig::default())?);
    let netlink = Netlink::open()?;
    let (whole, local) = match addresses.local {
        IpAddr::V4(_) => (32, IpAddr::from([0, 0, 0, 0])),
        IpAddr::V6(_) => (128, IpAddr::from([0u16; 8])),
    };
    let prefix = |address: IpAddr, bits| Prefix::new(address, bits).context("a prefix");
    netlink.add_address("tun0", prefix(addresses.local, whole)?)?;
    netlink.add_route(&Route::device(prefix(local, 0)?, "tun0"))?;
    let packets = Arc::new(Packets::default());
    let reader = {
        let (tun, packets) = (Arc::clone(&tun), Arc::clone(&packets));
        thread::Builder::new()
            .name("reader".to_owned())
            .spawn(move || read_all(&tun, &packets))?
    };
    let kernel = Box::new(Kernel {
        packets,
        tun,
        reader: Some(reader),
    });
    let userdata = Box::into_raw(kernel).cast();
    Ok(Box::new(Table {
        userdata,
        free: Some(free),
        socket: Some(socket),
        bind: Some(bind),
        listen: Some(listen),
        accept: Some(accept),
        connect: Some(connect),
        read: Some(read),
        readv: Some(readv),
        recv: Some(recv),
        recvfrom: Some(recvfrom),
        recvmsg: Some(recvmsg),
        write: Some(write),
        writev: Some(writev),
        send: Some(send),
        sendto: Some(sendto),
        sendmsg: Some(sendmsg),
        fcntl: Some(fcntl),
        ioctl: Some(ioctl),
        close: Some(close),
        shutdown: Some(shutdown),
        getsockopt: Some(getsockopt),
        setsockopt: Some(setsockopt),
        poll: Some(poll),
        netdev_send: Some(netdev_send),
        netdev_receive: Some(netdev_receive),
        usleep: Some(usleep),
        gettimeofday: Some(gettimeofday),
        epoll_create: Some(epoll_create),
        epoll_ctl: Some(epoll_ctl),
        epoll_wait: Some(epoll_wait),
        pipe: Some(pipe),
        splice: Some(splice),
    }))
}

/// Puts this thread, and those that it starts, before all that do not run in real time: what others do must not delay
/// what the script does.
fn run_before_others() {
    let least = libc::sched_param { sched_priority: 1 };
    // Where the kernel refuses, times are less exact, which the script then tells.
    // SAFETY: of this thread, with a parameter that lives.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const least) };
}

fn read_all(tun: &Tun, packets: &Packets) {
    let mut buffer = vec![0; 65_536];
    while !packets.over.load(Ordering::Relaxed) {
        let mut ready = pollfd {
            fd: std::os::fd::AsFd::as_fd(tun).as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry, which lives.
        unsafe { libc::poll(&raw mut ready, 1, 20) };
        while let Ok(Some(length)) = tun.receive(&mut buffer) {
            let packet = (now(), buffer[..length].to_vec());
            let queue = packets.queue.lock();
            queue
                .unwrap_or_else(PoisonError::into_inner)
                .push_back(packet);
            packets.more.notify_all();
        }
    }
}

unsafe fn kernel<'a>(userdata: *mut c_void) -> &'a Kernel {
    // SAFETY: what `table` put there, until `free`.
    unsafe { &*userdata.cast::<Kernel>() }
}

unsafe extern "C" fn free(userdata: *mut c_void) {
    // SAFETY: the last call.
    let mut kernel = unsafe { Box::from_raw(userdata.cast::<Kernel>()) };
    kernel.packets.over.store(true, Ordering::Relaxed);
    if let Some(reader) = kernel.reader.take() {
        let _ended = reader.join();
    }
}

unsafe extern "C" fn socket(_: *mut c_void, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: numbers, and a name that lives.
    unsafe {
        let fd = libc::socket(domain, kind, protocol);
        if fd >= 0 {
            let (name, length) = (CONTROL.as_ptr().cast(), CONTROL.len() as socklen_t);
            libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name, length);
        }
        fd
    }
}

/// Passes calls on as they come.
macro_rules! pass_on {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(unsafe extern "C" fn $name(_: *mut c_void, $($argument: $type),*) -> $result {
            // SAFETY: the caller's arguments are those of this very call.
            unsafe { libc::$name($($argument),*) }
        })*
    };
}

pass_on! {
    bind(fd: c_int, at: *const sockaddr, length: socklen_t) -> c_int;
    listen(fd: c_int, backlog: c_int) -> c_int;
    accept(fd: c_int, peer: *mut sockaddr, length: *mut socklen_t) -> c_int;
    connect(fd: c_int, to: *const sockaddr, length: socklen_t) -> c_int;
    read(fd: c_int, data: *mut c_void, length: size_t) -> ssize_t;
    readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t;
    recv(fd: c_int, data: *mut c_void, length: size_t, flags: c_int) -> ssize_t;
    recvfrom(fd: c_int, data: *mut c_void, length: size_t, flags: c_int, from: *mut sockaddr, room: *mut socklen_t) -> ssize_t;
    recvmsg(fd: c_int, header: *mut msghdr, flags: c_int) -> ssize_t;
    writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t;
    fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int;
    ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int;
    close(fd: c_int) -> c_int;
    shutdown(fd: c_int, how: c_int) -> c_int;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int;
    poll(list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    usleep(micros: c_uint) -> c_int;
    epoll_create(size: c_int) -> c_int;
    epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    epoll_wait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int;
    pipe(fds: *mut c_int) -> c_int;
}

// These add MSG_NOSIGNAL, for otherwise a SIGPIPE would end this process.

unsafe extern "C" fn write(
    _: *mut c_void,
    fd: c_int,
    data: *const c_void,
    length: size_t,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { libc::send(fd, data, length, libc::MSG_NOSIGNAL) }
}

unsafe extern "C" fn send(
    _: *mut c_void,
    fd: c_int,
    data: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { libc::send(fd, data, length, flags | libc::MSG_NOSIGNAL) }
}

unsafe extern "C" fn sendto(
    _: *mut c_void,
    fd: c_int,
    data: *const c_void,
    length: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_length: socklen_t,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { libc::sendto(fd, data, length, flags | libc::MSG_NOSIGNAL, to, to_length) }
}

unsafe extern "C" fn sendmsg(
    _: *mut c_void,
    fd: c_int,
    header: *const msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { libc::sendmsg(fd, header, flags | libc::MSG_NOSIGNAL) }
}

unsafe extern "C" fn splice(
    _: *mut c_void,
    from: c_int,
    from_offset: *mut loff_t,
    to: c_int,
    to_offset: *mut loff_t,
    length: size_t,
    flags: c_uint,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { libc::splice(from, from_offset, to, to_offset, length, flags) as c_int }
}

unsafe extern "C" fn gettimeofday(_: *mut c_void, time: *mut timeval, _zone: *mut c_void) -> c_int {
    // SAFETY: the caller's room for the time.
    unsafe { libc::gettimeofday(time, core::ptr::null_mut()) }
}

unsafe extern "C" fn netdev_send(
    userdata: *mut c_void,
    packet: *const c_void,
    octets: size_t,
) -> c_int {
    // SAFETY: the caller hands over so many octets.
    let packet = unsafe { core::slice::from_raw_parts(packet.cast::<u8>(), octets) };
    // SAFETY: the caller's userdata is ours.
    match unsafe { kernel(userdata) }.tun.send(packet) {
        Ok(()) => 0,
        Err(_) => -1,
    }
}

unsafe extern "C" fn netdev_receive(
    userdata: *mut c_void,
    buffer: *mut c_void,
    octets: *mut size_t,
    micros: *mut c_longlong,
) -> c_int {
    // SAFETY: the caller's userdata is ours.
    let packets = unsafe { &kernel(userdata).packets };
    let queue = packets.queue.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = packets
        .more
        .wait_timeout_while(queue, PATIENCE, |queue| queue.is_empty());
    let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
    let Some((at, packet)) = queue.pop_front() else {
        return -1;
    };
    // SAFETY: the caller's room, its size, and room for the time.
    unsafe {
        if packet.len() > *octets {
            return -1;
        }
        buffer.cast::<u8>().copy_from(packet.as_ptr(), packet.len());
        (*octets, *micros) = (packet.len(), at);
    }
    0
}
