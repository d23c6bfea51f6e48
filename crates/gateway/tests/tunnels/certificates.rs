//! A near end that shows a certificate, to a far end that is known by its own.

use super::support::pair::{Pair, split_one};
use super::support::proxy::{Keys, OPEN, is_up, start};
use super::support::{Ip, eventually, exchange};
use bentpipe_os::need;
use bentpipe_proxy::Command;
use bentpipe_tunnel_sockets::read_certificate_key;
use std::path::PathBuf;

/// A certificate of the key in file `name`, and what pins it.
fn certify(keys: &Keys, name: &str) -> (PathBuf, String) {
    let certificate = keys.path(name).with_extension("crt");
    let make = Command::Keys {
        file: keys.path(name),
        certificate: Some(certificate.clone()),
        names: vec!["end.example".to_owned()],
    };
    bentpipe_proxy::run(&make, |_| Ok(())).unwrap();
    let key = read_certificate_key(&certificate).unwrap().unwrap();
    (certificate, key.to_string())
}

/// By QUIC and by the TCP beside it.
#[test]
fn a_near_end_shows_its_certificate_where_one_is_wanted() {
    need!(Root, Nft, Tproxy);
    let (pair, keys) = (Pair::new(), Keys::new());
    let (far_file, far_key) = certify(&keys, "far.key");
    let (near_file, near_key) = certify(&keys, "near.key");
    let file = keys.proxy(Ip::V4, &near_key, OPEN);
    let rest = std::fs::read_to_string(&file).unwrap();
    let with = format!("certificate = \"{}\"\n{rest}", far_file.display());
    std::fs::write(&file, with).unwrap();
    let proxy = start(&pair, &file);
    // Without one it is told what is wanted.
    let without = split_one(&pair.near, &keys.gateway(Ip::V4, &far_key, ""));
    eventually("words at the near end", || {
        let status = without.handle.status().unwrap();
        { status.tunnels.as_ref() }
            .is_some_and(|tunnels| tunnels.last_loss.contains("wants a certificate"))
    });
    drop(without);
    let shown = format!("certificate = \"{}\"\n", near_file.display());
    let gateway = split_one(&pair.near, &keys.gateway(Ip::V4, &far_key, &shown));
    eventually("tunnels", || is_up(&gateway));
    exchange(&mut pair.pair(Ip::V4));
    eventually("both carriers", || {
        let status = proxy.status().unwrap().tunnels;
        let mut carriers: Vec<_> = { status.connections.iter() }
            .filter(|connection| connection.key == near_key)
            .map(|connection| connection.carrier)
            .collect();
        carriers.sort_unstable();
        carriers == ["http2", "quic"]
    });
}
