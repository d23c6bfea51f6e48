use crate::leased;
use bentpipe_saratoga::sender::Failure;
use bentpipe_wire::saratoga::Code;
use std::io;
use std::net::SocketAddr;
use thiserror::Error;

/// Why a transfer failed. Says which side, what was being done, and what to do next.
#[derive(Debug, Error)]
pub enum Error {
    /// The operating system refused something on this side.
    #[error("cannot {action} `{path}`: {source}{}", hint(.source))]
    File {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// The socket.
    #[error("cannot {action}: {source}{}", hint(.source))]
    Socket {
        /// What was being done.
        action: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// A path that leaves the tree, or has no name.
    #[error("`{path}` {why}; give a relative path inside the served directory")]
    Path {
        /// The path.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A path that no frame carries.
    #[error(
        "`{path}` has {len} octets, and Saratoga carries paths of 1023; serve a directory further down, or give it a shorter name"
    )]
    LongPath {
        /// The path.
        path: String,
        /// Its octets.
        len: usize,
    },
    /// Two names for one place, or one place in another, where a file can go to one only.
    #[error("`{inner}` is in `{outer}`, and a file goes to one place: give one of them")]
    Nested {
        /// What lies in the other.
        inner: String,
        /// The other.
        outer: String,
    },
    /// What the server lists has no end, or one far away.
    #[error(
        "in `{path}` the server lists more files and directories than {most}, or longer paths than so many have: what is under way was stopped; if it has them all, give --max-files a greater number"
    )]
    TooMany {
        /// Where the number was exceeded.
        path: String,
        /// What this side walks at most.
        most: usize,
    },
    /// The peer, or its silence.
    #[error("`{path}`: {failure}; {next}")]
    Session {
        /// The file.
        path: String,
        /// Why.
        failure: Failure,
        /// What to do.
        next: &'static str,
    },
    /// What arrived is not what was announced.
    #[error(
        "`{path}` arrived with another checksum than announced and was discarded; try again, and look at the source if it repeats"
    )]
    Checksum {
        /// The file.
        path: String,
    },
    /// The peer announces another file than the REQUEST is about.
    #[error(
        "`{path}` was asked for, and `{named}` is announced: what one side said was damaged on the way; try again, with `--key-file` if it repeats"
    )]
    Misnamed {
        /// The file of the REQUEST.
        path: String,
        /// That of METADATA.
        named: String,
    },
    /// The file changed while it was sent.
    #[error(
        "`{path}` changed while it was sent; the receiver was told to discard it, send it again"
    )]
    Changed {
        /// The file.
        path: String,
    },
    /// The copy is there, but the file was not deleted: it may not be what arrived.
    #[error("`{path}` stays here, though it was to be deleted: it {why}")]
    Kept {
        /// The file.
        path: String,
        /// What is in doubt.
        why: &'static str,
    },
    /// The copy is here, but the peer did not say what became of the original.
    #[error(
        "`{path}` is here, but the server did not say that it was deleted there: look with `bentpipe saratoga ls`, and `rm` it"
    )]
    Unconfirmed {
        /// The file.
        path: String,
    },
    /// More than there is room for.
    #[error(
        "`{path}` has {size} bytes and there is room for {room}{place}, besides 1 MiB that stays free; make room, then try again"
    )]
    NoRoom {
        /// The file.
        path: String,
        /// Its size.
        size: u64,
        /// What it may take of the disk.
        room: u64,
        /// Which disk, where that is not the one of its folder.
        place: String,
    },
    /// A list for which there is not that much memory.
    #[error(
        "the list of `{path}` has {size} bytes, and {most} at most are taken: name directories or files in it instead"
    )]
    ListTooLong {
        /// The directory.
        path: String,
        /// The list's size.
        size: u64,
        /// What a list may have.
        most: u64,
    },
    /// There is room, but it is promised to what is on its way.
    #[error(
        "there is room for the {size} bytes of `{path}` only when what is on its way turns out to need less; try again when that is over"
    )]
    Promised {
        /// The file.
        path: String,
        /// Its size.
        size: u64,
    },
    /// More than is allowed.
    #[error("`{path}` has {size} bytes, more than the {most} allowed here (--max-size)")]
    TooLong {
        /// The file.
        path: String,
        /// Its size.
        size: u64,
        /// What is allowed.
        most: u64,
    },
    /// The server's host says that its port is closed.
    #[error(
        "nothing listens at {server}: start `bentpipe saratoga serve` there, or give the port that it prints"
    )]
    Unreachable {
        /// The server.
        server: SocketAddr,
    },
    /// Whoever answered has no seal to show.
    #[error(
        "`{path}`: somebody says `{code}` without a seal, and no server with this key says anything else: compare the --key-file of both sides, and their clocks, which may differ by two minutes"
    )]
    Unsealed {
        /// The file.
        path: String,
        /// What was said.
        code: Code,
    },
    /// A deletion was asked for with a key, and heard of, and its answer can come no more.
    #[error(
        "`{path}`: the server has heard that it is to be deleted, its answer was lost, and after two minutes it does not give it again: look whether it is still there (bentpipe saratoga ls)"
    )]
    AnswerLost {
        /// The file.
        path: String,
    },
    /// The server said nothing of a rate.
    #[error(
        "the server does not say which rate it takes (is `bentpipe saratoga serve` running there, and does UDP port 7542 pass?); give --rate"
    )]
    NoRate,
    /// The server answered, with no rate that is known here.
    #[error("the server answers `{said}`, which is no rate that this version knows; give --rate")]
    UnknownRate {
        /// The answer.
        said: String,
    },
    /// Someone asked to stop.
    #[error("stopped; run the same command again to go on where it was")]
    Stopped,
}

