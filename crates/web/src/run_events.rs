//! What watchers of a run are sent: encoded once, whoever watches.
//!
//! A piece is one server-sent event, made at most ten times a second of the lines that came since. Who comes late gets
//! all pieces from the first on; who reads slowly gets them later, and holds up neither the run nor the others.

use axum::body::Bytes;
use hyper::body::{Body, Frame};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// How often a connection of which nothing is heard is tried.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The pieces of one run.
pub(crate) struct RunEvents {
    pieces: Mutex<Vec<Bytes>>,
    /// How many there are, and whether that is all.
    told: watch::Sender<(usize, bool)>,
    /// Time in the run that the last line was about, and that it takes at most, in seconds.
    progress: Mutex<(f64, Option<f64>)>,
}

impl Default for RunEvents {
    fn default() -> Self {
        Self {
            pieces: Mutex::default(),
            told: watch::channel((0, false)).0,
            progress: Mutex::default(),
        }
    }
}

impl RunEvents {
    /// Sends these lines, each of which has its line break.
    pub(crate) fn send(&self, lines: &str) {
        let mut event = String::with_capacity(lines.len() + 16);
        for line in lines.lines() {
            event.push_str("data: ");
            event.push_str(line);
            event.push('\n');
            if let Some(at) = number(line, "{\"at_s\":") {
                self.progress().0 = at;
            } else if let Some(most) = number(line, "\"at_most_s\":") {
                self.progress().1 = Some(most);
            }
        }
        event.push('\n');
        self.put(event, false);
    }

    /// Says how the run ended; nothing follows.
    pub(crate) fn end(&self, state: &str) {
        self.put(format!("event: end\ndata: {state}\n\n"), true);
    }

    fn put(&self, event: String, last: bool) {
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.push(event.into());
        // Without watchers there is nobody to tell, but the count stays.
        self.told.send_replace((pieces.len(), last));
    }

    fn progress(&self) -> std::sync::MutexGuard<'_, (f64, Option<f64>)> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far the run is, and how long it takes at most, in seconds of its time.
    pub(crate) fn reached(&self) -> (f64, Option<f64>) {
        *self.progress()
    }

    /// All pieces, as the body of an answer that ends with the run.
    ///
    /// `gone` is called when the watcher has all of it, or has gone.
    pub(crate) fn watch(self: &Arc<Self>, gone: impl FnOnce() + Send + 'static) -> Pieces {
        let (give, pieces) = mpsc::channel(4);
        let events = Arc::clone(self);
        tokio::spawn(async move {
            events.give_all(give).await;
            gone();
        });
        Pieces(pieces)
    }

    async fn give_all(self: Arc<Self>, give: mpsc::Sender<Bytes>) {
        let mut told = self.told.subscribe();
        let mut given = 0;
        loop {
            let (there, last) = *told.borrow_and_update();
            while given < there {
                let piece = { self.pieces.lock().unwrap_or_else(PoisonError::into_inner) }
                    .get(given)
                    .cloned();
                given += 1;
                if let Some(piece) = piece
                    && give.send(piece).await.is_err()
                {
                    return;
                }
            }
            if last {
                return;
            }
            match tokio::time::timeout(HEARTBEAT, told.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) => {
                    if give
                        .send(Bytes::from_static(b": still here\n\n"))
                        .await
                        .is_err()
                    {
                        return;
                    }
                }
            }
        }
    }
}

/// The number behind `key` in a line of JSON that our own program wrote.
fn number(line: &str, key: &str) -> Option<f64> {
    let behind = &line[line.find(key)? + key.len()..];
    let end = behind.find([',', '}'])?;
    behind[..end].parse().ok()
}

/// A body of pieces that come one after the other.
pub(crate) struct Pieces(mpsc::Receiver<Bytes>);

impl Pieces {
    pub(crate) const fn new(pieces: mpsc::Receiver<Bytes>) -> Self {
        Self(pieces)
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(context)
            .map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_watchers_get_all_of_it() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let events = Arc::new(RunEvents::default());
            events.send("{\"at_most_s\":60.0}\n");
            let mut early = events.watch(|| ());
            events.send("{\"at_s\":0.1,\"flows\":[]}\n{\"at_s\":0.2}\n");
            assert_eq!(events.reached(), (0.2, Some(60.0)));
            let mut late = events.watch(|| ());
            events.end("done");
            for watcher in [&mut early, &mut late] {
                let mut all = String::new();
                while let Some(piece) = watcher.0.recv().await {
                    all.push_str(std::str::from_utf8(&piece).unwrap());
                }
                assert_eq!(
                    all,
                    "data: {\"at_most_s\":60.0}\n\ndata: {\"at_s\":0.1,\"flows\":[]}\ndata: {\"at_s\":0.2}\n\nevent: end\ndata: done\n\n"
                );
            }
        });
    }
}
