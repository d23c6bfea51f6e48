//! Runs: asked for, followed, stopped, and what is in their folders.

use super::{Shared, beside, read};
use crate::api::pages::streamed;
use crate::child_process;
use crate::response::{Answer, REPORT, Refusal, json, saved, typed, under};
use crate::run_record::{ASKED, RunRecord, Work};
use crate::run_store::read_small;
use crate::scenario_form::{self, Said, Setting};
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ffi::OsString;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The most runs that are asked for at once.
const MOST: usize = 64;
/// The most browsers that watch at a time: what they hold of the connections leaves room for others.
const WATCHERS: usize = 160;
/// How long a capture may take to be looked through.
const PATIENCE: Duration = Duration::from_secs(110);

/// Runs that are asked for: one a variant.
#[derive(Deserialize)]
pub(super) struct Ask {
    variants: Vec<Variant>,
    lab: bool,
    #[serde(default)]
    capture: bool,
}

/// A scenario, and what is set over it.
#[derive(Deserialize)]
struct Variant {
    label: String,
    text: String,
    #[serde(default)]
    settings: Vec<Setting>,
}

#[derive(Serialize)]
struct Wrong {
    error: String,
    problems: Vec<Said>,
}

/// Puts runs into the queue; all of them, or none where one is wrong.
pub(super) async fn ask(State(server): State<Shared>, body: Bytes) -> Answer {
    let ask: Ask = read(&body)?;
    if ask.variants.is_empty() || ask.variants.len() > MOST {
        return Err(Refusal::bad(format!(
            "{} runs: expected 1 to {MOST}",
            ask.variants.len()
        )));
    }
    if ask.lab && !server.is_root {
        let said = "the lab needs root: start it by `sudo bentpipe web`, or choose the simulator";
        return Err(Refusal::new(StatusCode::CONFLICT, said));
    }
    server.queue.has_room(ask.variants.len())?;
    let _turn = server.turn().await?;
    let shared = server.clone();
    let made = beside(move || prepare(&shared, &ask)).await?;
    match made? {
        Ok(records) => {
            records
                .iter()
                .cloned()
                .for_each(|record| server.queue.put(record));
            json(&records)
        }
        Err(wrong) => {
            let body = serde_json::to_string(&wrong).unwrap_or_default();
            Ok(typed(
                "application/json",
                body,
                StatusCode::UNPROCESSABLE_ENTITY,
            ))
        }
    }
}

/// Reads each variant, and makes the folders of all.
fn prepare(server: &Shared, ask: &Ask) -> Result<Result<Vec<RunRecord>, Wrong>, Refusal> {
    let mut texts = Vec::new();
    for Variant {
        label,
        text,
        settings,
    } in &ask.variants
    {
        let scenario = match scenario_form::read(text, settings, ask.lab) {
            Ok(scenario) => scenario,
            Err(problems) => {
                let error = format!("the scenario of `{label}` cannot be run");
                return Ok(Err(Wrong { error, problems }));
            }
        };
        // Where nothing is set over it the text stays as it was written.
        let text = if settings.is_empty() {
            text.clone()
        } else {
            scenario.to_toml()
        };
        texts.push((scenario.name, label, text));
    }
    let work = if ask.lab { Work::Lab } else { Work::Simulator };
    let records = texts.iter().map(|(name, label, text)| {
        let label: String = label
            .chars()
            .filter(|it| !it.is_control())
            .take(120)
            .collect();
        server
            .store
            .make(name, &label, work.clone(), ask.capture, Some(text))
    });
    let records: std::io::Result<Vec<RunRecord>> = records.collect();
    Ok(Ok(records.map_err(|error| unwritten(&error))?))
}

fn unwritten(error: &std::io::Error) -> Refusal {
    Refusal::broken(format!(
        "cannot write into the folder of the results: {error}"
    ))
}

/// Puts one run into the queue.
pub(super) fn put(
    server: &Shared,
    name: &str,
    label: &str,
    work: Work,
    captured: bool,
    text: Option<&str>,
) -> Answer {
    server.queue.has_room(1)?;
    let record = server.store.make(name, label, work, captured, text);
    let record = record.map_err(|error| unwritten(&error))?;
    server.queue.put(record.clone());
    json(&[record])
}

/// What runs and what waits.
pub(super) async fn queue(State(server): State<Shared>) -> Answer {
    json(&server.queue.shown())
}

/// All runs there are.
pub(super) async fn list(State(server): State<Shared>) -> Answer {
    let records = beside(move || server.store.list()).await?;
    json(&records.map_err(|error| Refusal::broken(format!("cannot read the results: {error}")))?)
}

