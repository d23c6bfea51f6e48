//! Who may ask: whoever has the token, by a browser that was told this server's own address.
//!
//! A page of somebody else's in the same browser can send requests here. Three things keep it out: `Host` must be a
//! name of this server (a foreign name that resolves to this address is refused), `Origin` must be this server's own
//! where there is one, and the cookie that holds the token is not sent along from other sites.

use crate::response::Refusal;
use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use subtle::ConstantTimeEq as _;

/// Octets of chance in a token.
const OCTETS: usize = 24;

/// Knows the token and the names of this server.
pub(crate) struct Authorization {
    token: String,
    /// Of the cookie: browsers do not tell cookies of ports apart.
    cookie: String,
    port: u16,
    names: Vec<String>,
}

impl Authorization {
    /// With a token of its own, for a server at `at` that is known by `names`, too.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub(crate) fn new(at: SocketAddr, names: &[String]) -> anyhow::Result<Self> {
        let mut octets = [0; OCTETS];
        getrandom::fill(&mut octets).map_err(|error| {
            anyhow::anyhow!("the system has no randomness for a token: {error}")
        })?;
        let mut token = String::with_capacity(2 * OCTETS);
        for octet in octets {
            // Writing to a String cannot fail.
            let _ = write!(token, "{octet:02x}");
        }
        Ok(Self {
            token,
            cookie: format!("bentpipe-{}", at.port()),
            port: at.port(),
            names: names.iter().map(|name| name.to_lowercase()).collect(),
        })
    }

    /// The token, to be printed.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Whether `given` is the token, in a time that does not tell where it differs.
    pub(crate) fn is_token(&self, given: &str) -> bool {
        self.token.as_bytes().ct_eq(given.as_bytes()).into()
    }

    /// The header that has a browser keep the token: hidden from scripts, not sent along from other sites.
    pub(crate) fn cookie(&self) -> Option<HeaderValue> {
        let (name, token) = (&self.cookie, &self.token);
        HeaderValue::from_str(&format!(
            "{name}={token}; Path=/; HttpOnly; SameSite=Strict"
        ))
        .ok()
    }

    /// Refuses requests under a name that is not this server's, and those that another site's page makes.
    pub(crate) fn knows(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = text(headers, HOST.as_str()).unwrap_or_default();
        if !self.is_own(host) {
            let said = "this server is not known by the name in `Host`: open the address that `bentpipe web` printed, or \
                        start it with --name";
            return Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, said));
        }
        let Some(origin) = headers.get(ORIGIN) else {
            return Ok(());
        };
        let own = { origin.to_str().ok() }
            .and_then(|origin| origin.split_once("://"))
            .is_some_and(|(scheme, origin)| ["http", "https"].contains(&scheme) && origin == host);
        if own {
            Ok(())
        } else {
            let said = "a page of another site may not ask here (`Origin`)";
            Err(Refusal::new(StatusCode::FORBIDDEN, said))
        }
    }

    /// Refuses who has no token, and orders that a browser does not say the origin of.
    pub(crate) fn admits(&self, method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
        let words = text(headers, AUTHORIZATION.as_str());
        if words.is_some_and(|words| {
            words.split_once(' ').is_some_and(|(scheme, token)| {
                scheme.eq_ignore_ascii_case("bearer") && self.is_token(token)
            })
        }) {
            return Ok(());
        }
        let mut cookies = headers.get_all(COOKIE).iter();
        let has_cookie = cookies.any(|cookies| {
            let cookies = cookies.to_str().unwrap_or_default().split(';');
            cookies
                .filter_map(|cookie| cookie.trim().split_once('='))
                .any(|(name, value)| name == self.cookie && self.is_token(value))
        });
        if !has_cookie {
            let said = "no token: open the address that `bentpipe web` printed when it started";
            return Err(Refusal::new(StatusCode::UNAUTHORIZED, said));
        }
        let orders = !matches!(*method, Method::GET | Method::HEAD);
        if orders && !headers.contains_key(ORIGIN) {
            let said = "an order by cookie needs an `Origin`, as browsers send it; programs give `Authorization: Bearer TOKEN`";
            return Err(Refusal::new(StatusCode::FORBIDDEN, said));
        }
        Ok(())
    }

    /// Whether `host` names this server: an address (a name alone can be made to lead elsewhere later), `localhost`, or
    /// one of those that it was started with, with its port.
    fn is_own(&self, host: &str) -> bool {
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port))
                if !port.is_empty() && port.bytes().all(|it| it.is_ascii_digit()) =>
            {
                (name, port.parse().ok())
            }
            _ => (host, Some(80)),
        };
        let bare = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .unwrap_or(name);
        let known = { self.names.iter() }.any(|own| own.eq_ignore_ascii_case(name));
        // A proxy before this server has a port of its own.
        known
            || (port == Some(self.port)
                && (name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()))
    }
}

