//! The packet plane of `bentpipe tcp`: the host with our TCP, its TUN interface, and the loop that drives them.

use super::cookies::CookieFile;
use super::stream::{Sink, Source, Stream};
use super::{Common, variant};
use crate::failure::{Blame, Failure};
use crate::stop::Stop;
use crate::terminal;
use anyhow::{Context, anyhow};
use bentpipe_base::{Instant, Machine, Prefix};
use bentpipe_cc::{LinkParams, Settings};
use bentpipe_driver::{Capture, Driver, DriverError};
use bentpipe_host::{Config, ConnectionId, Event, Host, ListenerId, Secret};
use bentpipe_os::need::Need;
use bentpipe_os::netlink::Netlink;
use bentpipe_os::tun::{Tun, TunConfig};
use bentpipe_sockets::epoll::Waker;
use bentpipe_tcp::{self as tcp, Cause, EcnMode};
use serde_json::json;
use std::fs::File;
use std::io::{BufWriter, Write, stdout};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Handshakes under way, connections opened early and connections that wait, at a listener.
const BACKLOG: usize = 128;
/// How long the end of a connection is waited for once all data has arrived.
const LINGER: Duration = Duration::from_secs(2);
/// Between two rows of a trace.
const TRACE: Duration = Duration::from_millis(10);
/// Progress is shown only of transfers that take longer than this.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two lines of progress.
const PAUSE: Duration = Duration::from_secs(5);

/// Our TCP on an interface of its own.
pub(super) struct Plane<'a> {
    driver: Driver<Host>,
    common: &'a Common,
    tcp: Arc<tcp::Config>,
    local: IpAddr,
    listener: Option<ListenerId>,
    /// Whose Fast Open cookie is kept, and where.
    cookies: Option<(IpAddr, CookieFile)>,
    waker: Arc<Waker>,
    stop: Stop,
    trace: Option<BufWriter<File>>,
    began: Instant,
    traced: Instant,
    said: Instant,
    sums: Sums,
}

/// The totals of all streams that are over.
#[derive(Default)]
struct Sums {
    sent: u64,
    acknowledged: u64,
    received: u64,
    retransmitted: u64,
    timeouts: u64,
    marks: u64,
    mark_reductions: u64,
    connections: u64,
    scps: Scps,
}

/// What of them was SCPS-TP.
#[derive(Default)]
struct Scps {
    connections: u64,
    snacks: u64,
    snacks_sent: u64,
    outages: u64,
}

/// What `serve` does for each client: the file to send, or the file to write.
pub(super) type Service = (Option<PathBuf>, Option<Sink>);

impl<'a> Plane<'a> {
    pub(super) fn new(common: &'a Common) -> Result<Self, Failure> {
        let (control, recovery) = variant(common).or_usage()?;
        let kernel = kernel_address(common).or_usage()?;
        Need::check_all(&[Need::NetAdmin, Need::Tun]).or_usage()?;
        let stop = Stop::on_signals().or_usage()?;
        let local = common.address.address();
        let config = TunConfig {
            mtu: common.mtu,
            offloads: !common.no_offloads,
            ..TunConfig::default()
        };
        let tun = Tun::open(&common.tun, config).or_usage()?;
        let netlink = Netlink::open().or_usage()?;
        netlink.add_address(tun.name(), kernel).or_usage()?;
        let mut key = [0; 16];
        getrandom::fill(&mut key)
            .map_err(|e| anyhow!("the kernel gives no random numbers: {e}"))
            .or_run()?;
        let mut host = Host::new(
            Config {
                mtu: u16::try_from(common.mtu.0).unwrap_or(u16::MAX),
                ..Config::default()
            },
            Secret::new(key),
        );
        host.add_address(local);
        let mut driver = Driver::new(host, tun).map_err(failed)?;
        let waker = Arc::new(Waker::new().or_run()?);
        driver.watch(&*waker).map_err(failed)?;
        let now = driver.now();
        if let Some(path) = &common.pcap {
            let capture = Capture::create(path, &common.tun, now);
            driver.capture(capture.with_context(|| cannot_write(path)).or_usage()?);
        }
        let preset = if common.scps {
            tcp::Config::scps()
        } else {
            tcp::Config {
                dsack: true,
                frto: true,
                eifel: true,
                // Timeouts are as in Linux, because the peers are real hosts and not those of a paper.
                min_rto: Duration::from_millis(200),
                rto_variance: Duration::from_millis(200),
                ..tcp::Config::rfc()
            }
        };
        let tcp = Arc::new(tcp::Config {
            congestion: control,
            settings: Settings {
                link: LinkParams {
                    rate: common.rate,
                    ..preset.settings.link.clone()
                },
                ..preset.settings.clone()
            },
            recovery,
            ecn: if common.ecn {
                EcnMode::Ask
            } else {
                EcnMode::Accept
            },
            fast_open: common.fast_open,
            mss: u16::MAX,
            receive_buffer: common.buffer,
            send_buffer: common.buffer,
            ..preset
        });
        Ok(Self {
            trace: common
                .trace
                .as_deref()
                .map(begin_trace)
                .transpose()
                .or_usage()?,
            driver,
            common,
            tcp,
            local,
            listener: None,
            cookies: None,
            waker,
            stop,
            began: now,
            traced: now,
            said: now,
            sums: Sums::default(),
        })
    }

