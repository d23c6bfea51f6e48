//! What a client asks for, and what it gets where that is nothing that a proxy does.

use crate::capsule::Framing;
use crate::draft_versions::{DRAFTS, Draft};
use crate::forwarded;
use crate::target::Target;
use crate::template::Template;
use crate::udp;
use std::net::SocketAddr;
use thiserror::Error;

/// A field of a request or an answer: its name and its value.
pub type Field<'a> = (&'a [u8], &'a [u8]);

/// A request for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where to.
    pub target: Target,
    /// How its stream carries the bytes.
    pub framing: Framing,
    /// The client sends nothing until it hears a `100`, or the answer.
    pub expects_continue: bool,
    /// For whom it asks, where it says so (`Forwarded`): nobody has checked that.
    pub client: Option<SocketAddr>,
}

/// A request that is none for a connection.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Its method is not CONNECT.
    #[error("only CONNECT is done here")]
    Method,
    /// Its protocol is not known.
    #[error("the protocol `{0}` is not done here")]
    Protocol(String),
    /// Its path is of none of the proxy's templates.
    #[error("the path is of none of the proxy's templates")]
    Path,
    /// It names no target.
    #[error("the target cannot be read: {0}")]
    Target(String),
    /// It is badly formed.
    #[error("{0}")]
    Form(&'static str),
    /// It wants something of the proxy that it does not do.
    #[error("an expectation besides 100-continue cannot be met")]
    Expectation,
}

impl Refusal {
    /// The status of the answer.
    pub const fn status(&self) -> u16 {
        match self {
            Self::Method => 405,
            Self::Protocol(_) => 501,
            Self::Path => 404,
            Self::Target(_) | Self::Form(_) => 400,
            Self::Expectation => 417,
        }
    }
}

impl Request {
    /// Reads a request's fields, those of the pseudo-headers among them. `templates` are the proxy's.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn read<'a>(
        fields: impl IntoIterator<Item = Field<'a>>,
        templates: &[Template],
    ) -> Result<Self, Refusal> {
        let mut seen = Seen::default();
        for (name, value) in fields {
            seen.take(name, value)?;
        }
        if seen.method != Some(b"CONNECT") {
            return Err(Refusal::Method);
        }
        let (target, framing) = match seen.protocol {
            None => (seen.classic()?, Framing::Bare),
            Some(protocol) if protocol == udp::TOKEN.as_bytes() => {
                let templates: Vec<_> = templates.iter().filter_map(Template::for_udp).collect();
                (seen.extended(&templates)?, Framing::Datagrams)
            }
            Some(protocol) => {
                let draft = Draft::find(protocol)
                    .ok_or_else(|| Refusal::Protocol(String::from_utf8_lossy(protocol).into()))?;
                (seen.extended(templates)?, Framing::Capsules(draft.numbers))
            }
        };
        Ok(Self {
            target,
            framing,
            expects_continue: seen.expects_continue,
            client: seen.client,
        })
    }
}

/// What matters of a request's fields.
#[derive(Default)]
struct Seen<'a> {
    method: Option<&'a [u8]>,
    protocol: Option<&'a [u8]>,
    scheme: Option<&'a [u8]>,
    authority: Option<&'a [u8]>,
    path: Option<&'a [u8]>,
    capsules: bool,
    expects_continue: bool,
    client: Option<SocketAddr>,
}

impl<'a> Seen<'a> {
    fn take(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), Refusal> {
        let place = match name {
            b":method" => &mut self.method,
            b":protocol" => &mut self.protocol,
            b":scheme" => &mut self.scheme,
            b":authority" => &mut self.authority,
            b":path" => &mut self.path,
            b"capsule-protocol" => {
                self.capsules = value == b"?1" || value.starts_with(b"?1;");
                return Ok(());
            }
            b"forwarded" => {
                // Of several the first tells who began.
                self.client = self.client.or_else(|| forwarded::read(value));
                return Ok(());
            }
            b"expect" if value.eq_ignore_ascii_case(b"100-continue") => {
                self.expects_continue = true;
                return Ok(());
            }
            b"expect" => return Err(Refusal::Expectation),
            _ => return Ok(()),
        };
        if place.replace(value).is_some() {
            return Err(Refusal::Form("a pseudo-header stands there twice"));
        }
        Ok(())
    }

    fn classic(&self) -> Result<Target, Refusal> {
        if self.scheme.is_some() || self.path.is_some() {
            return Err(Refusal::Form(
                "CONNECT without a protocol has neither scheme nor path",
            ));
        }
        let authority = self.authority.unwrap_or_default();
        let authority = core::str::from_utf8(authority)
            .map_err(|_| Refusal::Form("the authority is no text"))?;
        authority
            .parse()
            .map_err(|reason| Refusal::Target(format!("{reason}")))
    }

    fn extended(&self, templates: &[Template]) -> Result<Target, Refusal> {
        if self.scheme != Some(b"https") || self.authority.is_none_or(<[u8]>::is_empty) {
            return Err(Refusal::Form("scheme https and an authority are wanted"));
        }
        if !self.capsules {
            return Err(Refusal::Form("`capsule-protocol: ?1` is wanted"));
        }
        let path = core::str::from_utf8(self.path.unwrap_or_default());
        let path = path.map_err(|_| Refusal::Form("the path is no text"))?;
        for template in templates {
            match template.find(path) {
                Ok(Some(target)) => return Ok(target),
                Ok(None) => {}
                Err(reason) => return Err(Refusal::Target(reason.to_string())),
            }
        }
        Err(Refusal::Path)
    }
}