impl Error {
    /// Whether it passes when less is done at once, here or at the peer, which says so before anything else.
    pub fn is_want_of_room(&self) -> bool {
        match self {
            Self::File { source, .. } => is_want_of_room(source),
            Self::Session { failure, .. } => *failure == Failure::Peer(Code::CANNOT_SEND),
            Self::Promised { .. } => true,
            _ => false,
        }
    }

    /// Whether another process has a lease on the file, which it may give back.
    pub fn is_leased(&self) -> bool {
        matches!(self, Self::File { source, .. } if leased::is_leased(source))
    }

    /// That the system refused `action` on `path`.
    pub fn file(action: &'static str, path: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            action,
            path,
            source,
        }
    }

    /// That the system refused `action` on the socket.
    pub fn socket(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Socket { action, source }
    }

    /// That the session of `path` failed.
    pub fn session(path: &str, failure: Failure) -> Self {
        let next = match failure {
            Failure::Peer(Code::NOT_FOUND) => "look what is there with `bentpipe saratoga ls`",
            Failure::Peer(Code::DENIED) => {
                "the server decides with --allow and --key-file; a path must stay inside its directory, in 64 others at most, and one of a directory needs -r; where all that allows it, the system there refused it, and the server's log says how"
            }
            Failure::Peer(Code::IN_USE) => {
                "it changes there while it is sent, another session has it (try again when that is over), or what has just come is in its place there under another name"
            }
            Failure::Peer(Code::NOT_DELETED) => {
                "the server's log says why (a directory is not deleted, nor by `take` what lies on a network or FUSE file system there: `get` that); it stays there, and a copy that has come here is whole"
            }
            Failure::Peer(Code::CANNOT_RECEIVE | Code::TOO_LONG) => {
                "it is out of room or quota there, or of memory for so long a list, or allows less with --max-size; the log there says which"
            }
            Failure::Peer(Code::CANNOT_SEND) => {
                "the server has no room for a session more (--max-sessions), in memory beside lists that are on their way, or on its disk beside what is, or another process there (Samba, an NFS server) has a lease on the file and does not give it back; try again later"
            }
            Failure::Peer(Code::UNSPECIFIED) => {
                "the log of the peer says more, such as that what arrived has another checksum than announced: then the file changed while it was sent, though its size and time are what they were"
            }
            Failure::Peer(_) | Failure::Own(_) => "the log of the peer says more",
            Failure::Vain => {
                "the path drops packets of that length too, or a firewall what is no question; where longer fragments are dropped, `--packet` says from the start how long they may be"
            }
            Failure::Unechoed => {
                "nothing is deleted; a server that echoes no timestamps is to be sent none: `--no-timestamps`"
            }
            Failure::Silence => {
                "is `bentpipe saratoga serve` running there, and does UDP port 7542 pass? Run the same command again to go on where it was"
            }
        };
        Self::Session {
            path: path.to_owned(),
            failure,
            next,
        }
    }

    /// Whether the peer says that there is no such directory, or that it is none.
    pub fn is_no_directory(&self) -> bool {
        let answers = [Code::NOT_FOUND, Code::DENIED, Code::UNSPECIFIED];
        matches!(self, Self::Session { failure: Failure::Peer(code), .. } if answers.contains(code))
    }

    /// What the peer is told.
    pub fn code(&self) -> Code {
        match self {
            Self::File { source, .. } | Self::Socket { source, .. } => code(source),
            Self::Path { .. } | Self::LongPath { .. } | Self::Nested { .. } => Code::DENIED,
            Self::Session { failure, .. } => match failure {
                Failure::Peer(code) | Failure::Own(code) => *code,
                Failure::Silence | Failure::Vain | Failure::Unechoed => Code::TERMINATED,
            },
            Self::Unsealed { code, .. } => *code,
            // Who has asked begins anew.
            Self::Misnamed { .. } => Code::UNKNOWN_ID,
            Self::Checksum { .. }
            | Self::NoRate
            | Self::UnknownRate { .. }
            | Self::AnswerLost { .. }
            | Self::Unreachable { .. } => Code::UNSPECIFIED,
            // Somebody writes to it.
            Self::Changed { .. } => Code::IN_USE,
            Self::Kept { .. } | Self::Unconfirmed { .. } => Code::NOT_DELETED,
            Self::NoRoom { .. } | Self::ListTooLong { .. } => Code::CANNOT_RECEIVE,
            // Who asks again finds out whether there is.
            Self::Promised { .. } => Code::CANNOT_SEND,
            Self::TooLong { .. } => Code::TOO_LONG,
            Self::Stopped | Self::TooMany { .. } => Code::TERMINATED,
        }
    }
}

