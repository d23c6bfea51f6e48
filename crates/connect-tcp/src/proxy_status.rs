//! Why a proxy's dial failed, as the answer says it: its status and `Proxy-Status` (RFC 9209).

use thiserror::Error;

/// Every way in which a dial fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum DialError {
    /// Nothing answered in time.
    #[error("nothing answered in time")]
    Timeout,
    /// The name is not found.
    #[error("the name was not found")]
    Dns,
    /// The resolver did not answer.
    #[error("the resolver did not answer")]
    DnsTimeout,
    /// The port is closed.
    #[error("the connection was refused")]
    Refused,
    /// There is no way there.
    #[error("there is no route")]
    Unroutable,
    /// The proxy's policy forbids it.
    #[error("the proxy does not allow this destination")]
    Prohibited,
    /// The client has as many connections as it may.
    #[error("the proxy admits no more connections of this client")]
    Limit,
    /// The server closed at once.
    #[error("the connection ended before it stood")]
    Terminated,
    /// The proxy itself failed.
    #[error("the proxy failed")]
    Internal,
}

/// An error, its status code, and its name in the registry of RFC 9209.
const TABLE: &[(DialError, u16, &str)] = &[
    (DialError::Timeout, 504, "connection_timeout"),
    (DialError::Dns, 502, "dns_error"),
    (DialError::DnsTimeout, 504, "dns_timeout"),
    (DialError::Refused, 502, "connection_refused"),
    (DialError::Unroutable, 502, "destination_ip_unroutable"),
    (DialError::Prohibited, 403, "destination_ip_prohibited"),
    (DialError::Limit, 503, "connection_limit_reached"),
    (DialError::Terminated, 502, "connection_terminated"),
    (DialError::Internal, 500, "proxy_internal_error"),
];

/// A status code of HTTP.
pub type Status = u16;

impl DialError {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|&(error, ..)| error)
    }

    /// The status of the answer.
    pub fn status(self) -> Status {
        self.entry().1
    }

    /// Its name in `Proxy-Status`.
    pub fn name(self) -> &'static str {
        self.entry().2
    }

    fn entry(self) -> &'static (Self, Status, &'static str) {
        { TABLE.iter() }
            .find(|(error, ..)| *error == self)
            .unwrap_or(&TABLE[TABLE.len() - 1])
    }

    /// What an answer with this status and these `Proxy-Status` fields says; the proxy nearest to the server has the last word.
    /// An error that is not in the table is judged by its status.
    pub fn of_answer<'a>(status: Status, fields: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let named = { fields.into_iter() }
            .filter_map(|field| core::str::from_utf8(field).ok())
            .flat_map(errors)
            .next();
        let named = named.and_then(|name| TABLE.iter().find(|(.., known)| *known == name));
        let by_status = || TABLE.iter().find(|(_, known, _)| *known == status);
        named
            .or_else(by_status)
            .map_or(Self::Internal, |&(error, ..)| error)
    }
}

/// The names of errors in a field's members, in their order.
fn errors(field: &str) -> impl Iterator<Item = &str> {
    { members(field, ',') }.filter_map(|member| {
        members(member, ';')
            .skip(1)
            .find_map(|parameter| parameter.trim().strip_prefix("error="))
            .map(str::trim)
    })
}

/// The parts of a structured field between separators that are not within a string.
fn members(field: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let mut escaped = false;
    field.split(move |c| {
        let is_escaped = escaped;
        escaped = quoted && c == '\\' && !is_escaped;
        if c == '"' && !is_escaped {
            quoted = !quoted;
        }
        c == separator && !quoted
    })
}

/// The `Proxy-Status` field of the proxy called `name` for an answer, good or bad.
pub fn status_field(name: &str, error: Option<DialError>) -> String {
    match error {
        None => name.to_owned(),
        Some(error) => format!("{name}; error={}", error.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_is_read_as_it_was_told() {
        assert_eq!(DialError::all().count(), 9);
        for error in DialError::all() {
            let field = status_field("bentpipe", Some(error));
            assert_eq!(
                DialError::of_answer(error.status(), [field.as_bytes()]),
                error
            );
        }
    }

    #[test]
    fn others_fields_are_read_too() {
        let of = |status, field: &'static str| DialError::of_answer(status, [field.as_bytes()]);
        assert_eq!(
            of(
                502,
                r#""a, b; error=x"; details="\"; error=y"; error=connection_refused, front"#
            ),
            DialError::Refused
        );
        assert_eq!(
            of(502, "near; error=dns_timeout;rcode=2 , far"),
            DialError::DnsTimeout
        );
        // Unknown errors, nonsense and silence are judged by the status.
        assert_eq!(of(504, "p; error=http_upgrade_failed"), DialError::Timeout);
        assert_eq!(of(403, "\u{0}\";;,error"), DialError::Prohibited);
        assert_eq!(DialError::of_answer(418, []), DialError::Internal);
        assert_eq!(
            DialError::of_answer(503, [&b"\xff\xfe"[..]]),
            DialError::Limit
        );
    }
}
