//! Any text is a configuration or is refused with its place; and of a configuration nothing reaches
//! nft but words, numbers, addresses and sets of them.
#![no_main]

use bentpipe_gateway_config::{Config, Interface, LegId};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    read(text);
    read(&format!("[[policy]]\naction = \"split\"\n{text}"));
});

fn read(text: &str) {
    let config = match Config::parse("gw.toml", text) {
        Ok(config) => config,
        Err(problems) => {
            let told = problems.to_string();
            assert!(
                told.lines().all(|line| line.starts_with("gw.toml:")),
                "{told}"
            );
            return;
        }
    };
    for doubt in config.warnings() {
        assert_eq!(doubt.to_string().lines().count(), 1);
    }
    let interfaces = [&config.lan_interfaces, &config.sat_interfaces].map(|names| {
        let named = names.iter().map(|name| Interface {
            name: name.clone(),
            vlan: Some(20),
        });
        named.collect::<Vec<_>>()
    });
    for policy in &config.policies {
        let mut said = policy.counter();
        for (v4, leg) in [
            (true, LegId::Lan),
            (true, LegId::Sat),
            (false, LegId::Lan),
            (false, LegId::Sat),
        ] {
            said.extend(policy.matches(v4, leg, &interfaces[leg as usize]));
        }
        // Between quotes, the names of interfaces.
        assert_eq!(said.matches('"').count() % 2, 0, "{said}");
        let plain = |c: char| c.is_ascii_alphanumeric() || " _.:/,-{}".contains(c);
        assert!(
            said.split('"').step_by(2).flat_map(str::chars).all(plain),
            "{said}"
        );
    }
}
