//! What is asked of a gateway on this machine, by `bentpipe gateway` in a child.

use crate::child_process;
use crate::response::{Answer, Refusal, json, typed};
use crate::server::Server;
use axum::http::StatusCode;
use serde::Serialize;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// How long what a gateway said is told again: however many watch, it is asked twice a second.
const FRESH: Duration = Duration::from_millis(500);
/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Serialize)]
struct Absent<'w> {
    /// Why there is no gateway to be seen.
    absent: &'w str,
}

/// The status of the gateway, as `gateway status --json` has it.
pub(crate) async fn status(server: &Server) -> Answer {
    if std::fs::symlink_metadata(&server.control).is_err() {
        let path = server.control.display();
        let absent = format!(
            "No gateway is here: there is no control socket {path} (bentpipe web --control PATH)"
        );
        return json(&Absent { absent: &absent });
    }
    let mut last = server.gateway.lock().await;
    let fresh = last.as_ref().is_some_and(|(at, _)| at.elapsed() < FRESH);
    if !fresh {
        let said = ask(server, &["status", "--json"]).await;
        *last = Some((Instant::now(), said));
    }
    match last.as_ref().map(|(_, said)| said) {
        Some(Ok(status)) => Ok(typed("application/json", status.clone(), StatusCode::OK)),
        Some(Err(error)) => json(&Absent { absent: error }),
        None => Err(Refusal::broken("the gateway was not asked")),
    }
}

/// Carries out an order, by the name that the page has for it.
pub(crate) async fn order(server: &Server, order: &str) -> Answer {
    let words: &[&str] = match order {
        "bypass-on" => &["bypass", "on"],
        "bypass-off" => &["bypass", "off"],
        "reload" => &["reload"],
        _ => {
            return Err(Refusal::missing(
                "there is no such order: bypass-on, bypass-off or reload",
            ));
        }
    };
    match ask(server, words).await {
        Ok(_) => {
            *server.gateway.lock().await = None;
            json(&true)
        }
        Err(error) => Err(Refusal::new(StatusCode::BAD_GATEWAY, error)),
    }
}

async fn ask(server: &Server, words: &[&str]) -> Result<String, String> {
    let mut args: Vec<OsString> = vec!["gateway".into()];
    args.extend(words.iter().map(OsString::from));
    args.extend(["--control".into(), server.control.clone().into()]);
    child_process::output(&server.limits, &args, Path::new("."), PATIENCE).await
}
