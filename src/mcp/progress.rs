//! Progress of a call, for clients that ask for it with a progress token.

use std::pin::Pin;

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext, RoleServer};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::engine::Step;

/// Who wants to hear how far a call is.
pub(super) struct Progress {
    token: ProgressToken,
    peer: Peer<RoleServer>,
}

impl Progress {
    /// The client, where its request has a progress token.
    pub(super) fn asked_for(context: &RequestContext<RoleServer>) -> Option<Self> {
        let token = context.meta.get_progress_token()?;
        Some(Self { token, peer: context.peer.clone() })
    }

    /// Runs a call to its end and passes on its steps.
    pub(super) async fn told<T>(
        progress: Option<&Self>,
        mut steps: UnboundedReceiver<Step>,
        mut call: Pin<Box<impl Future<Output = T>>>,
    ) -> T {
        loop {
            tokio::select! {
                biased;
                Some(step) = steps.recv() => {
                    if let Some(progress) = progress {
                        progress.tell(step).await;
                    }
                }
                ended = &mut call => return ended,
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a number of memories")]
    async fn tell(&self, step: Step) {
        let Step { done, total, facts } = step;
        let notice = ProgressNotificationParam::new(self.token.clone(), done as f64)
            .with_total(total as f64)
            .with_message(format!("{done} of {total} memories looked at, {facts} facts made"));
        // A client that went away is noticed by whoever runs the call.
        let _ = self.peer.notify_progress(notice).await;
    }
}
