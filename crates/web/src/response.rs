//! Answers: JSON, text and refusals in words, each with the headers that keep a browser to this server's own files.

use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// What the pages may load: their own files, and nothing that stands in a page itself.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
/// The advisor, which has WebAssembly in workers.
pub(crate) const ADVISOR: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; connect-src 'self'; \
                       worker-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// A report carries its scripts, and may hold words of others: it is a site of its own that may ask nobody.
pub(crate) const REPORT: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts allow-downloads";

/// A request that is not done, and why.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    words: String,
}

#[derive(Serialize)]
struct Said<'w> {
    error: &'w str,
}

impl Refusal {
    /// Why, in a sentence that says what to do instead.
    pub(crate) fn new(status: StatusCode, words: impl Into<String>) -> Self {
        Self {
            status,
            words: words.into(),
        }
    }

    /// What is wrong with a request.
    pub(crate) fn bad(words: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, words)
    }

    /// There is no such thing.
    pub(crate) fn missing(words: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, words)
    }

    /// The server cannot do it, through no fault of who asks.
    pub(crate) fn broken(words: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, words)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = serde_json::to_string(&Said { error: &self.words });
        typed("application/json", body.unwrap_or_default(), self.status)
    }
}

/// What handlers give.
pub(crate) type Answer = Result<Response, Refusal>;

/// `value` as JSON.
pub(crate) fn json(value: &impl Serialize) -> Answer {
    let body = serde_json::to_string(value);
    let body = body.map_err(|error| Refusal::broken(format!("no JSON: {error}")))?;
    Ok(typed("application/json", body, StatusCode::OK))
}

/// A body of this media type, of which text is UTF-8.
pub(crate) fn typed(kind: &str, body: impl Into<Body>, status: StatusCode) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let kind = match kind.starts_with("text/") {
        true => format!("{kind}; charset=utf-8"),
        false => kind.to_owned(),
    };
    set(&mut response, CONTENT_TYPE, &kind);
    response
}

/// `response`, to be saved as `name`.
pub(crate) fn saved(mut response: Response, name: &str) -> Response {
    let value = format!("attachment; filename=\"{name}\"");
    set(&mut response, CONTENT_DISPOSITION, &value);
    response
}

/// `response` under another policy than that of the pages.
pub(crate) fn under(mut response: Response, policy: &str) -> Response {
    set(&mut response, CONTENT_SECURITY_POLICY, policy);
    response
}

/// The headers of every answer, where it has none of its own.
pub(crate) fn secured(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let mut default = |name: HeaderName, value: &'static str| {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    };
    default(CONTENT_SECURITY_POLICY, POLICY);
    default(X_CONTENT_TYPE_OPTIONS, "nosniff");
    default(X_FRAME_OPTIONS, "DENY");
    // With `no-referrer` browsers say of forms that they come from nowhere (`Origin: null`).
    default(REFERRER_POLICY, "same-origin");
    default(CACHE_CONTROL, "no-store");
    default(
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    );
    default(
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    );
    response
}

fn set(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