/// The fields of our request for `target` by way of the proxy of `template`, and how its stream carries the bytes: by the newest
/// draft. It is told for whom we ask where that is said.
pub fn fields(
    template: &Template,
    target: &Target,
    client: Option<SocketAddr>,
) -> (Vec<(&'static str, String)>, Framing) {
    let newest = &DRAFTS[0];
    let fields = extended(newest.token, template, target, client);
    (fields, Framing::Capsules(newest.numbers))
}

/// The fields of our request for UDP to `target` by way of the proxy of `template`, which is one [for UDP](Template::for_udp).
pub fn udp_fields(
    template: &Template,
    target: &Target,
    client: Option<SocketAddr>,
) -> (Vec<(&'static str, String)>, Framing) {
    let fields = extended(udp::TOKEN, template, target, client);
    (fields, Framing::Datagrams)
}

fn extended(
    protocol: &str,
    template: &Template,
    target: &Target,
    client: Option<SocketAddr>,
) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        (":method", "CONNECT".to_owned()),
        (":protocol", protocol.to_owned()),
        (":scheme", "https".to_owned()),
        (":authority", template.authority().to_owned()),
        (":path", template.expand(target)),
        ("capsule-protocol", "?1".to_owned()),
    ];
    fields.extend(client.map(|client| (forwarded::NAME, forwarded::write(client))));
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn templates() -> Vec<Template> {
        vec![Template::of_authority("proxy.example").unwrap()]
    }

    fn read(fields: &[(&str, &str)]) -> Result<Request, Refusal> {
        let fields = fields
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        Request::read(fields, &templates())
    }

    /// A good request, one of whose fields is another, or left out.
    fn with(changed: &str, value: Option<&'static str>) -> Result<Request, Refusal> {
        let mut all = vec![
            (":method", "CONNECT"),
            (":protocol", "connect-tcp-08"),
            (":scheme", "https"),
            (":authority", "proxy.example"),
            (":path", "/.well-known/masque/tcp/192.0.2.7/22/"),
            ("capsule-protocol", "?1"),
        ];
        all.retain(|(name, _)| *name != changed);
        if let Some(value) = value {
            let name = [
                "expect",
                ":method",
                ":protocol",
                ":scheme",
                ":authority",
                ":path",
                "capsule-protocol",
            ];
            all.push((
                name.into_iter().find(|name| *name == changed).unwrap(),
                value,
            ));
        }
        read(&all)
    }

    #[test]
    fn our_own_request_is_understood() {
        let target: Target = "[2001:db8::7]:443".parse().unwrap();
        let client = "[2001:db8::8]:4711".parse().ok();
        let (fields, framing) = fields(&templates()[0], &target, client);
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let request = read(&fields).unwrap();
        assert_eq!(
            request,
            Request {
                target,
                framing,
                expects_continue: false,
                client,
            }
        );
    }

    #[test]
    fn udp_is_asked_for_on_a_path_of_its_own() {
        let target: Target = "192.0.2.6:443".parse().unwrap();
        let template = templates()[0].for_udp().unwrap();
        let (fields, framing) = udp_fields(&template, &target, None);
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        assert!(fields.contains(&(":path", "/.well-known/masque/udp/192.0.2.6/443/")));
        let request = read(&fields).unwrap();
        assert_eq!((request.target, request.framing), (target, framing));
        // The path of the one is none of the other.
        let tcp = with(":protocol", Some("connect-udp")).unwrap_err();
        assert_eq!(tcp, Refusal::Path);
        let other: Template = "https://p/{target_host}/{target_port}/".parse().unwrap();
        assert_eq!(other.for_udp(), None);
    }

    #[test]
    fn every_drafts_token_is_understood() {
        for draft in DRAFTS {
            let request = with(":protocol", Some(draft.token)).unwrap();
            assert_eq!(request.framing, Framing::Capsules(draft.numbers));
        }
    }

    #[test]
    fn classic_connect_is_understood() {
        let request = read(&[(":method", "CONNECT"), (":authority", "example.com:443")]).unwrap();
        assert_eq!(
            (request.target.to_string().as_str(), request.framing),
            ("example.com:443", Framing::Bare)
        );
        assert_eq!(read(&[(":method", "CONNECT")]).unwrap_err().status(), 400);
        let paths = [
            (":method", "CONNECT"),
            (":authority", "a:1"),
            (":path", "/"),
        ];
        assert_eq!(read(&paths).unwrap_err().status(), 400);
    }

    #[test]
    fn what_else_may_come_is_refused_with_its_status() {
        for (name, value, status) in [
            (":method", Some("GET"), 405),
            (":method", None, 405),
            (":protocol", Some("connect-tcp"), 501),
            (":protocol", Some("websocket"), 501),
            (":scheme", Some("http"), 400),
            (":authority", None, 400),
            (":path", Some("/"), 404),
            (":path", None, 404),
            (":path", Some("/.well-known/masque/tcp/h/0/"), 400),
            ("capsule-protocol", None, 400),
            ("capsule-protocol", Some("?0"), 400),
            ("expect", Some("the unexpected"), 417),
        ] {
            let refusal = with(name, value).unwrap_err();
            assert_eq!(refusal.status(), status, "{name} {value:?}: {refusal}");
        }
        assert!(
            with("expect", Some("100-Continue"))
                .unwrap()
                .expects_continue
        );
        let twice = [
            (":method", "CONNECT"),
            (":method", "CONNECT"),
            (":authority", "a:1"),
        ];
        assert_eq!(read(&twice).unwrap_err().status(), 400);
    }
}
