//! The file that keeps Fast Open cookies of servers from one run to the next: on each line our address, the server's, its
//! MSS option and the cookie in hexadecimal digits.

use anyhow::{Context, anyhow};
use bentpipe_host::ServerCookie;
use bentpipe_wire::FastOpenCookie;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

pub(super) struct CookieFile {
    path: PathBuf,
    /// By both ends.
    pub(super) cookies: BTreeMap<(IpAddr, IpAddr), ServerCookie>,
}

impl CookieFile {
    /// A file that is not there yet holds nothing.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.with_context(|| format!("cannot read the cookies in `{name}`"))?,
        };
        let lines = text.lines().zip(1..).map(|(line, number)| {
            parse(line).ok_or_else(|| {
                anyhow!("`{name}`, line {number}: no cookie; remove the line, or the file")
            })
        });
        Ok(Self {
            path: path.to_owned(),
            cookies: lines.collect::<Result<_, _>>()?,
        })
    }

    /// Keeps what is known of a server now.
    pub(super) fn save(
        &mut self,
        ends: (IpAddr, IpAddr),
        known: Option<ServerCookie>,
    ) -> anyhow::Result<()> {
        match known {
            Some(known) => self.cookies.insert(ends, known),
            None => self.cookies.remove(&ends),
        };
        let mut text = String::new();
        for ((local, remote), known) in &self.cookies {
            let _ = write!(text, "{local} {remote} {} ", known.mss);
            for byte in known.cookie.as_slice() {
                let _ = write!(text, "{byte:02x}");
            }
            text.push('\n');
        }
        fs::write(&self.path, text)
            .with_context(|| format!("cannot write the cookies to `{}`", self.path.display()))
    }
}

fn parse(line: &str) -> Option<((IpAddr, IpAddr), ServerCookie)> {
    let mut words = line.split(' ');
    let mut next = || words.next();
    let ends = (next()?.parse().ok()?, next()?.parse().ok()?);
    let mss = next()?.parse().ok()?;
    let digits = next()?.as_bytes();
    let pairs = digits.chunks(2).map(|pair| {
        let pair = str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    let cookie = FastOpenCookie::new(&pairs.collect::<Option<Vec<_>>>()?)?;
    next()
        .is_none()
        .then_some((ends, ServerCookie { cookie, mss }))
}