    /// `cookies`: the file with Fast Open cookies.
    pub(super) fn connect(
        &mut self,
        to: SocketAddr,
        cookies: Option<&Path>,
    ) -> Result<ConnectionId, Failure> {
        let from = SocketAddr::new(self.local, 0);
        let now = self.driver.now();
        let host = self.driver.machine_mut();
        if let Some(path) = cookies {
            let file = CookieFile::open(path).or_usage()?;
            let ends = (self.local, to.ip());
            if let Some(known) = file.cookies.get(&ends) {
                host.add_server_cookie(ends, *known, now);
            }
            self.cookies = Some((to.ip(), file));
        }
        host.connect(from, to, &self.tcp, now).or_usage()
    }

    pub(super) fn listen(&mut self, port: u16) -> Result<(), Failure> {
        let at = SocketAddr::new(self.local, port);
        let host = self.driver.machine_mut();
        let listener = host.listen(at, &self.tcp, BACKLOG).or_usage()?;
        if self.common.fast_open {
            host.set_fast_open(listener, BACKLOG);
        }
        self.listener = Some(listener);
        terminal::say(&format!(
            "our TCP listens at {at}, over `{}`",
            self.common.tun
        ));
        Ok(())
    }

    /// Runs `streams`, and serves clients, until all is done. With `once` a listener ends after its first client.
    pub(super) fn run(
        mut self,
        mut streams: Vec<Stream>,
        mut service: Option<Service>,
        once: bool,
    ) -> Result<(), Failure> {
        for stream in &mut streams {
            stream.start(&self.waker);
            if self.common.fast_open {
                stream.await_chunk();
            }
        }
        let mut failed_why = None;
        loop {
            if self.stop.asked() {
                self.abort(&streams)?;
                return Err(Failure::Interrupted);
            }
            self.accept(&mut streams, &mut service)?;
            self.events(&streams, &mut failed_why);
            let now = self.driver.now();
            let (driver, sums) = (&mut self.driver, &mut self.sums);
            let mut served = false;
            streams.retain_mut(|stream| {
                let host = driver.machine_mut();
                let over = stream.step(host, now);
                if over {
                    host.release(stream.id, now);
                    stream.join();
                    sums.add(stream);
                    served = true;
                }
                if let Some(error) = stream.trouble() {
                    failed_why.get_or_insert(anyhow!("cannot read or write the file: {error}"));
                }
                !over
            });
            if let Some(why) = failed_why.take() {
                // The failure of one stream does not end a server.
                if service.is_none() || once {
                    self.abort(&streams)?;
                    return Err(Failure::Run(why));
                }
                terminal::say(&format!("warning: {why}"));
            }
            if streams.is_empty() && (service.is_none() || once && served) {
                break;
            }
            self.tell(&streams)?;
            let most = if self.trace.is_some() {
                TRACE
            } else {
                Duration::from_millis(250)
            };
            self.turn(most)?;
        }
        self.finish()
    }

    fn turn(&mut self, most: Duration) -> Result<(), Failure> {
        self.driver.turn(Some(most)).map_err(failed)?;
        self.waker.drain();
        Ok(())
    }

