//! The scenario of one figure, as the text that a user would write.
//!
//! ```text
//! server -- ground -- hub -- space -- box -- home -- terminal
//!            delay            rate, delay, losses
//! ```
//!
//! The gateway stands where the data come to the satellite: at the hub, or where users send, in the box beside them.
//! A place without a gateway is left out (the box) or only forwards (the hub).

use crate::alternative::{Alternative, Measure};
use crate::question::{Activity, Losses, Question};
use bentpipe_base::Rate;
use core::fmt::{self, Write};
use core::time::Duration;

/// What Linux does that the simulator's preset leaves out (docs/compare.md), of a sender and of a receiver. As to Nagle: Linux
/// has the tail of a write wait for other small segments alone, and servers of pages turn that off too.
const LINUX_SENDER: &str = "recovery = \"rack-tlp\"\nnagle = false\ndsack = true\nfrto = true\neifel = true\nmin_rto = \"200ms\"\nrto_variance = \"200ms\"\n";
const LINUX_RECEIVER: &str = "delayed_ack = \"40ms\"\n";

/// The scenario that `measure` of `alternative` is taken from, with this seed.
pub fn scenario(
    question: &Question,
    alternative: Alternative,
    measure: Measure,
    seed: u64,
) -> String {
    let scene = Scene {
        question,
        alternative,
        measure,
        seed,
    };
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = scene.write(&mut text);
    text
}

struct Scene<'q> {
    question: &'q Question,
    alternative: Alternative,
    measure: Measure,
    seed: u64,
}

impl Scene<'_> {
    fn uploads(&self) -> bool {
        self.question.activity == Activity::Upload
    }

    /// Whether there is a node between the satellite link and the terminal.
    fn has_box(&self) -> bool {
        self.alternative == Alternative::Scps || (self.uploads() && self.alternative.is_pep())
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        let question = self.question;
        let label = self.measure.label(question);
        writeln!(
            out,
            "# {label}, {}. {}.",
            self.alternative.label(),
            self.runs_with()
        )?;
        writeln!(out, "name = \"advisor\"\nseed = {}", self.seed)?;
        writeln!(out, "time_limit = \"{}\"", self.time_limit())?;
        self.hosts(out)?;
        self.nodes(out)?;
        self.links(out)?;
        self.flows(out)
    }

    /// The lab has no requests and answers.
    fn runs_with(&self) -> &'static str {
        match self.measure {
            Measure::Page => "Run it by `bentpipe sim run FILE`",
            _ => "Run it by `bentpipe sim run FILE`, on real TCP by `sudo bentpipe lab run FILE`",
        }
    }

    /// Of a lossy link and a control that cannot stand losses the long transfer takes hours of simulated time.
    fn time_limit(&self) -> &'static str {
        match self.measure {
            Measure::Long => "24h",
            _ => "1h",
        }
    }

    fn hosts(&self, out: &mut String) -> fmt::Result {
        let control = match self.alternative {
            Alternative::Bbr => "bbr1",
            _ => "cubic",
        };
        for host in ["server", "terminal"] {
            writeln!(out, "\n[hosts.{host}]")?;
            writeln!(out, "congestion_control = \"{control}\"")?;
            // The simulator's senders have all the room they want; so shall the kernel's.
            writeln!(out, "send_buffer = [\"4096B\", \"16384B\", \"67108864B\"]")?;
            write!(out, "[hosts.{host}.tcp]\n{LINUX_SENDER}{LINUX_RECEIVER}")?;
        }
        Ok(())
    }

    /// The hub and the box.
    fn nodes(&self, out: &mut String) -> fmt::Result {
        let (hub, home) = match (self.alternative, self.uploads()) {
            (Alternative::Scps, _) => (true, true),
            (other, uploads) => (other.is_pep() && !uploads, other.is_pep() && uploads),
        };
        if hub {
            self.gateway(out, "hub", "ground", self.question.down)?;
        } else {
            writeln!(out, "\n[routers.hub]")?;
        }
        if home {
            self.gateway(out, "box", "home", self.question.up)?;
        }
        Ok(())
    }

    fn gateway(&self, out: &mut String, name: &str, lan: &str, rate: Rate) -> fmt::Result {
        writeln!(out, "\n[gateways.{name}]\nsat = \"space\"\nlan = \"{lan}\"")?;
        write!(out, "[gateways.{name}.tcp]\n{LINUX_SENDER}{LINUX_RECEIVER}")?;
        let split = format!("gateways.{name}.split");
        writeln!(out, "{}", satellite_leg(self.alternative, rate, &split))
    }

    fn links(&self, out: &mut String) -> fmt::Result {
        let question = self.question;
        let far = if self.has_box() { "box" } else { "terminal" };
        writeln!(out, "\n[links.space]\nends = [\"hub\", \"{far}\"]")?;
        writeln!(out, "rate = \"{}\"", question.down)?;
        writeln!(out, "delay = \"{}\"", time(question.round_trip / 2))?;
        let queue = question.queue(question.down);
        writeln!(
            out,
            "queue = {{ bytes = \"{queue}\" }}   # what the link carries in a round trip"
        )?;
        if question.loss.value() > 0.0 {
            self.losses(out)?;
        }
        let queue = question.queue(question.up);
        writeln!(out, "[links.space.reverse]\nrate = \"{}\"", question.up)?;
        writeln!(out, "queue = {{ bytes = \"{queue}\" }}")?;
        writeln!(out, "\n[links.ground]\nends = [\"server\", \"hub\"]")?;
        if !question.server.is_zero() {
            writeln!(out, "delay = \"{}\"", time(question.server / 2))?;
        }
        if self.has_box() {
            writeln!(out, "\n[links.home]\nends = [\"box\", \"terminal\"]")?;
        }
        Ok(())
    }

    fn losses(&self, out: &mut String) -> fmt::Result {
        let loss = self.question.loss.value();
        match self.question.losses {
            Losses::Random => writeln!(out, "packet_error_rate = {loss}"),
            Losses::Bursts => writeln!(
                out,
                "gilbert = {{ mean_burst = {}, error_rate = {loss} }}",
                Losses::BURST
            ),
            Losses::Handovers => {
                let every = Losses::HANDOVER;
                let length = time(every.mul_f64(loss).max(Duration::from_micros(1)));
                // Not at the very start, and soon enough that all but the shortest transfers meet one.
                let start = time(every / 5);
                let every = time(every);
                writeln!(
                    out,
                    "outage = [{{ start = \"{start}\", length = \"{length}\", every = \"{every}\" }}]"
                )
            }
        }
    }

    fn flows(&self, out: &mut String) -> fmt::Result {
        let (from, to) = if self.uploads() {
            ("terminal", "server")
        } else {
            ("server", "terminal")
        };
        let connections = self.question.users * self.measure.connections();
        writeln!(out, "\n[[flows]]\nname = \"{}\"", flow_name(self.measure))?;
        if connections > 1 {
            writeln!(out, "count = {connections}")?;
        }
        writeln!(
            out,
            "from = \"{from}\"\nto = \"{to}\"\nopened_by = \"terminal\""
        )?;
        writeln!(out, "bytes = \"{}\"", self.measure.bytes(self.question))?;
        if self.measure == Measure::Page {
            writeln!(
                out,
                "kind = \"request-response\"   # one object after another"
            )?;
            writeln!(
                out,
                "request = \"600B\"\nresponse = \"{}\"",
                Measure::OBJECT
            )?;
        }
        Ok(())
    }
}

