//! The names that scripts use for the kernel's numbers.

/// The value of `name`.
pub(crate) fn value(name: &str) -> Option<i64> {
    let found = NAMES.iter().find(|(known, _)| *known == name);
    let number = found.map(|(_, value)| *value);
    number.or_else(|| errno_number(name).map(i64::from))
}

/// The name of `errno`, for messages.
pub(crate) fn errno(number: i32) -> String {
    let found = ERRORS.iter().find(|(_, value)| *value == number);
    found.map_or_else(|| format!("errno {number}"), |(name, _)| (*name).to_owned())
}

/// The number of the error called `name`.
pub(crate) fn errno_number(name: &str) -> Option<i32> {
    let found = ERRORS.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value)
}

macro_rules! names {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), libc::$name as i64)),*] };
}

macro_rules! errors {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), libc::$name)),*] };
}

const ERRORS: &[(&str, i32)] = errors![
    EACCES,
    EADDRINUSE,
    EADDRNOTAVAIL,
    EAFNOSUPPORT,
    EAGAIN,
    EALREADY,
    EBADF,
    ECONNABORTED,
    ECONNREFUSED,
    ECONNRESET,
    EDESTADDRREQ,
    EEXIST,
    EFAULT,
    EHOSTUNREACH,
    EINPROGRESS,
    EINTR,
    EINVAL,
    EISCONN,
    EMFILE,
    EMSGSIZE,
    ENETUNREACH,
    ENOENT,
    ENOMEM,
    ENOPROTOOPT,
    ENOSYS,
    ENOTCONN,
    ENOTSOCK,
    ENOTTY,
    EOPNOTSUPP,
    EPERM,
    EPIPE,
    EPROTO,
    EPROTONOSUPPORT,
    EPROTOTYPE,
    ETIMEDOUT,
];

const NAMES: &[(&str, i64)] = names![
    AF_INET,
    AF_INET6,
    PF_INET,
    PF_INET6,
    SOCK_STREAM,
    SOCK_NONBLOCK,
    SOCK_CLOEXEC,
    IPPROTO_TCP,
    IPPROTO_IP,
    IPPROTO_IPV6,
    SOL_SOCKET,
    SOL_TCP,
    SOL_IP,
    SOL_IPV6,
    SO_REUSEADDR,
    SO_REUSEPORT,
    SO_SNDBUF,
    SO_RCVBUF,
    SO_KEEPALIVE,
    SO_LINGER,
    SO_ERROR,
    SO_TYPE,
    SO_PROTOCOL,
    SO_ACCEPTCONN,
    TCP_NODELAY,
    TCP_CORK,
    TCP_MAXSEG,
    TCP_FASTOPEN,
    TCP_KEEPIDLE,
    TCP_KEEPINTVL,
    TCP_KEEPCNT,
    TCP_NOTSENT_LOWAT,
    TCP_USER_TIMEOUT,
    TCP_DEFER_ACCEPT,
    TCP_QUICKACK,
    TCP_INQ,
    TCP_CONGESTION,
    IP_TOS,
    IP_MTU_DISCOVER,
    IP_PMTUDISC_DONT,
    IP_PMTUDISC_WANT,
    IP_PMTUDISC_DO,
    IP_PMTUDISC_PROBE,
    F_GETFL,
    F_SETFL,
    F_GETFD,
    F_SETFD,
    O_RDONLY,
    O_WRONLY,
    O_RDWR,
    O_NONBLOCK,
    FIONREAD,
    SHUT_RD,
    SHUT_WR,
    SHUT_RDWR,
    MSG_DONTWAIT,
    MSG_NOSIGNAL,
    MSG_MORE,
    MSG_FASTOPEN,
    MSG_EOR,
    MSG_PEEK,
    MSG_TRUNC,
    MSG_WAITALL,
    MSG_OOB,
    POLLIN,
    POLLOUT,
    POLLERR,
    POLLHUP,
    POLLRDHUP,
    POLLRDNORM,
    POLLWRNORM,
    POLLPRI,
    EPOLLIN,
    EPOLLOUT,
    EPOLLERR,
    EPOLLHUP,
    EPOLLRDHUP,
    EPOLLET,
    EPOLLONESHOT,
    EPOLL_CTL_ADD,
    EPOLL_CTL_MOD,
    EPOLL_CTL_DEL,
    SIOCINQ,
    SIOCOUTQ,
    SIOCOUTQNSD,
];

/// What the C library's crate does not name.
mod libc {
    pub(super) use ::libc::*;
    /// The kernel's and the C library's names of the same requests (linux/sockios.h).
    pub(super) const SIOCINQ: u64 = FIONREAD;
    pub(super) const SIOCOUTQ: u64 = TIOCOUTQ;
    pub(super) const SIOCOUTQNSD: u64 = 0x894b;
    pub(super) const TCP_INQ: i32 = 36;
    pub(super) const SOL_TCP: i32 = IPPROTO_TCP;
    pub(super) const SOL_IP: i32 = IPPROTO_IP;
    pub(super) const SOL_IPV6: i32 = IPPROTO_IPV6;
}