    /// Accepts clients.
    fn accept(
        &mut self,
        streams: &mut Vec<Stream>,
        service: &mut Option<Service>,
    ) -> Result<(), Failure> {
        let (Some(listener), Some((file, sink))) = (self.listener, service) else {
            return Ok(());
        };
        while let Some((id, tuple)) = self.driver.machine_mut().accept(listener) {
            if streams.is_empty() && self.sums.connections == 0 {
                // The time before the first connection is not measured.
                self.began = self.driver.now();
            }
            let source = file.as_deref().map(Source::open).transpose().or_run()?;
            let mut stream = Stream::new(id, tuple.remote, source, sink.take());
            stream.start(&self.waker);
            streams.push(stream);
        }
        Ok(())
    }

    /// Reads the connections' events, and notes why one has failed.
    fn events(&mut self, streams: &[Stream], why: &mut Option<anyhow::Error>) {
        while let Some(event) = self.driver.machine_mut().event() {
            let Event::Connection(id, tcp::Event::Aborted(cause)) = event else {
                continue;
            };
            if let Some(stream) = streams.iter().find(|stream| stream.id == id) {
                let peer = stream.peer;
                why.get_or_insert(match cause {
                    Cause::Refused => {
                        anyhow!("{peer} refused the connection: does anybody listen there?")
                    }
                    Cause::Unreachable => {
                        anyhow!("no way leads to {peer}: routes, ip_forward and translation decide")
                    }
                    Cause::TimedOut => anyhow!("{peer} does not answer any more"),
                    Cause::Reset => anyhow!("{peer} reset the connection"),
                    Cause::Local => anyhow!("the connection to {peer} was given up"),
                });
            }
        }
    }

    /// Resets what is under way.
    fn abort(&mut self, streams: &[Stream]) -> Result<(), Failure> {
        let now = self.driver.now();
        for stream in streams {
            if let Some(connection) = self.driver.machine_mut().connection_mut(stream.id) {
                connection.abort(now);
            }
        }
        self.turn(Duration::ZERO)
    }

    /// Writes a row of the trace and a line of progress when they are due.
    fn tell(&mut self, streams: &[Stream]) -> Result<(), Failure> {
        let now = self.driver.now();
        let Some(stream) = streams.first() else {
            return Ok(());
        };
        if let Some(trace) = &mut self.trace
            && now.since(self.traced) >= TRACE
        {
            self.traced = now;
            let row = row(now.since(self.began), stream);
            let written = writeln!(trace, "{row}");
            written.context("cannot write the trace").or_run()?;
        }
        if now.since(self.began) > PATIENCE && now.since(self.said) > PAUSE {
            self.said = now;
            let gone = now.since(self.began).as_secs_f64();
            let moved = (stream.counters.bytes_acked + stream.received) as f64;
            let (mb, mbps) = (moved / 1e6, moved * 8.0 / gone / 1e6);
            terminal::say(&format!("[{mb:.1} MB in {gone:.0} s, {mbps:.2} Mbit/s]"));
        }
        Ok(())
    }

