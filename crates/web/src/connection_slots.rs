//! Connections, as many as there are slots. When all are taken, the oldest of those that have not shown the token yet has to
//! go, so that strangers keep nobody out who has it.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

/// The slots, and who has not shown the token so far, in the order in which they came.
pub(crate) struct ConnectionSlots {
    places: Arc<Semaphore>,
    strangers: VecDeque<(TokenShown, AbortHandle)>,
}

/// Whether a request of this connection had the token.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenShown(Arc<AtomicBool>);

impl TokenShown {
    /// One had.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl ConnectionSlots {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(slots)),
            strangers: VecDeque::new(),
        }
    }

    /// Has `converse` run in a task of its own once there is a slot for it.
    pub(crate) async fn take<F>(&mut self, converse: impl FnOnce(TokenShown) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.strangers
            .retain(|(shown, task)| !shown.get() && !task.is_finished());
        if self.places.available_permits() == 0
            && let Some((_, oldest)) = self.strangers.pop_front()
        {
            oldest.abort();
        }
        let Ok(place) = Arc::clone(&self.places).acquire_owned().await else {
            return;
        };
        let shown = TokenShown::default();
        let conversation = converse(shown.clone());
        let task = tokio::spawn(async move {
            conversation.await;
            drop(place);
        });
        self.strangers.push_back((shown, task.abort_handle()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::sync::Mutex;
    use std::time::Duration;
    use tokio::time::timeout;

    /// Notes the name of a connection when that ends.
    struct Ended(u32, Arc<Mutex<Vec<u32>>>);

    impl Drop for Ended {
        fn drop(&mut self) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    #[tokio::test]
    async fn strangers_make_room_and_who_has_the_token_stays() {
        let ended = Arc::new(Mutex::new(Vec::new()));
        let mut slots = ConnectionSlots::new(3);
        let mut sit = async |name: u32, known: bool| {
            let mark = Ended(name, Arc::clone(&ended));
            let taken = slots.take(|shown| {
                if known {
                    shown.set();
                }
                async move {
                    let _mark = mark;
                    pending().await
                }
            });
            timeout(Duration::from_millis(200), taken).await.is_ok()
        };
        assert!(sit(1, true).await && sit(2, false).await && sit(3, true).await);
        assert!(sit(4, true).await, "in the place of a stranger");
        assert_eq!(*ended.lock().unwrap(), [2]);
        assert!(!sit(5, false).await, "no stranger is left");
        assert_eq!(*ended.lock().unwrap(), [2, 5]);
    }
}
