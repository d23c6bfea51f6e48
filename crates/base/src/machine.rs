use crate::Instant;

/// The one contract of every protocol machine: packets and the time go in, packets, events and a
/// deadline come out. A machine knows no socket, no clock, no thread.
///
/// The run loop is everywhere the same: after each `input` or `timeout`, drain `transmit` and
/// `event` until both return `None`, then sleep until `deadline` or the next packet. `now` never
/// goes backwards.
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
}