    /// Lets the last acknowledgements go, and says what was measured.
    fn finish(mut self) -> Result<(), Failure> {
        let ended = self.driver.now();
        while self.driver.machine().connections().0 > 0 && self.driver.now().since(ended) < LINGER {
            self.turn(Duration::from_millis(50))?;
        }
        if let Some(mut trace) = self.trace.take() {
            trace.flush().context("cannot write the trace").or_run()?;
        }
        if let Some((server, mut file)) = self.cookies.take() {
            let ends = (self.local, server);
            let known = self.driver.machine().server_cookie(ends.0, ends.1);
            file.save(ends, known).or_run()?;
        }
        let elapsed = ended.since(self.began).as_secs_f64();
        let sums = self.sums;
        let (packets, host) = (*self.driver.counters(), *self.driver.machine().counters());
        self.driver.finish().map_err(failed)?;
        let moved = sums.acknowledged + sums.received;
        let mbps = moved as f64 * 8.0 / elapsed.max(1e-9) / 1e6;
        let mut said = format!(
            "{moved} bytes in {elapsed:.3} s: {mbps:.3} Mbit/s; {} segments sent again, {} timeouts",
            sums.retransmitted, sums.timeouts
        );
        let scps = &sums.scps;
        if self.common.scps {
            let spoken = format!(
                "; SCPS-TP on {} of {} connections, {} SNACKs heard, {} sent, {} outages",
                scps.connections, sums.connections, scps.snacks, scps.snacks_sent, scps.outages
            );
            said.push_str(&spoken);
        }
        let Some(path) = &self.common.json else {
            terminal::say(&said);
            return Ok(());
        };
        let figures = json!({
            "connections": sums.connections,
            "sent_bytes": sums.sent,
            "acknowledged_bytes": sums.acknowledged,
            "received_bytes": sums.received,
            "elapsed_s": elapsed,
            "moved_mbps": mbps,
            "segments_again": sums.retransmitted,
            "timeouts": sums.timeouts,
            "marks": sums.marks,
            "mark_reductions": sums.mark_reductions,
            "scps": {
                "connections": scps.connections,
                "snacks": scps.snacks,
                "snacks_sent": scps.snacks_sent,
                "outages": scps.outages,
            },
            "fast_open": {
                "answered": host.fast_opens_answered,
                "failed": host.fast_opens_failed,
                "opened_early": host.fast_opens,
                "cookies_sent": host.fast_open_cookies_sent,
            },
            "packets": {
                "received": packets.received,
                "unreadable": packets.unreadable,
                "sent": packets.sent,
                "segments": packets.segments,
                "refused": packets.refused,
                "deadlines": packets.deadlines,
                "latest_ms": packets.latest.as_secs_f64() * 1e3,
                "resets_sent": host.resets_sent,
                "cookies_sent": host.cookies_sent,
            },
        });
        write_json(path, &figures)
    }
}

impl Sums {
    fn add(&mut self, stream: &Stream) {
        let counters = &stream.counters;
        self.sent += counters.bytes_sent;
        self.acknowledged += counters.bytes_acked;
        self.received += stream.received;
        self.retransmitted += counters.retransmitted;
        self.timeouts += counters.timeouts;
        self.marks += counters.marks;
        self.mark_reductions += counters.mark_reductions;
        self.connections += 1;
        self.scps.connections += u64::from(stream.scps);
        self.scps.snacks += counters.snacks;
        self.scps.snacks_sent += counters.snacks_sent;
        self.scps.outages += counters.outages;
    }
}

/// The kernel's address on the interface, with the length of its network.
fn kernel_address(common: &Common) -> anyhow::Result<Prefix> {
    let (ours, bits) = (common.address.address(), common.address.bits());
    let address = common.kernel.unwrap_or(common.address.first_host());
    if address.is_ipv4() != ours.is_ipv4() {
        return Err(anyhow!(
            "--kernel {address} and --address {ours} are of different families"
        ));
    }
    if address == ours {
        return Err(anyhow!(
            "{ours} would be the kernel's address and ours: give --kernel another, or --address a wider network"
        ));
    }
    Prefix::new(address, bits).with_context(|| format!("{address}/{bits} is no network"))
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write `{}`", path.display())
}

fn begin_trace(path: &Path) -> anyhow::Result<BufWriter<File>> {
    let mut file = BufWriter::new(File::create(path).with_context(|| cannot_write(path))?);
    writeln!(
        file,
        "time_s,cwnd_segments,ssthresh_segments,srtt_ms,flight_bytes,peer_window_bytes,acknowledged_bytes,segments_again"
    )?;
    Ok(file)
}

fn row(time: Duration, stream: &Stream) -> String {
    let (gauges, counters) = (&stream.gauges, &stream.counters);
    let ssthresh = gauges
        .ssthresh
        .map_or(String::new(), |value| value.to_string());
    let srtt = gauges.srtt.map_or(String::new(), |srtt| {
        format!("{:.3}", srtt.as_secs_f64() * 1e3)
    });
    format!(
        "{:.6},{},{ssthresh},{srtt},{},{},{},{}",
        time.as_secs_f64(),
        gauges.cwnd,
        gauges.flight,
        gauges.peer_window,
        counters.bytes_acked,
        counters.retransmitted
    )
}

fn write_json(path: &Path, figures: &serde_json::Value) -> Result<(), Failure> {
    let text = format!("{figures:#}\n");
    let written = if path.as_os_str() == "-" {
        stdout().write_all(text.as_bytes())
    } else {
        std::fs::write(path, text)
    };
    written.with_context(|| cannot_write(path)).or_run()
}

fn failed(error: DriverError) -> Failure {
    Failure::Run(error.into())
}