#[derive(Serialize)]
struct Whole {
    #[serde(flatten)]
    record: RunRecord,
    command: String,
    files: Vec<(String, u64)>,
    /// What it found.
    result: Option<Value>,
}

/// All that is known of a run.
pub(super) async fn one(State(server): State<Shared>, Path(id): Path<String>) -> Answer {
    let whole = beside(move || {
        let record = server.store.record(&id)?;
        let folder = server.store.of(&id)?;
        let result = read_small(&folder.join("result.json"));
        Ok::<_, Refusal>(Whole {
            command: record.command(),
            files: server.store.files(&id)?,
            result: result.and_then(|octets| serde_json::from_slice(&octets).ok()),
            record,
        })
    });
    json(&whole.await??)
}

/// How a run stands, ten times a second while it goes on.
pub(super) async fn events(State(server): State<Shared>, Path(id): Path<String>) -> Answer {
    server.store.of(&id)?;
    let Some(events) = server.queue.events(&id) else {
        // It waits, or is over: who watches asks how it stands.
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    if server.watchers.load(Ordering::Relaxed) >= WATCHERS {
        let said = format!("{WATCHERS} browsers watch already: try again later");
        return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, said));
    }
    let seen = server.clone();
    seen.watchers.fetch_add(1, Ordering::Relaxed);
    let body = events.watch(move || {
        seen.watchers.fetch_sub(1, Ordering::Relaxed);
    });
    Ok(typed("text/event-stream", Body::new(body), StatusCode::OK))
}

pub(super) async fn stop(State(server): State<Shared>, Path(id): Path<String>) -> Answer {
    server.store.of(&id)?;
    if server.queue.stop(&id) {
        json(&true)
    } else {
        Err(Refusal::new(StatusCode::CONFLICT, "the run is over"))
    }
}

/// The same once more, in a folder of its own.
pub(super) async fn again(State(server): State<Shared>, Path(id): Path<String>) -> Answer {
    let record = server.store.record(&id)?;
    if record.work == Work::Lab && !server.is_root {
        return Err(Refusal::new(
            StatusCode::CONFLICT,
            "the lab needs root: start it by `sudo bentpipe web`",
        ));
    }
    let folder = server.store.of(&id)?;
    let text = [ASKED, "scenario.toml"]
        .iter()
        .find_map(|name| read_small(&folder.join(name)));
    let text = text.and_then(|octets| String::from_utf8(octets).ok());
    if text.is_none() && !matches!(record.work, Work::Study { .. }) {
        return Err(Refusal::missing("the run has no scenario beside it"));
    }
    let name = text
        .as_deref()
        .and_then(|text| scenario_form::read(text, &[], true).ok());
    let name = name.map_or_else(|| record.label.clone(), |scenario| scenario.name);
    put(
        &server,
        &name,
        &record.label,
        record.work.clone(),
        record.captured,
        text.as_deref(),
    )
}

pub(super) async fn file(
    State(server): State<Shared>,
    Path((id, name)): Path<(String, String)>,
) -> Answer {
    download(&server, &id, &[&name])
}

pub(super) async fn capture(
    State(server): State<Shared>,
    Path((id, name)): Path<(String, String)>,
) -> Answer {
    download(&server, &id, &["captures", &name])
}

fn download(server: &Shared, id: &str, names: &[&str]) -> Answer {
    let found = server.store.open(id, names)?;
    let name = names.last().copied().unwrap_or_default();
    let kind = match name.rsplit_once('.').map(|(_, end)| end) {
        Some("json") => "application/json",
        Some("csv") => "text/csv",
        Some("toml" | "txt" | "jsonl") => "text/plain",
        _ => "application/octet-stream",
    };
    Ok(saved(streamed(kind, found), &format!("{id}-{name}")))
}

/// The page of `bentpipe trace` of a capture, made when it is first asked for.
pub(super) async fn trace(
    State(server): State<Shared>,
    Path((id, name)): Path<(String, String)>,
) -> Answer {
    server.store.open(&id, &["captures", &name])?;
    let page = format!("{name}.html");
    let folder = server.store.of(&id)?.join("captures");
    if server.store.open(&id, &["captures", &page]).is_err() {
        let args = ["trace", &name, "--html", &page].map(OsString::from);
        let made = child_process::output(&server.limits, &args, &folder, PATIENCE).await;
        made.map_err(|why| Refusal::bad(format!("cannot read the capture: {why}")))?;
    }
    let found = server.store.open(&id, &["captures", &page])?;
    Ok(under(streamed("text/html", found), REPORT))
}
