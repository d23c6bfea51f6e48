//! What can be asked for, and what is answered.

mod pages;
mod runs;

use crate::authorization::unambiguous;
use crate::connection_slots::TokenShown;
use crate::response::{Answer, Refusal, json, secured};
use crate::run_store::open_regular;
use crate::scenario_form::{self, LONGEST};
use crate::server::Server;
use crate::{assets, child_process, gateway_commands, scenario_library, studies};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::body::Body as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The most that a request may bring: a scenario, and settings for many runs of it.
const LARGEST: usize = 2 * LONGEST;
/// The most that is read of a larger request, so that who sends it comes to read the answer, and how long that may take.
const SURPLUS: u64 = 64 << 20;
const SURPLUS_TIME: Duration = Duration::from_secs(10);
/// How long an answer may take to begin, what is asked read in full.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a report of a study's finished points is told again.
const SO_FAR: Duration = Duration::from_secs(2);

type Shared = Arc<Server>;

/// All routes, behind the check of who may ask.
pub(crate) fn router(server: Shared) -> Router {
    Router::new()
        .route("/", get(pages::index))
        .route("/login", post(pages::login))
        .route("/{name}", get(pages::asset))
        .route("/advisor", get(pages::to_advisor))
        .route("/advisor/", get(pages::advisor_index))
        .route("/advisor/{name}", get(pages::advisor))
        .route("/api/about", get(about))
        .route("/api/scenarios", get(scenarios))
        .route("/api/scenarios/{*id}", get(scenario))
        .route("/api/alternatives/{*id}", get(alternatives))
        .route("/api/check", post(check))
        .route("/api/queue", get(runs::queue))
        .route("/api/runs", get(runs::list).post(runs::ask))
        .route("/api/runs/{id}", get(runs::one))
        .route("/api/runs/{id}/events", get(runs::events))
        .route("/api/runs/{id}/stop", post(runs::stop))
        .route("/api/runs/{id}/again", post(runs::again))
        .route("/api/runs/{id}/files/{name}", get(runs::file))
        .route("/api/runs/{id}/captures/{name}", get(runs::capture))
        .route("/api/runs/{id}/trace/{name}", get(runs::trace))
        .route("/api/studies", get(list_studies).post(run_study))
        .route("/api/report/{kind}/{*path}", get(report))
        .route("/api/so-far/{kind}/{*path}", get(so_far))
        .route("/api/gateway", get(gateway))
        .route("/api/gateway/{order}", post(order))
        .fallback(|| async { Refusal::missing("there is no such page") })
        .method_not_allowed_fallback(|| async {
            Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "this is not asked for in that way",
            )
        })
        .layer(DefaultBodyLimit::max(LARGEST))
        .layer(from_fn_with_state(Arc::clone(&server), gate))
        .with_state(server)
}

/// Lets through who may ask, and bounds the time of it.
async fn gate(State(server): State<Shared>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let open = path == "/" || path == "/login" || assets::is_public(path.trim_start_matches('/'));
    let headers = request.headers();
    let clear = unambiguous(request.uri(), headers);
    let admitted = clear
        .and_then(|()| server.authorization.knows(headers))
        .and_then(|()| {
            let asks = server.authorization.admits(request.method(), headers);
            if let (Ok(()), Some(shown)) = (&asks, request.extensions().get::<TokenShown>()) {
                shown.set();
            }
            if open { Ok(()) } else { asks }
        });
    let response = match admitted {
        Err(refusal) => refusal.into_response(),
        Ok(()) if is_too_large(headers) => {
            // Where this breaks off the connection does, and nobody is told.
            let _ = tokio::time::timeout(SURPLUS_TIME, read_away(request.into_body())).await;
            too_large()
        }
        Ok(()) => match tokio::time::timeout(PATIENCE, next.run(request)).await {
            Ok(response) => worded(response),
            Err(_) => {
                let said = "this took too long";
                Refusal::new(StatusCode::REQUEST_TIMEOUT, said).into_response()
            }
        },
    };
    secured(response)
}

/// What the library refuses is said in our words.
fn worded(response: Response) -> Response {
    if response.status() == StatusCode::PAYLOAD_TOO_LARGE {
        return too_large();
    }
    response
}

fn too_large() -> Response {
    let said = format!("this is too much: at most {LARGEST} B");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, said).into_response()
}

/// Whether a request says that it brings too much.
fn is_too_large(headers: &HeaderMap) -> bool {
    let length = headers.get(CONTENT_LENGTH).and_then(|it| it.to_str().ok());
    let length = length.and_then(|length| length.parse::<u64>().ok());
    length.is_some_and(|length| length > LARGEST as u64)
}

