//! Flows that find no tunnel, as the near gateway has them: while the far end is not reached, or has as many tunnels as it allows, they pass
//! end to end, as TCP of their two hosts over the link, or are refused where the leg wants that. The first for which there is no room was
//! answered before that was known, and waits.

use crate::drive::{Carried, Drive};
use crate::transfer::End;
use bentpipe_base::Bytes;
use bentpipe_sim::EndToEnd;
use bentpipe_tunnel::OpenError;
use core::time::Duration;

/// How long one waits for room at most.
const WAIT: Duration = Duration::from_secs(5);

impl Drive<'_> {
    /// A client's SYN has come.
    pub(crate) fn open(&mut self, index: usize) {
        match self.connection.filter(|_| self.ready && !self.full) {
            Some(_) => self.ask(index),
            None => self.go_without(index),
        }
    }

    /// Asks for a tunnel.
    fn ask(&mut self, index: usize) {
        let target = self.target(index);
        let opened = match self.connection {
            Some(connection) => self.sides[0].open(connection, &target, None),
            None => Err(OpenError::NotReady),
        };
        match opened {
            Ok(tunnel) => {
                self.opened[0] += 1;
                let transfer = &mut self.transfers[index];
                (transfer.tunnels[0], transfer.waits) = (Some(tunnel), None);
                self.flows[0].insert(tunnel, index);
            }
            Err(OpenError::Limited) => {
                self.full = true;
                let until = self.now + WAIT;
                self.transfers[index].waits.get_or_insert(until);
            }
            Err(OpenError::NotReady | OpenError::GoingAway) => return self.go_without(index),
        }
        if self.setup.early {
            self.connected(index);
        }
    }

    /// The far end allows more tunnels.
    pub(crate) fn has_room(&mut self) {
        self.full = false;
        let transfers = 0..self.transfers.len();
        for index in transfers {
            let transfer = &self.transfers[index];
            if !self.full && transfer.waits.is_some() && transfer.over.is_none() {
                self.ask(index);
            }
        }
    }

    /// It has waited for too long, or for a connection that is gone.
    pub(crate) fn give_up_waiting(&mut self, index: usize) {
        self.transfers[index].waits = None;
        if self.setup.early {
            let why = "the near gateway reset it: the far end took no tunnel for it".to_owned();
            self.transfers[index].end(self.now, Some(why));
        } else {
            self.go_without(index);
        }
    }

    fn go_without(&mut self, index: usize) {
        let transfer = &mut self.transfers[index];
        if self.setup.refuses {
            let why = "the near gateway refused it: there was no tunnel".to_owned();
            return transfer.end(self.now, Some(why));
        }
        let scenario = self.setup.scenario;
        match EndToEnd::open(scenario, &scenario.flows[index], self.setup.seed, self.now) {
            Ok(passing) => {
                transfer.control = passing.control();
                transfer.passing = Some(Box::new(passing));
            }
            Err(error) => transfer.end(self.now, Some(error.to_string())),
        }
    }

    /// Notes what became of the flows that pass, and puts their packets on the link.
    pub(crate) fn drain_passing(&mut self) {
        let now = self.now;
        for (index, transfer) in self.transfers.iter_mut().enumerate() {
            let Some(passing) = &mut transfer.passing else {
                continue;
            };
            if passing.deadline().is_some_and(|due| due <= now) {
                passing.timeout(now);
            }
            for end in [End::Near, End::Far] {
                while let Some(packet) = passing.transmit(end == End::Near, now) {
                    let length = Bytes(packet.len.into());
                    self.trace.note(now, end, length);
                    // What the queue has no room for is gone.
                    let _ = self.ways[end as usize].push(Carried::Tcp(index, packet), length, now);
                }
            }
            transfer.connected = passing.connected();
            (transfer.received, transfer.last) = passing.received();
            let over = passing.over(now);
            if let Some(over) = over {
                transfer.end(now, over.err().map(str::to_owned));
            }
            if transfer.over.is_some() {
                transfer.passing = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

    use crate::drive::Drive;
    use crate::setup::Setup;
    use bentpipe_base::Bytes;
    use bentpipe_outcome::{End, Run};
    use bentpipe_scenario::Scenario;
    use bentpipe_sim::Options;

    /// The example's fetches, all at once, with `said` in the near end's leg, where the far end allows so many tunnels.
    fn fetches(said: &str, tunnels: u32) -> Run {
        let text = include_str!("../../../scenarios/quic-pair.toml");
        let text = text.split("[[sweep]]").next().unwrap_or_default();
        let text = text.replace("proxy = \"far\"", &format!("proxy = \"far\"\n{said}"));
        let text = text.replace("start = \"3s\"", "start = \"10ms\"");
        let text = text.replace("start = \"6s\"", "start = \"20ms\"");
        let scenario = Scenario::parse("quic-pair.toml", &text).unwrap();
        let mut setup = Setup::new(&scenario, &Options::default()).unwrap().unwrap();
        setup.configs[1].limits.streams = tunnels;
        Drive::new(setup).unwrap().run().unwrap().0
    }

    fn took(run: &Run, flow: usize) -> f64 {
        let took = run.flows[flow].completion;
        took.map_or(f64::NAN, |took| took.as_secs_f64())
    }

    /// The second is answered when nobody knows that there is no room, and waits for the first to end; the third passes end to end: two
    /// round trips until its first byte comes, and a few for TCP's window to grow.
    #[test]
    fn beyond_the_far_ends_tunnels_one_waits_and_others_pass() {
        let run = fetches("", 1);
        for flow in &run.flows {
            assert_eq!(flow.end, End::Finished, "{flow:?}");
        }
        let controls: Vec<_> = run.flows.iter().map(|flow| flow.control.as_str()).collect();
        assert_eq!(controls, ["quic", "quic", "cubic", "quic"]);
        assert_eq!(run.flows[2].received, Bytes(100_000));
        assert!((0.68..0.72).contains(&took(&run, 0)), "{}", took(&run, 0));
        assert!((1.3..3.0).contains(&took(&run, 1)), "{}", took(&run, 1));
        assert!((2.4..4.0).contains(&took(&run, 2)), "{}", took(&run, 2));
        let connected = run.flows[2].connect.unwrap().as_secs_f64();
        assert!((0.6..0.62).contains(&connected), "{connected}");
    }

    #[test]
    fn they_are_refused_where_that_is_wanted() {
        let run = fetches("when_down = \"refuse\"", 1);
        let End::Failed(why) = &run.flows[2].end else {
            panic!("{:?}", run.flows[2])
        };
        assert!(why.contains("refused"), "{why}");
        assert_eq!(run.flows[1].end, End::Finished);
    }

    /// Held, the second passes too, when it has waited for as long as the gateway waits.
    #[test]
    fn a_held_syn_passes_after_a_while() {
        let run = fetches("handshake = \"end-to-end\"", 0);
        for flow in &run.flows {
            assert_eq!(
                (&flow.end, flow.control.as_str()),
                (&End::Finished, "cubic")
            );
        }
        let connected = run.flows[0].connect.unwrap().as_secs_f64();
        assert!((5.6..5.62).contains(&connected), "{connected}");
        assert!(run.flows[1].connect.unwrap().as_secs_f64() < 0.62);
    }
}
