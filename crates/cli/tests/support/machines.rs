//! Two machines that a wire joins: namespaces.

#![allow(dead_code, reason = "not every test binary needs all of it")]

use bentpipe_os::netlink::{Veth, VethEnd};
use bentpipe_os::netns::{Netns, spawn_bound};
use std::process::{Child, Command, Stdio};

/// 10.0.0.1 and 10.0.0.2, joined by a wire.
pub(crate) struct Machines {
    pub(crate) server: Netns,
    pub(crate) client: Netns,
    _wire: Veth,
}

impl Machines {
    pub(crate) fn new(label: &str) -> Self {
        let [server, client] =
            ["server", "client"].map(|end| Netns::create(&format!("{label}_{end}")).unwrap());
        let [near, far] = [&server, &client].map(|netns| VethEnd {
            netns,
            name: "wire",
        });
        let wire = Veth::create(near, far).unwrap();
        wire.set_up().unwrap();
        for (netns, address) in [(&server, "10.0.0.1/24"), (&client, "10.0.0.2/24")] {
            netns
                .netlink()
                .unwrap()
                .add_address("wire", address.parse().unwrap())
                .unwrap();
        }
        Self {
            server,
            client,
            _wire: wire,
        }
    }
}

/// A process that is killed when dropped.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server and waits until it listens.
pub(crate) fn serve(mut command: Command) -> Running {
    command.stdout(Stdio::piped());
    let mut server = Running(spawn_bound(command).unwrap());
    crate::support::address_of(&mut server.0);
    server
}
