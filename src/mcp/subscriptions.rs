//! `subscriptions/listen`: tells a client that the memories it may read have changed, so that it reads them again. What
//! is told is no content: that the list is another, and the URIs of resources that the client watches.

use std::collections::BTreeSet;
use std::time::Duration;

use rmcp::ErrorData as McpError;
use rmcp::model::SubscriptionFilter;
use rmcp::service::{SubscriptionContext, SubscriptionSendError};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{extension, resources};
use crate::auth::{Caller, Standing};
use crate::db::feed::{Subscription, Told};
use crate::model::{Action, Scope};

/// Between notifications to one client; what changes in the meantime is told together.
const PAUSE: Duration = Duration::from_secs(1);
/// How often a silent stream's token is looked at. It is also looked at before anything is told.
const RECHECK: Duration = Duration::from_secs(5);
/// How long a client may take to accept a notification, while more of them wait.
const SLOW: Duration = Duration::from_secs(30);

/// Tells changes until the client goes, `stop` is cancelled, or the token is not what it was. The client learns of the
/// last two by the stream's end.
pub(super) async fn listen(context: &SubscriptionContext, stop: &CancellationToken) -> Result<(), McpError> {
    let request = context.request_context();
    let caller: &Caller = extension(request)?;
    let standing: &Standing = extension(request)?;
    let subscription: &Subscription = extension(request)?;
    let wanted = Wanted::of(context.accepted());
    let mut due = Due::default();
    let mut next = Instant::now();
    let mut recheck = interval(RECHECK);
    recheck.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = context.cancelled() => return Ok(()),
            told = subscription.next() => due.note(&told, &wanted, caller),
            () = sleep_until(next), if !due.is_empty() => {
                if !standing.holds(caller).await {
                    return Ok(());
                }
                // Whoever takes nothing any more has gone without a word.
                if !matches!(timeout(SLOW, due.tell(context)).await, Ok(Ok(()))) {
                    return Ok(());
                }
                due = Due::default();
                next = Instant::now() + PAUSE;
            }
            _ = recheck.tick() => if !standing.holds(caller).await {
                return Ok(());
            },
        }
    }
}

/// What a client asked to be told.
struct Wanted {
    list: bool,
    resources: Vec<(String, Scope, Uuid)>,
}

impl Wanted {
    fn of(accepted: &SubscriptionFilter) -> Self {
        let uris = accepted.resource_subscriptions.iter().flatten();
        let named = |uri: &String| {
            let (scope, id) = resources::parse(uri)?;
            Some((uri.clone(), Scope::parse(&scope).ok()?, id.parse().ok()?))
        };
        Self {
            list: accepted.resources_list_changed == Some(true),
            resources: uris.filter_map(named).collect(),
        }
    }
}

/// What is to be told next.
#[derive(Debug, Default, PartialEq, Eq)]
struct Due {
    list: bool,
    uris: BTreeSet<String>,
}

impl Due {
    fn is_empty(&self) -> bool {
        !self.list && self.uris.is_empty()
    }

    /// Adds what a change means to `caller`; of scopes that it may not read, nothing.
    fn note(&mut self, told: &Told, wanted: &Wanted, caller: &Caller) {
        let touched = |scope: &Scope, id: &Uuid| match told {
            Told::Missed => true,
            Told::Changed(changed) => {
                changed.scope == *scope && changed.memories.as_ref().is_none_or(|ids| ids.contains(id))
            }
        };
        if let Told::Changed(changed) = told
            && caller.authorise(&changed.scope, Action::Read).is_err()
        {
            return;
        }
        let listed = match told {
            Told::Missed => true,
            Told::Changed(changed) => changed.listed,
        };
        self.list |= wanted.list && listed;
        let touched = wanted.resources.iter().filter(|(_, scope, id)| touched(scope, id));
        self.uris.extend(touched.map(|(uri, _, _)| uri.clone()));
    }

    async fn tell(&self, context: &SubscriptionContext) -> Result<(), SubscriptionSendError> {
        if self.list {
            context.sink().notify_resource_list_changed().await?;
        }
        for uri in &self.uris {
            context.sink().notify_resource_updated(uri).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::db::feed::Changed;

    const ID: &str = "019cb000-0000-7000-8000-000000000001";

    fn note(grants: &[&str], uri: &str, told: &Told) -> Due {
        let grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
        let caller = Caller { subject: "s".to_owned(), grants, request_id: "r".to_owned() };
        let filter = SubscriptionFilter::builder().resources_list_changed();
        let wanted = Wanted::of(&filter.resource_subscriptions([uri.to_owned()]).build());
        let mut due = Due::default();
        due.note(told, &wanted, &caller);
        due
    }

    fn changed(listed: bool, memories: Option<&[&str]>) -> Told {
        let memories = memories.map(|ids| ids.iter().map(|id| id.parse().unwrap()).collect());
        Told::Changed(Arc::new(Changed { scope: Scope::parse("user:1").unwrap(), listed, memories }))
    }

    #[test]
    fn a_change_is_due_to_whom_it_concerns() {
        let uri = format!("memory:///user%3A1/{ID}");
        let (nothing, list) = (Due::default(), Due { list: true, uris: BTreeSet::new() });
        let resource = Due { list: false, uris: BTreeSet::from([uri.clone()]) };
        let both = Due { list: true, uris: BTreeSet::from([uri.clone()]) };
        let other = "019cb000-0000-7000-8000-000000000002";
        let mine = &["user:1=read"][..];
        assert_eq!(note(mine, &uri, &changed(false, Some(&[ID]))), resource);
        assert_eq!(note(mine, &uri, &changed(true, Some(&[other, ID]))), both);
        assert_eq!(note(mine, &uri, &changed(false, Some(&[other]))), nothing);
        assert_eq!(note(mine, &uri, &changed(true, Some(&[other]))), list);
        assert_eq!(note(mine, &uri, &changed(false, None)), resource);
        assert_eq!(note(mine, &uri, &Told::Missed), both);
        // The same memory's number in another scope, and another's scope.
        assert_eq!(note(&["user:*=read"], &format!("memory:///user%3A2/{ID}"), &changed(true, None)), list);
        assert_eq!(note(&["user:2=admin"], &uri, &changed(true, None)), nothing);
    }
}
