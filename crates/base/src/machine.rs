use crate::Instant;

/// The one contract of every protocol machine: packets and the time go in, packets, events and a
/// deadline come out. A machine knows no socket, no clock, no thread.
///
/// A driver calls [`turn`](Self::turn) when a packet arrives, and at the time that the last turn returned. It sends the
/// packets of the [`Output`] and handles its events. No driver has to loop over [`transmit`](Self::transmit) itself: a
/// machine that is made of others passes on what theirs returns, one packet at a time. `now` never goes backwards.
pub trait Machine {
    /// What travels through the machine.
    type Packet;
    /// Where packets enter and leave it.
    type Port: Copy;
    /// What it tells its driver besides packets.
    type Event;

    /// A packet arrived at `port`.
    fn input(&mut self, port: Self::Port, packet: Self::Packet, now: Instant);

    /// The time is `now`: act on every deadline up to it.
    fn timeout(&mut self, now: Instant);

    /// The next packet to send and the port it leaves by, if one is due.
    fn transmit(&mut self, now: Instant) -> Option<(Self::Port, Self::Packet)>;

    /// The next event, if there is one.
    fn event(&mut self) -> Option<Self::Event>;

    /// When to call `timeout` next, if ever.
    fn deadline(&self) -> Option<Instant>;

    /// One turn of the run loop, whole: what is due by `now` is done, then what `arrived` is taken in, then everything that
    /// leaves and every event goes to `out`. Returns when the next turn is due if nothing arrives before.
    #[inline]
    fn turn(
        &mut self,
        arrived: Option<(Self::Port, Self::Packet)>,
        now: Instant,
        out: impl FnMut(Output<Self::Port, Self::Packet, Self::Event>),
    ) -> Option<Instant>
    where
        Self: Sized,
    {
        if self.deadline().is_some_and(|due| due <= now) {
            self.timeout(now);
        }
        if let Some((port, packet)) = arrived {
            self.input(port, packet, now);
        }
        self.drain(now, out)
    }

    /// The end of every turn: everything that leaves and every event goes to `out`. Returns when the next turn is due if
    /// nothing arrives before. Who has done something to a machine besides a turn, as its user may, calls it after that.
    #[inline]
    fn drain(
        &mut self,
        now: Instant,
        mut out: impl FnMut(Output<Self::Port, Self::Packet, Self::Event>),
    ) -> Option<Instant>
    where
        Self: Sized,
    {
        let mut sends = true;
        // One call of `out`, so that it is inlined.
        loop {
            let packet = if sends { self.transmit(now) } else { None };
            out(match packet {
                Some((port, packet)) => Output::Packet(port, packet),
                None => {
                    sends = false;
                    match self.event() {
                        Some(event) => Output::Event(event),
                        None => return self.deadline(),
                    }
                }
            });
        }
    }
}

/// A machine behind a pointer, as one whose kind is chosen at run time.
impl<M: Machine + ?Sized> Machine for Box<M> {
    type Packet = M::Packet;
    type Port = M::Port;
    type Event = M::Event;

    #[inline]
    fn input(&mut self, port: M::Port, packet: M::Packet, now: Instant) {
        (**self).input(port, packet, now);
    }

    #[inline]
    fn timeout(&mut self, now: Instant) {
        (**self).timeout(now);
    }

    #[inline]
    fn transmit(&mut self, now: Instant) -> Option<(M::Port, M::Packet)> {
        (**self).transmit(now)
    }

    #[inline]
    fn event(&mut self) -> Option<M::Event> {
        (**self).event()
    }

    #[inline]
    fn deadline(&self) -> Option<Instant> {
        (**self).deadline()
    }
}

/// What comes out of a machine in one [turn](Machine::turn): first the packets, then the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output<Port, Packet, Event> {
    /// A packet, and the port that it leaves by.
    Packet(Port, Packet),
    /// What the driver is told.
    Event(Event),
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    /// Holds each packet for a second, and tells when it has none left.
    #[derive(Default)]
    struct Delay {
        held: Vec<(Instant, u8)>,
        out: Vec<u8>,
        empty: bool,
    }

    impl Machine for Delay {
        type Packet = u8;
        type Port = ();
        type Event = &'static str;

        fn input(&mut self, (): (), packet: u8, now: Instant) {
            self.held.push((now + Duration::from_secs(1), packet));
        }

        fn timeout(&mut self, now: Instant) {
            let due = self.held.iter().take_while(|(at, _)| *at <= now).count();
            self.out
                .extend(self.held.drain(..due).map(|(_, packet)| packet));
            self.empty = self.held.is_empty();
        }

        fn transmit(&mut self, _now: Instant) -> Option<((), u8)> {
            (!self.out.is_empty()).then(|| ((), self.out.remove(0)))
        }

        fn event(&mut self) -> Option<&'static str> {
            core::mem::take(&mut self.empty).then_some("empty")
        }

        fn deadline(&self) -> Option<Instant> {
            self.held.first().map(|(at, _)| *at)
        }
    }

    #[test]
    fn a_turn_does_what_is_due_before_it_takes_in_what_arrived_and_leaves_nothing() {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut machine = Delay::default();
        let mut seen = Vec::new();
        let mut turn = |arrived: Option<u8>, now| {
            let arrived = arrived.map(|packet| ((), packet));
            let next = machine.turn(arrived, now, |output| seen.push(output));
            (core::mem::take(&mut seen), next)
        };
        assert_eq!(turn(Some(1), at(0)), (vec![], Some(at(1))));
        // Nothing is due yet.
        assert_eq!(turn(None, Instant::ZERO), (vec![], Some(at(1))));
        let first = vec![Output::Packet((), 1), Output::Event("empty")];
        assert_eq!(turn(Some(2), at(1)), (first, Some(at(2))));
        let last = vec![Output::Packet((), 2), Output::Event("empty")];
        assert_eq!(turn(None, at(3)), (last, None));
    }
}
