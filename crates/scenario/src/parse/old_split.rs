//! `[peps.NAME]` of kind `split`, which older files have: it is refused, and each key with what to write now.

use bentpipe_config::{Table, Wrong};

/// Keys of the proxy that have another name or another place at the gateway.
const KEYS: [(&str, &str); 7] = [
    ("enabled", "`enabled` in [gateways.NAME]"),
    ("preset", "`preset` in [gateways.NAME]"),
    ("tcp", "`tcp` in [gateways.NAME]"),
    ("setup", "`handshake` in [gateways.NAME.split]"),
    (
        "buffer",
        "`send_buffer` and `receive_buffer` in [gateways.NAME.split.lan] and [gateways.NAME.split.sat], half of which \
         holds payload; or `\"infinite\"`",
    ),
    ("flows", "`flows` in [gateways.NAME.split.limits]"),
    ("idle", "`idle` in [gateways.NAME.split.limits]"),
];

/// Records what becomes of `table`.
pub(super) fn refuse(table: &mut Table<'_, '_>) {
    let node: String = table.optional("node").unwrap_or_else(|| "NAME".to_owned());
    let link: String = table.optional("link").unwrap_or_else(|| "LINK".to_owned());
    let what = "a split is a gateway, of which the simulator and the lab read the same keys";
    let expected = format!(
        "`[gateways.{node}]` in place of this table and of [routers.{node}], with `sat = \"{link}\"`, `lan` = its link \
         towards the ground, and the gateway's own keys in `[gateways.{node}.split]` (docs/pep/split.md)"
    );
    table.problem("kind", Wrong::new(what, expected));
    for (key, now) in KEYS {
        if table.has(key) {
            let what = format!("`{key}` of a split");
            table.problem(key, Wrong::new(what, now.replace("NAME", &node)));
        }
    }
    for (side, leg) in [("ground", "lan"), ("space", "sat")] {
        let Some(old) = table.table(side) else {
            continue;
        };
        let here = format!("[gateways.{node}.split.{leg}]");
        let place = old.place();
        let what = format!("`{side}` of a split");
        let expected = format!("the same keys in {here}");
        table.document().problem(place, Wrong::new(what, expected));
        if old.has("receive_window") {
            let expected = format!("twice as much as `receive_buffer` in {here}");
            old.problem(
                "receive_window",
                Wrong::new("`receive_window` of a leg", expected),
            );
        }
    }
}