/// Reads what a request brings, and forgets it.
async fn read_away(mut body: Body) {
    let mut read = 0;
    while read <= SURPLUS {
        let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        let Some(Ok(frame)) = frame else {
            return;
        };
        read += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
}

/// What a body says.
fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::bad(format!("the request is not as expected: {error}")))
}

/// Runs what reads files, beside the thread that serves.
async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Refusal::broken(format!("a fault of this program: {error}")))
}

#[derive(Serialize)]
struct About {
    version: &'static str,
    root: bool,
    results: String,
    advisor: bool,
    memory_mb: u64,
    longest_min: u64,
    /// Controls to tick, of the simulator and of the lab alike.
    controls: Vec<scenario_form::Control>,
    queues: Vec<scenario_form::QueueKind>,
}

async fn about(State(server): State<Shared>) -> Answer {
    json(&About {
        version: env!("CARGO_PKG_VERSION"),
        root: server.is_root,
        results: server.store.folder().display().to_string(),
        advisor: server.advisor.is_some(),
        memory_mb: server.limits.memory / 1_000_000,
        longest_min: server.limits.longest.as_secs() / 60,
        controls: scenario_form::controls(),
        queues: scenario_form::queues(),
    })
}

async fn scenarios() -> Answer {
    json(&scenario_library::list())
}

async fn scenario(Path(id): Path<String>) -> Answer {
    #[derive(Serialize)]
    struct Text {
        text: String,
    }
    let text = scenario_library::text(&id);
    let text = text.ok_or_else(|| Refusal::missing("there is no such scenario"))?;
    json(&Text { text })
}

async fn alternatives(Path(id): Path<String>) -> Answer {
    let rows = scenario_library::alternatives(&id);
    json(&rows.ok_or_else(|| Refusal::missing("there is no such link"))?)
}

async fn check(State(server): State<Shared>, body: Bytes) -> Answer {
    let ask: scenario_form::Ask = read(&body)?;
    let _turn = server.turn().await?;
    json(&beside(move || scenario_form::check(&ask.text, &ask.settings, ask.lab)).await?)
}

async fn list_studies(State(server): State<Shared>) -> Answer {
    json(&beside(move || server.studies.list()).await?)
}

async fn run_study(State(server): State<Shared>, body: Bytes) -> Answer {
    let ask: studies::Ask = read(&body)?;
    let known = Arc::clone(&server);
    let found = beside(move || known.studies.work(&ask)).await?;
    let (entry, work) = found.ok_or_else(|| Refusal::missing("there is no such study"))?;
    runs::put(
        &server,
        &entry.name,
        &format!("study {}", entry.path),
        work,
        false,
        None,
    )
}

async fn report(
    State(server): State<Shared>,
    Path((kind, path)): Path<(String, String)>,
) -> Answer {
    let found = beside(move || server.studies.report(&path, kind == "quick")).await?;
    let found = found.ok_or_else(|| Refusal::missing("this study has no report yet"))?;
    Ok(crate::response::under(
        pages::streamed("text/html", found),
        crate::response::REPORT,
    ))
}

/// The report of the points of a study that are finished by now. However many follow it, it is made once at a time.
async fn so_far(
    State(server): State<Shared>,
    Path((kind, path)): Path<(String, String)>,
) -> Answer {
    let known = Arc::clone(&server);
    let work = beside(move || known.studies.so_far(&path, kind == "quick")).await?;
    let (args, file) = work.ok_or_else(|| Refusal::missing("there is no such study"))?;
    let mut made = server.so_far.lock().await;
    let fresh = { made.as_ref() }.is_some_and(|(last, at)| *last == file && at.elapsed() < SO_FAR);
    if !fresh {
        let folder = server.store.folder();
        { child_process::output(&server.limits, &args, folder, PATIENCE).await }
            .map_err(|error| Refusal::new(StatusCode::CONFLICT, error))?;
        *made = Some((file.clone(), Instant::now()));
    }
    drop(made);
    let found = beside(move || open_regular(&file)).await?;
    let found = found.ok_or_else(|| Refusal::missing("this study has no report yet"))?;
    Ok(crate::response::under(
        pages::streamed("text/html", found),
        crate::response::REPORT,
    ))
}

async fn gateway(State(server): State<Shared>) -> Answer {
    gateway_commands::status(&server).await
}

async fn order(State(server): State<Shared>, Path(order): Path<String>) -> Answer {
    gateway_commands::order(&server, &order).await
}