/// Refuses requests that say in two ways whom they are for: a proxy before this server may have gone by the other.
pub(crate) fn unambiguous(uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    let twice = headers.get_all(HOST).iter().nth(1).is_some();
    let host = text(headers, HOST.as_str());
    let other = uri.authority().is_some_and(|it| Some(it.as_str()) != host);
    if twice || other {
        let said = "the request names two hosts, in its first line or by `Host`: expected one";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, said));
    }
    Ok(())
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authorization() -> Authorization {
        let names = ["testbed.example".to_owned()];
        Authorization::new("127.0.0.1:8080".parse().unwrap(), &names).unwrap()
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn only_its_own_names_are_known() {
        let authorization = authorization();
        for host in [
            "127.0.0.1:8080",
            "localhost:8080",
            "[::1]:8080",
            "192.0.2.1:8080",
            "testbed.example",
            "Testbed.Example:443",
        ] {
            assert!(
                authorization.knows(&headers(&[("host", host)])).is_ok(),
                "{host}"
            );
        }
        for host in [
            "",
            "127.0.0.1",
            "127.0.0.1:80",
            "evil.example:8080",
            "localhost.evil.example:8080",
            "127.0.0.1.evil.example:8080",
            "localhost:8080:8080",
        ] {
            assert!(
                authorization.knows(&headers(&[("host", host)])).is_err(),
                "{host}"
            );
        }
        let own = ("host", "localhost:8080");
        for (origin, right) in [
            ("http://localhost:8080", true),
            ("https://localhost:8080", true),
            ("http://127.0.0.1:8080", false),
            ("http://evil.example", false),
            ("null", false),
            ("ftp://localhost:8080", false),
        ] {
            assert_eq!(
                authorization
                    .knows(&headers(&[own, ("origin", origin)]))
                    .is_ok(),
                right,
                "{origin}"
            );
        }
    }

    #[test]
    fn without_the_token_nobody_is_admitted() {
        let authorization = authorization();
        let token = authorization.token().to_owned();
        let cookie = |name: &str, token: &str| format!("theme=dark; {name}={token}; other=1");
        let (get, post) = (Method::GET, Method::POST);
        let right = cookie("bentpipe-8080", &token);
        assert!(
            authorization
                .admits(&get, &headers(&[("cookie", &right)]))
                .is_ok()
        );
        assert!(
            authorization
                .admits(&post, &headers(&[("cookie", &right)]))
                .is_err()
        );
        let origin = ("origin", "http://localhost:8080");
        assert!(
            authorization
                .admits(&post, &headers(&[("cookie", &right), origin]))
                .is_ok()
        );
        assert!(
            authorization
                .admits(
                    &post,
                    &headers(&[("authorization", &format!("Bearer {token}"))])
                )
                .is_ok()
        );
        let short = &token[1..];
        for wrong in [
            cookie("bentpipe-8081", &token),
            cookie("bentpipe-8080", short),
            cookie("bentpipe-8080", ""),
            String::new(),
        ] {
            assert!(
                authorization
                    .admits(&get, &headers(&[("cookie", &wrong), origin]))
                    .is_err(),
                "{wrong}"
            );
        }
        for wrong in [
            token.clone(),
            format!("Basic {token}"),
            format!("Bearer {short}"),
            "Bearer ".to_owned(),
        ] {
            assert!(
                authorization
                    .admits(&get, &headers(&[("authorization", &wrong)]))
                    .is_err(),
                "{wrong}"
            );
        }
        assert_ne!(token, self::authorization().token());
    }
}