fn flow_name(measure: Measure) -> &'static str {
    match measure {
        Measure::Page => "page",
        _ => "transfer",
    }
}

/// The gateway's own keys for `alternative` on a link that carries `rate` from it, with `table` before their names where
/// they stand in a scenario.
pub(crate) fn satellite_leg(alternative: Alternative, rate: Rate, table: &str) -> String {
    let within = |key: &str| match table {
        "" => key.to_owned(),
        table => format!("{table}.{key}"),
    };
    let leg = |lines: &str| format!("[{}]\n{lines}rate = \"{rate}\"", within("sat"));
    match alternative {
        Alternative::Cubic | Alternative::Bbr => String::new(),
        Alternative::SplitCubic => leg("congestion_control = \"cubic\"\n"),
        Alternative::SplitHybla => leg("congestion_control = \"bentpipe_hybla\"\n"),
        Alternative::SplitRate => leg("congestion_control = \"bentpipe_rate\"\n"),
        Alternative::Scps => leg("carrier = \"scps\"\n"),
        Alternative::Snoop => {
            let policy = "{ name = \"all\", action = \"snoop\" }";
            match table {
                "" => format!(
                    "{}\n\n[[policy]]\nname = \"all\"\naction = \"snoop\"",
                    leg("")
                ),
                table => format!("[{table}]\npolicy = [{policy}]\n{}", leg("")),
            }
        }
    }
}

/// Microseconds, in milliseconds where these are whole.
fn time(time: Duration) -> String {
    let micros = time.as_micros();
    if micros.is_multiple_of(1_000) {
        format!("{}ms", micros / 1_000)
    } else {
        format!("{micros}us")
    }
}
