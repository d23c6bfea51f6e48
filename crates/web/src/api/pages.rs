//! The pages and their files, signing in, and the advisor's folder.

use super::{Shared, beside};
use crate::assets;
use crate::response::{ADVISOR, Answer, Refusal, typed, under};
use crate::run_events::Pieces;
use crate::run_store::open_regular;
use axum::body::{Body, Bytes};
use axum::extract::{Path, RawQuery, State};
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;
use std::fs::File;
use std::io::Read as _;
use tokio::sync::mpsc;

/// Octets of a file that are read at a time.
const PIECE: usize = 64 << 10;

/// The page; with the token in its address the browser is given a cookie in place of that.
pub(super) async fn index(
    State(server): State<Shared>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let token = query.as_deref().and_then(token);
    if let Some(token) = token {
        return signed_in(&server, token);
    }
    match server.authorization.admits(&Method::GET, &headers) {
        Ok(()) => typed("text/html", assets::INDEX, StatusCode::OK),
        Err(_) => typed("text/html", assets::LOGIN, StatusCode::UNAUTHORIZED),
    }
}

/// Takes a token, or the whole address that it stands in, from the page that asks for it.
pub(super) async fn login(State(server): State<Shared>, body: Bytes) -> Response {
    let text = String::from_utf8_lossy(&body);
    // The form writes `=` of a pasted address as %3D.
    let text = text.replace("%3D", "=").replace('+', "");
    let token = text.rsplit("token=").next().unwrap_or_default();
    signed_in(&server, token.trim())
}

fn token(query: &str) -> Option<&str> {
    query
        .split('&')
        .find_map(|pair| pair.strip_prefix("token="))
}

fn signed_in(server: &Shared, token: &str) -> Response {
    let cookie = server
        .authorization
        .cookie()
        .filter(|_| server.authorization.is_token(token));
    let Some(cookie) = cookie else {
        return typed("text/html", assets::LOGIN, StatusCode::FORBIDDEN);
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let headers = response.headers_mut();
    headers.insert(LOCATION, HeaderValue::from_static("/"));
    headers.insert(SET_COOKIE, cookie);
    response
}

/// A file of the page.
pub(super) async fn asset(Path(name): Path<String>) -> Answer {
    let asset = assets::find(&name).ok_or_else(|| Refusal::missing("there is no such page"))?;
    Ok(typed(asset.kind, asset.text, StatusCode::OK))
}

pub(super) async fn to_advisor() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    response
        .headers_mut()
        .insert(LOCATION, HeaderValue::from_static("/advisor/"));
    response
}

pub(super) async fn advisor_index(server: State<Shared>) -> Answer {
    advisor(server, Path("index.html".to_owned())).await
}

/// A file of the folder that `make advisor` made.
pub(super) async fn advisor(State(server): State<Shared>, Path(name): Path<String>) -> Answer {
    let Some(folder) = server.advisor.clone() else {
        let said = "the advisor is not here: make it by `make advisor`, and start again, with --advisor FOLDER where it is not beside this program";
        return Err(Refusal::missing(said));
    };
    let kind = match name.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html",
        Some("js") => "text/javascript",
        Some("css") => "text/css",
        Some("wasm") => "application/wasm",
        _ => return Err(Refusal::missing("there is no such page")),
    };
    let found = beside(move || {
        let plain = !name.contains(['/', '\\']) && !name.starts_with('.');
        plain.then(|| open_regular(&folder.join(name))).flatten()
    });
    let found = found
        .await?
        .ok_or_else(|| Refusal::missing("there is no such page"))?;
    Ok(under(streamed(kind, found), ADVISOR))
}

/// A file, read as it is sent.
pub(crate) fn streamed(kind: &str, (mut file, length): (File, u64)) -> Response {
    let (give, pieces) = mpsc::channel(2);
    tokio::task::spawn_blocking(move || {
        let mut left = length;
        let mut piece = vec![0; PIECE];
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let Ok(read @ 1..) = file.read(&mut piece[..most]) else {
                // Cut short, which the receiver sees by the length.
                return;
            };
            left -= read as u64;
            if give
                .blocking_send(Bytes::copy_from_slice(&piece[..read]))
                .is_err()
            {
                return;
            }
        }
    });
    let mut response = typed(kind, Body::new(Pieces::new(pieces)), StatusCode::OK);
    response.headers_mut().insert(
        axum::http::header::CONTENT_LENGTH,
        HeaderValue::from(length),
    );
    response
}
