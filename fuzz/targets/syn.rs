//! Any bytes are a TCP packet or are refused; its ends stand where RFC 791, 8200 and 9293 have them.
#![no_main]

use bentpipe_gateway_config::Syn;
use libfuzzer_sys::fuzz_target;
use std::net::IpAddr;

fuzz_target!(|packet: &[u8]| {
    let Some(syn) = Syn::parse(packet) else {
        return;
    };
    let (client, server) = syn.ends;
    let read = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    match (client.ip(), server.ip()) {
        (IpAddr::V4(client_ip), IpAddr::V4(server_ip)) => {
            assert_eq!(
                (&packet[12..16], &packet[16..20]),
                (&client_ip.octets()[..], &server_ip.octets()[..])
            );
            let tcp = usize::from(packet[0] & 15) * 4;
            assert_eq!((read(tcp), read(tcp + 2)), (client.port(), server.port()));
            assert_eq!(syn.service.class, packet[1] & !3);
            assert_eq!(syn.service.ecn, packet[tcp + 13] & 0xc0 == 0xc0);
        }
        (IpAddr::V6(client_ip), IpAddr::V6(server_ip)) => {
            assert_eq!(
                (&packet[8..24], &packet[24..40]),
                (&client_ip.octets()[..], &server_ip.octets()[..])
            );
            assert_eq!(syn.service.class, (read(0) >> 4) as u8 & !3);
        }
        ends => panic!("ends of two families: {ends:?}"),
    }
});