/// What to do about `error`, where that is known.
fn hint(error: &io::Error) -> &'static str {
    use rustix::io::Errno;
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => "; raise the limit on open files (`ulimit -n`), 64 will do",
        Some(Errno::NOSPC) => "; make room (`df -h`; inodes: `df -i`), then try again",
        Some(Errno::DQUOT) => {
            "; delete files of this user or project there, or raise its quota, then try again"
        }
        Some(Errno::NOLCK) => {
            "; its file system has no locks: mount it with some (of NFS `-o local_lock=flock`, or with rpc.statd)"
        }
        Some(Errno::FBIG) => {
            "; raise the limit on the length of files (`ulimit -f`), where it is not the file system's"
        }
        _ => "",
    }
}

/// What `error` of the file system means to the peer.
fn code(error: &io::Error) -> Code {
    use rustix::io::Errno;
    match error.kind() {
        io::ErrorKind::NotFound => Code::NOT_FOUND,
        io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory => Code::DENIED,
        // Somebody has it, or what has just come is there.
        io::ErrorKind::WouldBlock | io::ErrorKind::AlreadyExists => Code::IN_USE,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            Code::CANNOT_RECEIVE
        }
        _ => match error.raw_os_error().map(Errno::from_raw_os_error) {
            // A symbolic link, or a way out of the tree.
            Some(Errno::LOOP | Errno::XDEV | Errno::NOTDIR) => Code::DENIED,
            // A socket, or a device that is not there.
            Some(Errno::NXIO | Errno::NODEV) => Code::DENIED,
            // It may be asked again.
            _ if is_want_of_room(error) || leased::is_leased(error) => Code::CANNOT_SEND,
            _ => Code::UNSPECIFIED,
        },
    }
}

/// Whether `error` says that this side does or has open too much at once, which passes.
fn is_want_of_room(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    error.kind() == io::ErrorKind::OutOfMemory || matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}
